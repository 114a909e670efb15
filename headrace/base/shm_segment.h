// SPDX-License-Identifier: Apache-2.0
// Memory that several processes map: an anonymous file and mappings of parts of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::base {

/// A mapping of a part of a segment; unmaps at destruction. Move-only.
class HR_API ShmMapping {
 public:
  ShmMapping() = default;
  ShmMapping(ShmMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ShmMapping& operator=(ShmMapping&& other) noexcept;
  ~ShmMapping() { reset(); }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  friend class ShmSegment;
  ShmMapping(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// An anonymous file in memory (memfd): it has no name, so nothing stays behind after SIGKILL, and
/// the size of /dev/shm does not bound it. Other processes get at it by its descriptor.
class HR_API ShmSegment {
 public:
  /// A segment of `bytes` zeros whose pages are there already: lack of memory is an error here
  /// (`out_of_memory`), not a SIGBUS later. `name` shows in /proc only. A process never needs it.
  static Result<ShmSegment> create(std::string_view name, size_t bytes);
  /// A segment that another process has made; `invalid_argument` if it is shorter than `bytes`.
  static Result<ShmSegment> adopt(Fd fd, size_t bytes);

  int fd() const { return fd_.get(); }
  size_t bytes() const { return bytes_; }
  /// The descriptor alone; mappings stay.
  Fd release() && { return std::move(fd_); }
  /// Map all of it for reading and writing.
  Result<ShmMapping> map() const;

 private:
  ShmSegment(Fd fd, size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  Fd fd_;
  size_t bytes_;
};

}  // namespace headrace::base
