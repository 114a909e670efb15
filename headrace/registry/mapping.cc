// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/registry/limits.h"

namespace headrace::registry {

namespace {

Result<std::vector<std::byte>> read_all(int fd, size_t bytes, const base::Path& path) {
  std::vector<std::byte> data(bytes);
  size_t used = 0;
  while (used < bytes) {
    const ssize_t count = ::read(fd, data.data() + used, bytes - used);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return errno_error(errno, "reading " + path.string());
    }
    if (count == 0) {
      return Error{Errc::corrupt,
                   "registry: " + path.string() + " became shorter while it was read"};
    }
    used += static_cast<size_t>(count);
  }
  return data;
}

}  // namespace

Result<std::shared_ptr<const Mapping>> Mapping::open(const base::Path& path, bool copy) {
  HR_TRY(auto fd, base::open_file(path, O_RDONLY));
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return errno_error(errno, "reading " + path.string());
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{Errc::invalid_argument, "registry: " + path.string() + " is no regular file"};
  }
  if (info.st_size > kFileBytesMax) {
    return Error{Errc::invalid_argument, "registry: " + path.string() + " has " +
                                             std::to_string(info.st_size) + " bytes; at most " +
                                             std::to_string(kFileBytesMax) + " are allowed"};
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  std::shared_ptr<Mapping> mapping(new Mapping());
  if (bytes == 0) {
    return std::shared_ptr<const Mapping>(mapping);
  }
  if (copy) {
    HR_TRY(mapping->copy_, read_all(fd.get(), bytes, path));
    mapping->bytes_ = mapping->copy_;
    return std::shared_ptr<const Mapping>(mapping);
  }
  void* const address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    return errno_error(errno, "mapping " + path.string());
  }
  mapping->address_ = address;
  mapping->bytes_ = {static_cast<const std::byte*>(address), bytes};
  return std::shared_ptr<const Mapping>(mapping);
}

Mapping::~Mapping() {
  if (address_ != nullptr) {
    ::munmap(address_, bytes_.size());
  }
}

}  // namespace headrace::registry
