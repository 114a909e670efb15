// SPDX-License-Identifier: Apache-2.0
// The thread that carries on what nobody waits for in a call.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/comm/set_queue_internal.h"
#include "headrace/comm/transport/node_bells.h"

namespace headrace::comm {

/// Steps the queues of all process sets of a context. Sleeps without a tick while there is nothing
/// to do: on a word of its own without work, at the node's bell with work that waits for others.
class Progress {
 public:
  Progress(NodeBells bells, SpinBudget spin);
  ~Progress();

  void add(std::shared_ptr<SetQueue> queue) HR_EXCLUDES(mutex_);
  void remove(const SetQueue* queue) HR_EXCLUDES(mutex_);
  /// There is work that nobody drives.
  void notify();
  /// Bring the counters of all sets up to date.
  void flush_metrics() HR_EXCLUDES(mutex_);
  /// End everything under way with `error`.
  void fail_all(const Error& error) HR_EXCLUDES(mutex_) { fail_sets_of(-1, error); }
  /// The same for the sets that this rank of the world is in; -1: all.
  void fail_sets_of(int world_rank, const Error& error) HR_EXCLUDES(mutex_);
  /// The same for one set, as another rank has told of it.
  void fail_set(uint64_t id, const Error& error) HR_EXCLUDES(mutex_);

 private:
  enum class Round : uint8_t { idle, stuck, stuck_on_core, moved };
  void run();
  std::vector<std::shared_ptr<SetQueue>> queues() HR_EXCLUDES(mutex_);
  Round round(bool before_sleep) HR_EXCLUDES(mutex_);

  NodeBells bells_;
  SpinBudget spin_;
  std::atomic<uint32_t> notices_ = 0;  // the thread sleeps on it
  std::atomic<bool> at_bell_ = false;
  std::atomic<bool> stop_ = false;
  base::Mutex mutex_;
  std::vector<std::shared_ptr<SetQueue>> queues_ HR_GUARDED_BY(mutex_);
  // What others have told of sets that are not there: a rank may be done with making one, and fail
  // in it, while this one is still about it. Bounded.
  std::map<uint64_t, Error> early_ HR_GUARDED_BY(mutex_);
  std::deque<uint64_t> early_order_ HR_GUARDED_BY(mutex_);
  std::map<int, Error> dead_ HR_GUARDED_BY(mutex_);  // ranks of the world, for sets yet to come
  base::Thread thread_;                              // last: stops before what it uses goes
};

}  // namespace headrace::comm
