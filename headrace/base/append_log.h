// SPDX-License-Identifier: Apache-2.0
// A durable append-only file of checked records with group commit: the ground under the journal and
// bundle parts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "headrace/base/board.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::base {

/// Format (`docs/formats/append-log.md`): magic "HRLOG001", then records {u32 length, u8 type, 3
/// zero bytes, u64 XXH3-64 of type byte and payload seeded by the record's file offset, payload},
/// little-endian.
struct AppendLogOptions {
  std::chrono::microseconds commit_interval{5000};  ///< fdatasync at most this often ...
  int64_t commit_records = 64;  ///< ... or once this many records wait, whichever comes first
  bool sync = true;             ///< false: never fdatasync (for benchmarks)
  int64_t pending_bytes_max = int64_t{64} << 20;  ///< `append` waits for the disk above this
  /// `open` waits so long for the file's lock: a process that was killed holds it until it is gone.
  std::chrono::milliseconds lock_wait{0};
};

/// Longest payload of one record; `append` refuses more (`invalid_argument`).
inline constexpr int64_t kAppendLogPayloadMax = int64_t{64} << 20;

/// Append records; `append` returns at once with a sequence number, `committed()` tells up to which
/// one the disk has them. One writer process: the file is held under flock (`busy` names the
/// holder). Thread-safe.
class HR_API AppendLog {
 public:
  /// Open or create; replays every whole record into `on_record(type, payload)`, then cuts a torn
  /// tail. A record that is damaged before the end (valid records follow it) is `corrupt`, naming
  /// its offset; nothing is cut then.
  static Result<AppendLog> open(
      const Path& path, const AppendLogOptions& options,
      const std::function<Result<void>(uint8_t type, std::string_view payload)>& on_record);
  AppendLog(AppendLog&&) noexcept;
  AppendLog& operator=(AppendLog&&) noexcept;
  ~AppendLog();  ///< commits what is appended

  /// Queue one record; returns its sequence number (1, 2, ... since `open`). Fails with the first
  /// error of the disk, for ever after (a log that lost a record must not go on).
  Result<uint64_t> append(uint8_t type, std::string_view payload);
  /// Give everything appended so far to the kernel, without waiting for the disk: afterwards it
  /// outlives this process, though not yet the machine. For writers that must not act on a record
  /// which their own death would undo.
  Result<void> flush();
  /// Highest sequence number that is durable.
  uint64_t committed() const;
  /// Wait until `sequence` is durable or the disk failed or `timeout` passed.
  Result<void> wait_committed(uint64_t sequence,
                              std::chrono::milliseconds timeout = std::chrono::seconds(60));
  /// A descriptor that becomes readable when `committed()` grew (eventfd; read it to clear), for
  /// event loops.
  int commit_event_fd() const;
  /// From now on take the time of every commit (the write and the fdatasync).
  void time_commits(Histogram seconds);
  /// First disk error, if any.
  Result<void> status() const;

  /// Read-only replay of a log that another process may be writing; stops at a torn tail.
  static Result<void> read(
      const Path& path,
      const std::function<Result<void>(uint8_t type, std::string_view payload)>& on_record);

 private:
  struct State;
  explicit AppendLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::base
