// SPDX-License-Identifier: Apache-2.0
// Locks that processes hold on files, with the name of the holder inside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"

namespace headrace::base {

/// Take an exclusive flock of an open file within `timeout_ms` (0 = do not wait); false when
/// somebody else holds it still. `path` is for messages.
HR_API Result<bool> lock_open_file(int fd, const Path& path, int64_t timeout_ms);

/// Where the processes that wait for one lock file sleep, and are woken from: a futex on the file's
/// first page. It only shortens the wait. The flock alone says whose the lock is, and every sleep
/// ends by itself, so a holder that dies without a word, or one on another host, costs
/// milliseconds.
class HR_API LockBell {
 public:
  LockBell() = default;
  /// Silent where the file cannot be mapped.
  explicit LockBell(int fd);
  LockBell(LockBell&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  LockBell& operator=(LockBell&& other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  LockBell(const LockBell&) = delete;
  LockBell& operator=(const LockBell&) = delete;
  ~LockBell();

  /// Sleep until rung or for `most`. False at once where no bell hangs: an empty file, or one whose
  /// first bytes are no longer `text`.
  bool doze(uint32_t text, Micros most) const;
  /// Wake the one who has slept longest.
  void ring() const;

 private:
  void* page_ = nullptr;
};

/// Hold an exclusive flock on a file for the object's life.
class HR_API FileLock {
 public:
  /// Wait up to `timeout_ms` (0 = do not wait). `busy` when somebody else holds it; the message
  /// carries the text that the holder wrote into the file. After success the file's text is
  /// `holder_text`, where that is not empty. A file that is not there yet is made with `mode`.
  static Result<FileLock> acquire(const Path& path, int64_t timeout_ms,
                                  std::string_view holder_text = {}, unsigned mode = 0644);
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(Fd fd, LockBell bell) : fd_(std::move(fd)), bell_(std::move(bell)) {}
  Fd fd_;
  LockBell bell_;
};

/// "pid 123 on host a (headrace flow run) since 2026-01-01T00:00:00Z": what lock files carry.
HR_API std::string holder_description(std::string_view command);

}  // namespace headrace::base
