// SPDX-License-Identifier: Apache-2.0
// A byte stream in segments with a checksum each, for networks whose own are too weak.
//
// A segment is its length, that with all bits turned and the CRC32C of its bytes, 4 bytes each,
// then the bytes. They are handed on as they come; that a segment was damaged is known with its
// last byte, which counts as not received then.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::comm {

/// CRC32C (Castagnoli) of bytes, going on from that of the bytes before; 0 at the beginning.
uint32_t crc32c(uint32_t before, const void* data, size_t bytes);

/// What goes into a stream. A segment that was begun must be gone before other bytes are given
/// than its own.
class SegmentsOut {
 public:
  static constexpr size_t kHeaderBytes = 12;

  /// What to send: as much of `bytes` as fits into the segment under way, or a new one of all.
  std::span<const iovec> next(std::span<const iovec> bytes);
  /// So much of it is gone; how much of that was bytes.
  size_t gone(size_t sent);
  /// For tests: the segment that begins next has a wrong checksum.
  void damage_next() { damages_ = true; }

 private:
  std::array<std::byte, kHeaderBytes> header_ = {};
  size_t header_left_ = 0;
  size_t left_ = 0;
  bool damages_ = false;
  std::array<iovec, 9> pieces_ = {};
};

/// What comes out of it.
class SegmentsIn {
 public:
  /// Where to receive to: the next header, or as much of `bytes` as the segment still has.
  std::span<const iovec> next(std::span<const iovec> bytes);
  /// So much has come to the places of next(); how many of them are bytes.
  size_t came(size_t received);
  bool damaged() const { return damaged_; }
  /// The next that comes is a header.
  bool wants_header() const { return left_ == 0; }
  /// On the wire there are so many more than `bytes` in `segments` whole segments and the rest of
  /// one that was begun.
  size_t extra_bytes(size_t segments) const;

 private:
  std::array<std::byte, SegmentsOut::kHeaderBytes> header_ = {};
  size_t header_bytes_ = 0;
  size_t left_ = 0;
  uint32_t wanted_ = 0;
  uint32_t found_ = 0;
  bool damaged_ = false;
  std::array<iovec, 8> pieces_ = {};
  size_t count_ = 0;
};

}  // namespace headrace::comm
