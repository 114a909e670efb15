// SPDX-License-Identifier: Apache-2.0
// Cut a byte stream into messages that are whole, in order and from whom they should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/wire/secret.h"

namespace headrace::wire {

/// One message. Layout: docs/formats/wire.md.
struct Frame {
  uint16_t type = 0;
  uint16_t flags = 0;
  std::string payload;
};

/// Longest payload.
inline constexpr size_t kFramePayloadMax = size_t{16} << 20;
/// What a frame adds to its payload: header and tag.
inline constexpr size_t kFrameHeaderBytes = 8;
inline constexpr size_t kFrameTagBytes = 16;

/// Turn messages into bytes of one direction of one connection: each has a tag over its number, so
/// that it is worth nothing anywhere else. Not thread-safe.
class HR_API FrameSealer {
 public:
  explicit FrameSealer(Secret key) : key_(std::move(key)) {}
  /// Append the frame's bytes to `out`. `invalid_argument` above kFramePayloadMax.
  Result<void> seal(const Frame& frame, std::string* out);

 private:
  Secret key_;
  uint64_t number_ = 0;
};

/// The other end of a FrameSealer. Not thread-safe.
class HR_API FrameReader {
 public:
  explicit FrameReader(Secret key, size_t payload_max = kFramePayloadMax)
      : key_(std::move(key)), payload_max_(payload_max) {}
  /// Take bytes as they came.
  void append(std::string_view bytes);
  /// The next whole frame; nullopt when more bytes are needed. `corrupt` for a length above the
  /// bound and for a tag that does not fit: altered, repeated, left out or out of order. After that
  /// nothing of the stream can be trusted, and every call gives the error again.
  Result<std::optional<Frame>> next();
  /// Bytes taken in and not handed out.
  size_t buffered_bytes() const { return bytes_.size() - taken_; }

 private:
  Secret key_;
  size_t payload_max_;
  uint64_t number_ = 0;
  std::string bytes_;
  size_t taken_ = 0;  // bytes of `bytes_` that were handed out
  std::optional<Error> broken_;
};

}  // namespace headrace::wire
