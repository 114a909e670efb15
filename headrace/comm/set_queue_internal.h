// SPDX-License-Identifier: Apache-2.0
// The operations of one process set that wait for their turn, and whoever drives the first of them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "headrace/base/shm_segment.h"
#include "headrace/base/thread.h"
#include "headrace/comm/algo/shm_operation.h"
#include "headrace/comm/work_internal.h"

namespace headrace::comm {

/// Operations start in the order of submission, one after the other. Whoever holds `driving` may
/// step them: the caller of a blocking operation, or the progress thread of the context.
class SetQueue {
 public:
  SetQueue(base::ShmMapping memory, ShmChannel channel)
      : memory_(std::move(memory)), channel_(std::move(channel)) {}

  bool closed(int rank) const {
    return channel_.progress(rank).closed.load(std::memory_order_acquire) != 0;
  }
  /// The world's rank, its place on the node, is one of this set.
  bool has_place(int place) const { return channel_.has_place(place); }

  /// Number `work` and put it at the end. False: the set has failed, `work` is done with its error.
  bool push(const std::shared_ptr<WorkState>& work) HR_EXCLUDES(mutex_);
  /// Something is to be done that nobody drives yet.
  int waits_for() const { return waits_for_.load(std::memory_order_relaxed); }
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

  base::Mutex& driving() HR_THREAD_ATTRIBUTE(lock_returned(driving_)) { return driving_; }
  /// Step the first operation; `done` when there is none. Ended operations are completed.
  Step step() HR_REQUIRES(driving_);
  /// Before sleeping: end what is over its deadline, or whose set has failed elsewhere.
  void look_for_failure() HR_REQUIRES(driving_);
  /// Drive on this thread until `work` is done or `deadline` has passed.
  void run(const WorkState& work, base::Deadline deadline, SpinBudget spin) HR_REQUIRES(driving_);
  /// Refuse new operations and end all there are, with the first error given; tell the other ranks.
  /// What is being driven is ended by its driver, for only that one knows when it no longer touches
  /// the buffers.
  void fail(const Error& error) HR_EXCLUDES(mutex_, driving_);
  /// Ask the other ranks to begin the next operation as well.
  void call_others() HR_EXCLUDES(mutex_);
  /// Another rank has called to an operation that this rank has not submitted.
  bool called() const;
  /// Sleep until that, until wake(), a failure or `most`, unless `stop()` once this thread is seen
  /// to sleep.
  void wait_called(base::Micros most, const std::function<bool()>& stop);
  /// End wait_called() of this rank.
  void wake() const { ring_bell(channel_.call_bell(channel_.rank()), true); }
  /// What the set has failed with, here or on another rank; a rank that has closed it counts.
  std::optional<Error> failure() HR_EXCLUDES(mutex_);

  /// Take part no longer: others that wait for this rank are told. What is under way is ended.
  void close() HR_EXCLUDES(mutex_, driving_);

 private:
  std::shared_ptr<WorkState> first() HR_EXCLUDES(mutex_);
  std::optional<Error> failure_of_current() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);
  void ring_calls() const;
  void end_first() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);
  void set_failed(const Error& error) HR_EXCLUDES(mutex_);
  void end_all() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);

  base::ShmMapping memory_;
  ShmChannel channel_;
  std::atomic<uint32_t> pending_ = 0;    // size of queue_
  std::atomic<int> waits_for_ = -1;      // by the operation under way, when a thread last slept
  std::atomic<bool> failing_ = false;    // failed_ is set
  std::atomic<uint64_t> submitted_ = 0;  // changed under mutex_

  base::Mutex driving_;  // before mutex_
  std::shared_ptr<WorkState> current_ HR_GUARDED_BY(driving_);
  std::unique_ptr<ShmOperation> operation_ HR_GUARDED_BY(driving_);
  int closed_seen_ HR_GUARDED_BY(driving_) = -1;  // a closed rank that the operation waited for
  ShmSetState state_ HR_GUARDED_BY(driving_);

  base::Mutex mutex_;  // leaf
  std::deque<std::shared_ptr<WorkState>> queue_ HR_GUARDED_BY(mutex_);
  std::optional<Error> failed_ HR_GUARDED_BY(mutex_);
};

}  // namespace headrace::comm
