// SPDX-License-Identifier: Apache-2.0
// Bytes of the worked example were calculated with Python 3.11's hmac and hashlib.
#include "headrace/wire/frame.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "headrace/base/checksum.h"
#include "headrace/wire/crypto_internal.h"

namespace headrace::wire {

namespace {

std::string sealed(FrameSealer* sealer, const Frame& frame) {
  std::string out;
  REQUIRE(sealer->seal(frame, &out).ok());
  return out;
}

Errc code_after(FrameReader* reader, std::string_view bytes) {
  reader->append(bytes);
  const auto frame = reader->next();
  REQUIRE(!frame.ok());
  return frame.error().code();
}

}  // namespace

TEST_CASE("frames come out as they went in, however their bytes are cut") {
  const Secret key = Secret::generate();
  const std::vector<Frame> frames = {
      {.type = 1, .flags = 0, .payload = ""},
      {.type = 0xffff, .flags = 7, .payload = std::string(100'000, 'x')},
      {.type = 2, .flags = 1, .payload = std::string("a\0b", 3)}};
  for (const size_t piece : {size_t{1}, size_t{4096}, size_t{1} << 20}) {
    FrameSealer sealer(key.copy());
    FrameReader reader(key.copy());
    std::string bytes;
    for (const Frame& frame : frames) {
      bytes += sealed(&sealer, frame);
    }
    std::vector<Frame> out;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.append(std::string_view(bytes).substr(at, piece));
      for (;;) {
        auto frame = reader.next();
        REQUIRE(frame.ok());
        if (!frame->has_value()) {
          break;
        }
        out.push_back(**std::move(frame));
      }
    }
    REQUIRE(out.size() == frames.size());
    for (size_t i = 0; i < out.size(); ++i) {
      CHECK(out[i].type == frames[i].type);
      CHECK(out[i].flags == frames[i].flags);
      CHECK(out[i].payload == frames[i].payload);
    }
    CHECK(reader.buffered_bytes() == 0);
  }
}

TEST_CASE("a flipped bit anywhere in a frame is found") {
  const Secret key = Secret::generate();
  FrameSealer sealer(key.copy());
  const std::string bytes = sealed(&sealer, {.type = 3, .flags = 0, .payload = "payload"});
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    FrameReader reader(key.copy());
    reader.append(flipped);
    const auto frame = reader.next();
    CAPTURE(bit);
    // a larger length may ask for more bytes; then the tag would not fit either
    CHECK((!frame.ok() || !frame->has_value()));
  }
}

TEST_CASE("a frame that is repeated, left out or out of order breaks the stream for good") {
  const Secret key = Secret::generate();
  FrameSealer sealer(key.copy());
  const std::string first = sealed(&sealer, {.type = 1, .flags = 0, .payload = "one"});
  const std::string second = sealed(&sealer, {.type = 1, .flags = 0, .payload = "two"});

  FrameReader repeated(key.copy());
  repeated.append(first);
  REQUIRE(repeated.next().ok());
  CHECK(code_after(&repeated, first) == Errc::corrupt);
  CHECK(code_after(&repeated, second) == Errc::corrupt);  // nothing after that is believed

  FrameReader skipped(key.copy());
  CHECK(code_after(&skipped, second) == Errc::corrupt);
  FrameReader elsewhere(Secret::generate());
  CHECK(code_after(&elsewhere, first) == Errc::corrupt);
}

TEST_CASE(
    "a frame that is cut off is waited for, and one too large is refused by its length alone") {
  const Secret key = Secret::generate();
  FrameSealer sealer(key.copy());
  const std::string bytes = sealed(&sealer, {.type = 1, .flags = 0, .payload = "abc"});
  for (size_t count = 0; count < bytes.size(); ++count) {
    FrameReader reader(key.copy());
    reader.append(std::string_view(bytes).substr(0, count));
    const auto frame = reader.next();
    REQUIRE(frame.ok());
    CHECK_FALSE(frame->has_value());
  }
  FrameReader reader(key.copy());
  CHECK(code_after(&reader, std::string("\x01\x00\x00\x01", 4)) == Errc::corrupt);  // 16 MiB + 1
  std::string out;
  CHECK(
      sealer.seal({.type = 1, .flags = 0, .payload = std::string(kFramePayloadMax + 1, 'x')}, &out)
          .error()
          .code() == Errc::invalid_argument);
  CHECK(out.empty());
  CHECK(sealer.seal({.type = 1, .flags = 0, .payload = std::string(kFramePayloadMax, 'x')}, &out)
            .ok());
}

}  // namespace headrace::wire
