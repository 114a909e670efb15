// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/frame.h"

#include <fmt/format.h>

#include "headrace/wire/crypto_internal.h"
#include "headrace/wire/little_endian_internal.h"

namespace headrace::wire {

namespace {

// Below this, bytes that were handed out stay where they are: moving the rest costs more.
constexpr size_t kCompactBytes = size_t{64} << 10;

Digest digest_of(const Secret& key, uint64_t number, std::string_view header_and_payload) {
  std::string counter;
  put<uint64_t>(&counter, number);
  return hmac_sha256(key.bytes(), {counter, header_and_payload});
}

}  // namespace

Result<void> FrameSealer::seal(const Frame& frame, std::string* out) {
  if (frame.payload.size() > kFramePayloadMax) {
    return Error{Errc::invalid_argument,
                 fmt::format("a message of {} bytes; at most {} go into one frame",
                             frame.payload.size(), kFramePayloadMax)};
  }
  const size_t begin = out->size();
  out->reserve(begin + kFrameHeaderBytes + frame.payload.size() + kFrameTagBytes);
  put(out, static_cast<uint32_t>(frame.payload.size()));
  put<uint16_t>(out, frame.type);
  put<uint16_t>(out, frame.flags);
  *out += frame.payload;
  const Digest digest = digest_of(key_, number_, std::string_view(*out).substr(begin));
  *out += text_of(digest).substr(0, kFrameTagBytes);
  ++number_;
  return {};
}

void FrameReader::append(std::string_view bytes) {
  if (broken_.has_value()) {
    return;
  }
  if (taken_ == bytes_.size()) {
    bytes_.clear();
    taken_ = 0;
    if (bytes_.capacity() > kCompactBytes) {
      bytes_.shrink_to_fit();  // one large frame must not keep its memory for ever
    }
  } else if (taken_ >= kCompactBytes) {
    bytes_.erase(0, taken_);
    taken_ = 0;
  }
  bytes_ += bytes;
}

Result<std::optional<Frame>> FrameReader::next() {
  if (broken_.has_value()) {
    return *broken_;
  }
  const std::string_view rest = std::string_view(bytes_).substr(taken_);
  // The length is looked at as soon as it is there: nobody waits for a body that may not be.
  if (rest.size() >= sizeof(uint32_t) && get<uint32_t>(rest, 0) > payload_max_) {
    broken_ = Error{Errc::corrupt, fmt::format("frame {} says it has {} bytes; at most {} may be",
                                               number_, get<uint32_t>(rest, 0), payload_max_)};
    return *broken_;
  }
  if (rest.size() < kFrameHeaderBytes) {
    return std::optional<Frame>();
  }
  const size_t sealed_bytes = kFrameHeaderBytes + get<uint32_t>(rest, 0);
  if (rest.size() < sealed_bytes + kFrameTagBytes) {
    return std::optional<Frame>();
  }
  const Digest expected = digest_of(key_, number_, rest.substr(0, sealed_bytes));
  if (!equal_in_constant_time(std::span(expected).first(kFrameTagBytes),
                              bytes_of(rest.substr(sealed_bytes, kFrameTagBytes)))) {
    broken_ = Error{Errc::corrupt,
                    fmt::format("the tag of frame {} does not fit: it was altered, repeated, or is "
                                "out of order; the connection cannot go on",
                                number_)};
    return *broken_;
  }
  ++number_;
  taken_ += sealed_bytes + kFrameTagBytes;
  return std::optional<Frame>(Frame{
      .type = get<uint16_t>(rest, 4),
      .flags = get<uint16_t>(rest, 6),
      .payload = std::string(rest.substr(kFrameHeaderBytes, sealed_bytes - kFrameHeaderBytes))});
}

}  // namespace headrace::wire
