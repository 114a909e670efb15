// SPDX-License-Identifier: Apache-2.0
// The operations of one process set that wait for their turn, and whoever drives the first of them.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/comm/algo/shm_quick_internal.h"
#include "headrace/comm/patience.h"
#include "headrace/comm/set_observer_internal.h"
#include "headrace/comm/set_transport_internal.h"
#include "headrace/comm/work_internal.h"

namespace headrace::comm {

class ShmTransport;

/// A mutex that is held for long by few, whom others rather leave alone than wait for.
class HR_CAPABILITY("mutex") TryMutex {
 public:
  bool try_lock() HR_THREAD_ATTRIBUTE(try_acquire_capability(true)) {
    return !held_.exchange(true, std::memory_order_acquire);
  }
  /// For when the holder is known to end soon.
  void lock() HR_ACQUIRE() HR_NO_THREAD_SAFETY_ANALYSIS {
    while (!try_lock()) {
      ::sched_yield();
    }
  }
  /// Ordered before all that the thread reads after it, so that who unlocks can look whether
  /// somebody has failed to lock in vain.
  void unlock() HR_RELEASE() { held_.exchange(false, std::memory_order_seq_cst); }

 private:
  std::atomic<bool> held_ = false;
};

/// Operations start in the order of submission, one after the other. Whoever holds `driving` may
/// step them: the caller of a blocking operation, or the progress thread of the context.
class SetQueue {
 public:
  SetQueue(std::unique_ptr<SetTransport> transport, uint64_t id, std::vector<int> world_ranks,
           int rank, std::shared_ptr<SetObserver> observer)
      : transport_(std::move(transport)),
        id_(id),
        world_ranks_(std::move(world_ranks)),
        rank_(rank),
        observer_(std::move(observer)) {}

  uint64_t id() const { return id_; }

  SetObserver& observer() const { return *observer_; }
  bool closed(int rank) const { return transport_->closed(rank); }
  std::span<const int> world_ranks() const { return world_ranks_; }
  /// How messages call a rank of the set: by its number in the world.
  int told(int rank) const { return rank < 0 ? rank : world_ranks_[static_cast<size_t>(rank)]; }

  /// Number `work` and put it at the end. False: the set has failed, `work` is done with its error.
  bool push(const std::shared_ptr<WorkState>& work) HR_EXCLUDES(mutex_);
  /// Rank that the operation under way waits for, or did last.
  int waits_for() const { return waits_for_.load(std::memory_order_relaxed); }
  /// Nothing is to be done that nobody drives yet.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

  TryMutex& driving() HR_THREAD_ATTRIBUTE(lock_returned(driving_)) { return driving_; }
  /// Step the first operation; `done` when there is none. Ended operations are completed.
  Step step() HR_REQUIRES(driving_);
  /// Before sleeping: end what is over its deadline, or whose set has failed elsewhere.
  void look_for_failure() HR_REQUIRES(driving_);
  /// Before sleeping for it, and after: the operation under way waits for another rank.
  void note_stuck() HR_REQUIRES(driving_);
  /// Nothing is under way here, and another rank is known to be in the next operation.
  bool next_begun() HR_REQUIRES(driving_) { return idle() && transport_->next_begun(); }
  /// Before sleeping at the node's bell: see that it rings when this set can go on.
  void ring_bell_once() HR_REQUIRES(driving_) { transport_->ring_bell_once(); }
  /// Whom the operation under way waits for was last seen on this core.
  bool waits_on_core() const HR_REQUIRES(driving_);
  /// Drive on this thread until `work` is done or `deadline` has passed.
  void run(const WorkState& work, base::Deadline deadline, SpinBudget spin) HR_REQUIRES(driving_);
  /// Do a call in one piece on this thread, without a Work, if nothing is before it and the others
  /// are there: the lucky case costs no allocation, no clock and no lock. Else not begun, or begun
  /// and `late` is what it has become; run() does the rest. `announced`: as try_at_once() has
  /// begun.
  enum class Now : uint8_t { not_begun, begun, ended };
  Now try_now(Call& call, SpinBudget spin, std::chrono::microseconds timeout, bool announced,
              uint64_t& sequence, std::shared_ptr<WorkState>& late) HR_REQUIRES(driving_)
      HR_EXCLUDES(mutex_);
  /// The luckiest case, see try_quick(). `begun`: try_now() must be next, with that call.
  Now try_at_once(const QuickReduce& what, SpinBudget spin, uint64_t& sequence)
      HR_REQUIRES(driving_);
  /// After one of them has ended one and `driving` is unlocked, which is the fence: wake who waits.
  void ring_ended() const;
  /// Refuse new operations and end all there are, with the first error given; tell the other ranks.
  /// What is being driven is ended by its driver, for only that one knows when it no longer touches
  /// the buffers.
  void fail(const Error& error) HR_EXCLUDES(mutex_, driving_);
  /// Call this with the error once the set has failed. Before it is used.
  void on_failure(std::function<void(const Error&)> then) { on_failure_ = std::move(then); }
  /// What the set has failed with, here or on another rank.
  std::optional<Error> failed() HR_EXCLUDES(mutex_, driving_);
  /// fail(), for what another rank has told of.
  void hear(const Error& error) HR_EXCLUDES(mutex_, driving_);
  /// Ask the other ranks to begin the next operation as well.
  void call_others() HR_EXCLUDES(mutex_);
  /// Another rank has called to an operation that this rank has not submitted.
  bool called() HR_EXCLUDES(driving_);
  /// Sleep until that, until wake(), a failure or `most`, unless `stop()` once this thread is seen
  /// to sleep; `stop` must not look at called().
  void wait_called(base::Micros most, const std::function<bool()>& stop) HR_EXCLUDES(driving_);
  /// End wait_called() of this rank.
  void wake() const { transport_->wake_idle(); }
  /// What the set has failed with, here or on another rank; a rank that has closed it counts.
  std::optional<Error> failure() HR_EXCLUDES(mutex_);

  /// Take part no longer: others that wait for this rank are told. What is under way is ended.
  void close() HR_EXCLUDES(mutex_, driving_);

 private:
  uint64_t take_number() HR_REQUIRES(driving_);
  /// The next call may be done on the caller's thread, over shared memory in one piece.
  ShmTransport* takes_now(std::optional<size_t> bytes) HR_REQUIRES(driving_);
  std::shared_ptr<WorkState> first() HR_EXCLUDES(mutex_);
  std::string absent_text() const HR_REQUIRES(driving_);
  std::optional<Error> failure_of_current() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);
  uint64_t submitted() const {
    return queued_.load(std::memory_order_relaxed) + direct_.load(std::memory_order_relaxed);
  }
  void end_what_can() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);
  void end_first() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);
  void set_failed(const Error& error) HR_EXCLUDES(mutex_);
  void end_all() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);

  const std::unique_ptr<SetTransport> transport_;
  const uint64_t id_;
  const std::vector<int> world_ranks_;
  const int rank_;
  const std::shared_ptr<SetObserver> observer_;
  std::function<void(const Error&)> on_failure_;
  std::atomic<uint32_t> pending_ = 0;  // size of queue_
  std::atomic<int> waits_for_ = -1;    // by the operation under way, when a thread last slept
  std::atomic<bool> failing_ = false;  // failed_ is set
  // Operations so far are the sum: what went through the queue, and what did not.
  std::atomic<uint64_t> queued_ = 0;  // changed under mutex_
  std::atomic<uint64_t> direct_ = 0;  // changed under driving_

  TryMutex driving_;  // before mutex_
  std::shared_ptr<WorkState> current_ HR_GUARDED_BY(driving_);
  std::vector<std::byte> scratch_ HR_GUARDED_BY(driving_);  // of operations in 16 bits
  std::unique_ptr<Operation> operation_ HR_GUARDED_BY(driving_);
  int closed_seen_ HR_GUARDED_BY(driving_) = -1;  // a closed rank that the operation waited for

  base::Mutex mutex_;  // leaf
  std::deque<std::shared_ptr<WorkState>> queue_ HR_GUARDED_BY(mutex_);
  std::optional<Error> failed_ HR_GUARDED_BY(mutex_);
};

}  // namespace headrace::comm
