// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/segments.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace headrace::comm {

namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, reflected
constexpr size_t kSegmentBytesMost = size_t{1} << 30;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1U) ^ ((value & 1U) != 0 ? kPolynomial : 0);
    }
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t by_table(uint32_t crc, const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<uint32_t>(data[i])) & 0xFFU];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc, const std::byte* data,
                                                          size_t bytes) {
  uint64_t wide = crc;
  for (; bytes >= sizeof wide; data += sizeof wide, bytes -= sizeof wide) {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; bytes > 0; ++data, --bytes) {
    crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*data));
  }
  return crc;
}

bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}
#endif

size_t bytes_of(std::span<const iovec> parts) {
  size_t sum = 0;
  for (const iovec& part : parts) {
    sum += part.iov_len;
  }
  return sum;
}

/// The first `bytes` of `parts`, behind what `out` has already; how many pieces there are then.
template <size_t kMost>
size_t cut(std::span<const iovec> parts, size_t bytes, std::array<iovec, kMost>& out,
           size_t count) {
  for (const iovec& part : parts) {
    const size_t some = std::min(part.iov_len, bytes);
    if (some == 0 || count == kMost) {
      break;
    }
    out[count++] = {.iov_base = part.iov_base, .iov_len = some};
    bytes -= some;
  }
  return count;
}

}  // namespace

uint32_t crc32c(uint32_t before, const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
#if defined(__x86_64__)
  if (has_instruction()) {
    return ~by_instruction(~before, from, bytes);
  }
#endif
  return ~by_table(~before, from, bytes);
}

std::span<const iovec> SegmentsOut::next(std::span<const iovec> bytes) {
  if (header_left_ == 0 && left_ == 0) {
    left_ = std::min(bytes_of(bytes), kSegmentBytesMost);
    header_left_ = kHeaderBytes;
    const size_t pieces = cut(bytes, left_, pieces_, 0);
    uint32_t crc = 0;
    for (size_t i = 0; i < pieces; ++i) {
      crc = crc32c(crc, pieces_[i].iov_base, pieces_[i].iov_len);
    }
    crc ^= damages_ ? 0x100U : 0;
    damages_ = false;
    const auto length = static_cast<uint32_t>(left_);
    const uint32_t words[] = {length, ~length, crc};
    std::memcpy(header_.data(), words, sizeof words);
  }
  size_t count = 0;
  if (header_left_ > 0) {
    pieces_[count++] = {.iov_base = header_.data() + kHeaderBytes - header_left_,
                        .iov_len = header_left_};
  }
  return std::span(pieces_).first(cut(bytes, left_, pieces_, count));
}

size_t SegmentsOut::gone(size_t sent) {
  const size_t of_header = std::min(sent, header_left_);
  header_left_ -= of_header;
  left_ -= sent - of_header;
  return sent - of_header;
}

std::span<const iovec> SegmentsIn::next(std::span<const iovec> bytes) {
  if (left_ == 0) {
    pieces_[0] = {.iov_base = header_.data() + header_bytes_,
                  .iov_len = header_.size() - header_bytes_};
    count_ = 1;
  } else {
    count_ = cut(bytes, left_, pieces_, 0);
  }
  return std::span(pieces_).first(count_);
}

size_t SegmentsIn::came(size_t received) {
  if (left_ == 0) {
    header_bytes_ += received;
    if (header_bytes_ == header_.size()) {
      uint32_t words[3] = {};
      std::memcpy(words, header_.data(), sizeof words);
      damaged_ = words[0] == 0 || words[1] != ~words[0];
      left_ = words[0];
      wanted_ = words[2];
      header_bytes_ = 0;
      found_ = 0;
    }
    return 0;
  }
  size_t unseen = received;
  for (size_t i = 0; i < count_ && unseen > 0; ++i) {
    const size_t some = std::min(pieces_[i].iov_len, unseen);
    found_ = crc32c(found_, pieces_[i].iov_base, some);
    unseen -= some;
  }
  left_ -= received;
  damaged_ = left_ == 0 && found_ != wanted_;
  return damaged_ ? 0 : received;
}

size_t SegmentsIn::extra_bytes(size_t segments) const {
  const size_t begun = left_ > 0 ? 1 : 0;
  return (segments - std::min(segments, begun)) * header_.size() - header_bytes_;
}

}  // namespace headrace::comm
