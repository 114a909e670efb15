// SPDX-License-Identifier: Apache-2.0
// One writer at a time: changes of all threads gather into transactions under writer.lock.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/board.h"
#include "headrace/base/clock.h"
#include "headrace/base/thread.h"
#include "headrace/registry/database.h"

namespace headrace::registry {

/// Work inside a transaction; an Error undoes this change alone.
using Change = std::function<Result<void>(Database*)>;

/// Thread-safe. Writers of other processes wait at the lock file, never in SQLite's busy loop:
/// measured 16 processes, worst wait 72-98 ms against 534-1332 ms. The file also stays locked when
/// some other code in this process closes a descriptor of the database, which POSIX locks do not.
class Writer {
 public:
  struct Options {
    base::Path database;
    base::Path lock_file;
    bool sync_full = true;
    base::Micros lock_timeout = std::chrono::seconds(30);
    std::string command;
    base::Histogram commit_seconds = {};
    base::Histogram lock_wait_seconds = {};
  };
  explicit Writer(Options options);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Run `change` in a transaction, possibly together with those of other threads; durable on
  /// return. `busy` when the lock was not free in time.
  Result<void> run(const Change& change) HR_NO_THREAD_SAFETY_ANALYSIS;

  /// Hold the lock, without a transaction, during `body` (gc, migration). The connection is this
  /// writer's.
  Result<void> exclusive(const std::function<Result<void>(Database*)>& body);

 private:
  struct Request {
    const Change* change;
    base::Deadline deadline;
    Result<void> outcome;                // the leader's while it works
    std::optional<Result<void>> result;  // guarded by mu_: the change is over
    bool taken = false;                  // guarded by mu_: the leader has it
  };
  void lead(Request* own);
  Result<void> commit_batch(const Request& own, std::vector<Request*>* batch);
  void run_one(Request* request);
  Result<Database*> connection();
  std::vector<Request*> take_batch(size_t already);

  Options options_;
  const int64_t pid_;
  base::Mutex mu_;  // leaf: nothing is locked while it is held
  base::CondVar changed_;
  std::deque<Request*> waiting_ HR_GUARDED_BY(mu_);
  bool led_ HR_GUARDED_BY(mu_) = false;  // some thread writes; what follows is that thread's alone
  std::unique_ptr<Database> database_;
};

}  // namespace headrace::registry
