// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>

#include "headrace/base/clock.h"
#include "headrace/base/random.h"
#include "headrace/wire/crypto_internal.h"
#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

constexpr base::Micros kDescriptorWaitMost = std::chrono::seconds(10);

/// Bytes on the stack that are wiped on every way out. One more than a secret has: it shows that
/// there is more.
struct Buffer {
  std::array<std::byte, Secret::kBytes + 1> bytes = {};
  size_t used = 0;
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { sodium_memzero(bytes.data(), bytes.size()); }
};

/// Fill `buffer` up to the end of what `fd` gives. A regular file is always ready to be read.
Result<void> fill(int fd, const std::string& what, Buffer* buffer) {
  const auto deadline = base::Deadline::in(kDescriptorWaitMost);
  while (buffer->used < buffer->bytes.size()) {
    if (!wait_ready(fd, POLLIN, deadline)) {
      return Error{Errc::timeout,
                   what + ": its writer neither ended nor gave the 32 bytes of a secret within " +
                       duration_text(kDescriptorWaitMost)};
    }
    const ssize_t count =
        ::read(fd, buffer->bytes.data() + buffer->used, buffer->bytes.size() - buffer->used);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
      continue;
    }
    if (count < 0) {
      return errno_error(errno, "reading " + what);
    }
    if (count == 0) {
      return {};
    }
    buffer->used += static_cast<size_t>(count);
  }
  return {};
}

Result<Secret> secret_of(const Buffer& buffer, const std::string& what) {
  if (buffer.used != Secret::kBytes) {
    return Error{
        Errc::invalid_argument,
        fmt::format("{} holds {} bytes; a secret is exactly 32 (head -c 32 /dev/urandom)", what,
                    buffer.used > Secret::kBytes ? "more than 32" : std::to_string(buffer.used))};
  }
  return Secret::from_bytes(std::span(buffer.bytes).first<Secret::kBytes>());
}

}  // namespace

Secret Secret::generate() {
  Secret secret;
  base::random_bytes(secret.bytes_);
  return secret;
}

Secret Secret::from_bytes(std::span<const std::byte, kBytes> bytes) {
  Secret secret;
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  return secret;
}

Result<Secret> Secret::read_file(const base::Path& path) {
  // Not blocking: a named pipe in the place of the file must not hold the process up.
  HR_TRY(const base::Fd fd, base::open_file(path, O_RDONLY | O_NONBLOCK));
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return errno_error(errno, "reading " + path.string());
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{Errc::invalid_argument, path.string() + " is no regular file"};
  }
  if ((info.st_mode & 077U) != 0) {
    return Error{
        Errc::invalid_argument,
        fmt::format("{} has mode {:04o}: others can get at the secret in it; chmod 600 it, "
                    "and make a new secret if others could read it so far",
                    path.string(), info.st_mode & 07777U)};
  }
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return Error{Errc::invalid_argument,
                 fmt::format("{} belongs to user {}, who knows the secret in it; it must belong to "
                             "user {} or to root",
                             path.string(), info.st_uid, ::geteuid())};
  }
  Buffer buffer;
  HR_TRY(fill(fd.get(), path.string(), &buffer));
  return secret_of(buffer, path.string());
}

Result<Secret> Secret::read_descriptor(base::Fd fd) {
  const std::string what = fmt::format("the secret's descriptor {}", fd.get());
  Buffer buffer;
  HR_TRY(fill(fd.get(), what, &buffer));
  return secret_of(buffer, what);
}

Secret Secret::derive(std::string_view purpose) const {
  return from_bytes(hmac_sha256(bytes_, {"headrace wire 1 derived secret", purpose}));
}

Result<void> Secret::write_file(const base::Path& path) const {
  return base::replace_file(
      path, std::string_view(reinterpret_cast<const char*>(bytes_.data()), kBytes), 0600);
}

Secret::Secret(Secret&& other) noexcept : bytes_(other.bytes_) {
  sodium_memzero(other.bytes_.data(), kBytes);
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    bytes_ = other.bytes_;
    sodium_memzero(other.bytes_.data(), kBytes);
  }
  return *this;
}

Secret::~Secret() { sodium_memzero(bytes_.data(), kBytes); }

bool Secret::equals(const Secret& other) const {
  return sodium_memcmp(bytes_.data(), other.bytes_.data(), kBytes) == 0;
}

}  // namespace headrace::wire
