// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/file_lock.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

namespace headrace::base {

namespace {

constexpr int64_t kPageBytes = 4096;
/// Between two tries. While others only take their turns, whoever has waited long must not try less
/// often than those who came just now; a holder that keeps the lock for long costs little.
Micros lock_pause(Micros waited) {
  return std::clamp<Micros>((waited - std::chrono::milliseconds(250)) / 64,
                            std::chrono::microseconds(250), std::chrono::milliseconds(5));
}

/// How long to sleep at the bell. It is rung for one who waits, who is often too late: the holder
/// itself has come back before. And it may ring between our try and our sleep: what we sleep on,
/// the first bytes of the file, mostly reads "pid " before and after. So whoever has waited long
/// looks by itself, more and more often.
Micros bell_pause(Micros waited) {
  constexpr Micros kLongest = std::chrono::milliseconds(5);
  return std::max(kLongest - waited / 8, lock_pause(waited));
}

/// Try until `deadline`, with `pause(waited)` between two tries.
template <typename Pause>
Result<bool> try_until(int fd, const Path& path, Deadline deadline, Pause pause) {
  const Micros began = system_clock().monotonic();
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return errno_error(errno, "locking " + path.string());
    }
    if (deadline.passed()) {
      return false;
    }
    pause(system_clock().monotonic() - began);
  }
  return true;
}

/// The first bytes of the file; none when it is shorter.
std::optional<uint32_t> first_word(int fd) {
  uint32_t word = 0;
  return ::pread(fd, &word, sizeof word, 0) == sizeof word ? std::optional(word) : std::nullopt;
}

}  // namespace

LockBell::LockBell(int fd) {
  void* page = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fd, 0);
  page_ = page == MAP_FAILED ? nullptr : page;
}

LockBell::~LockBell() {
  if (page_ != nullptr) {
    ::munmap(page_, kPageBytes);
  }
}

bool LockBell::doze(uint32_t text, Micros most) const {
  const timespec limit = {.tv_sec = most.count() / 1'000'000,
                          .tv_nsec = most.count() % 1'000'000 * 1000};
  // Only the kernel looks at the page: of a file that was cut short we get an error, no SIGBUS.
  return page_ != nullptr &&
         (::syscall(SYS_futex, page_, FUTEX_WAIT, text, &limit, nullptr, 0) == 0 ||
          errno == ETIMEDOUT || errno == EINTR);
}

void LockBell::ring() const {
  if (page_ != nullptr) {
    ::syscall(SYS_futex, page_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

Result<bool> lock_open_file(int fd, const Path& path, int64_t timeout_ms) {
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(timeout_ms));
  return try_until(fd, path, deadline, [&](Micros waited) {
    sleep_for(std::min<Micros>(lock_pause(waited), deadline.left()));
  });
}

Result<FileLock> FileLock::acquire(const Path& path, int64_t timeout_ms,
                                   std::string_view holder_text, unsigned mode) {
  HR_TRY(auto fd, open_file(path, O_RDWR | O_CREAT, mode));
  LockBell bell(fd.get());
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(timeout_ms));
  const auto pause = [&](Micros waited) {
    const auto word = first_word(fd.get());
    if (!word || !bell.doze(*word, std::min<Micros>(bell_pause(waited), deadline.left()))) {
      sleep_for(std::min<Micros>(lock_pause(waited), deadline.left()));
    }
  };
  HR_TRY(const bool locked, try_until(fd.get(), path, deadline, pause));
  if (!locked) {
    const std::string holder = read_file(path, 4096).value_or("an unknown process");
    return Error{Errc::busy, path.string() + " is locked by " +
                                 (holder.empty() ? "an unknown process" : holder) + "; waited " +
                                 std::to_string(timeout_ms) + " ms"};
  }
  if (!holder_text.empty()) {
    // Never empty in between, for those who wait sleep on its first bytes, and nothing of the last
    // holder's behind ours, for those who read.
    struct stat info = {};
    std::string text(holder_text);
    if (::fstat(fd.get(), &info) == 0 && info.st_size < kPageBytes) {
      text.resize(std::max(text.size(), static_cast<size_t>(info.st_size)), ' ');
    }
    HR_TRY(write_all(fd.get(), text, path));
    if (::ftruncate(fd.get(), static_cast<off_t>(holder_text.size())) != 0) {
      return errno_error(errno, "writing the holder into " + path.string());
    }
  }
  return FileLock(std::move(fd), std::move(bell));
}

FileLock::~FileLock() {
  if (fd_.valid()) {
    fd_.reset();
    bell_.ring();
  }
}

std::string holder_description(std::string_view command) {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  return "pid " + std::to_string(::getpid()) + " on " + host + " (" + std::string(command) +
         ") since " + utc_text(system_clock().wall());
}

}  // namespace headrace::base
