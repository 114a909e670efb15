// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

namespace headrace::base {

ShmMapping& ShmMapping::operator=(ShmMapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void ShmMapping::reset() {
  if (data_ != nullptr) {
    ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
}

namespace {

/// Memory with a descriptor and no name. A container's filter may know no memfd; a file without a
/// name in /dev/shm is the same, but for the size that the container gives that folder.
Fd anonymous_memory(const std::string& name, bool* is_memfd) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
  *is_memfd = fd.valid();
  if (!fd.valid() && (errno == EPERM || errno == ENOSYS || errno == EACCES)) {
    const int refused = errno;
    fd = Fd(::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!fd.valid()) {
      errno = refused;
    }
  }
  return fd;
}

}  // namespace

Result<ShmSegment> ShmSegment::create(std::string_view name, size_t bytes) {
  const std::string what = fmt::format("making {} bytes of shared memory ({})", bytes, name);
  bool is_memfd = false;
  Fd fd = anonymous_memory(std::string(name), &is_memfd);
  if (!fd.valid()) {
    return errno_error(errno, what);
  }
  // posix_fallocate sets no errno; it makes the file as long as it needs to be.
  const int failed = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (failed == ENOSPC || failed == ENOMEM) {
    return Error{Errc::out_of_memory,
                 what + (is_memfd ? ": the memory, or the limit of this control group, does not "
                                    "suffice; give it more or start fewer ranks"
                                  : ": /dev/shm is full, which is used as memfd_create is refused "
                                    "here; give the container a larger one (--shm-size), or allow "
                                    "that call")};
  }
  if (failed != 0) {
    return errno_error(failed, what);
  }
  return ShmSegment(std::move(fd), bytes);
}

Result<ShmSegment> ShmSegment::adopt(Fd fd, size_t bytes) {
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return errno_error(errno, "looking at shared memory of another process");
  }
  if (info.st_size < static_cast<off_t>(bytes)) {
    return Error{Errc::invalid_argument,
                 fmt::format("shared memory of another process has {} bytes, {} are needed",
                             info.st_size, bytes)};
  }
  return ShmSegment(std::move(fd), bytes);
}

Result<ShmMapping> ShmSegment::map() const {
  void* data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (data == MAP_FAILED) {
    const int why = errno;
    Error error = errno_error(why, fmt::format("mapping {} bytes of shared memory", bytes_));
    return why == ENOMEM ? error.add_note("a limit of this process may be the cause: ulimit -v")
                         : error;
  }
  return ShmMapping(static_cast<std::byte*>(data), bytes_);
}

}  // namespace headrace::base
