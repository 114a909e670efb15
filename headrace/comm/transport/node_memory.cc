// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/node_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "headrace/base/random.h"

namespace headrace::comm {

namespace {

constexpr size_t kTokenPage = 4096;

uint64_t inode_of(const char* path) {
  struct stat info = {};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

std::byte* NodeMemory::data() const { return mapping_.data() + kTokenPage; }

Result<NodeMemory> NodeMemory::make(size_t bytes) {
  HR_TRY(auto segment, base::ShmSegment::create("headrace", kTokenPage + bytes));
  HR_TRY(auto mapping, segment.map());
  base::random_bytes(std::span(mapping.data(), sizeof(MemoryOffer::token)));
  return NodeMemory(std::move(segment).release(), std::move(mapping));
}

MemoryOffer NodeMemory::offer() const {
  MemoryOffer offer;
  offer.pid = ::getpid();
  offer.fd = segment_fd_.get();
  offer.bytes = mapping_.bytes();
  std::memcpy(offer.token.data(), mapping_.data(), sizeof offer.token);
  return offer;
}

Result<NodeMemory> NodeMemory::open(const MemoryOffer& offer) {
  const std::string path = fmt::format("/proc/{}/fd/{}", offer.pid, offer.fd);
  const std::string what = fmt::format("comm: memory of process {} cannot be shared: ", offer.pid);
  auto fd = base::open_file(path, O_RDWR | O_NONBLOCK);
  if (!fd.ok()) {
    return Error{Errc::unsupported, what + fd.error().message()};
  }
  struct stat info = {};
  if (::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error{Errc::unsupported, what + path + " is something else by now"};
  }
  HR_TRY(auto segment, base::ShmSegment::adopt(*std::move(fd), offer.bytes));
  HR_TRY(auto mapping, segment.map());
  if (std::memcmp(mapping.data(), offer.token.data(), sizeof offer.token) != 0) {
    return Error{Errc::unsupported, what + path + " is other memory than was offered"};
  }
  return NodeMemory(base::Fd(), std::move(mapping));
}

std::string node_identity() {
  const std::string boot =
      base::read_file("/proc/sys/kernel/random/boot_id", 64).value_or("no boot id");
  return fmt::format("{} pid:{} uid:{}", boot.substr(0, 36), inode_of("/proc/self/ns/pid"),
                     ::geteuid());
}

}  // namespace headrace::comm
