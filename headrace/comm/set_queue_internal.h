// SPDX-License-Identifier: Apache-2.0
// The operations of one process set that wait for their turn, and whoever drives the first of them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/comm/set_transport_internal.h"
#include "headrace/comm/work_internal.h"

namespace headrace::comm {

/// Operations start in the order of submission, one after the other. Whoever holds `driving` may
/// step them: the caller of a blocking operation, or the progress thread of the context.
class SetQueue {
 public:
  SetQueue(std::unique_ptr<SetTransport> transport, uint64_t id, std::vector<int> world_ranks,
           int rank)
      : transport_(std::move(transport)),
        id_(id),
        world_ranks_(std::move(world_ranks)),
        rank_(rank) {}

  uint64_t id() const { return id_; }

  bool closed(int rank) const { return transport_->closed(rank); }
  std::span<const int> world_ranks() const { return world_ranks_; }

  /// Number `work` and put it at the end. False: the set has failed, `work` is done with its error.
  bool push(const std::shared_ptr<WorkState>& work) HR_EXCLUDES(mutex_);
  /// Something is to be done that nobody drives yet.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

  base::Mutex& driving() HR_THREAD_ATTRIBUTE(lock_returned(driving_)) { return driving_; }
  /// Step the first operation; `done` when there is none. Ended operations are completed.
  Step step() HR_REQUIRES(driving_);
  /// Before sleeping: end what is over its deadline, or whose set has failed elsewhere.
  void look_for_failure() HR_REQUIRES(driving_);
  /// Nothing is under way here, and another rank is known to be in the next operation.
  bool next_begun() HR_REQUIRES(driving_) { return idle() && transport_->next_begun(); }
  /// Before sleeping at the node's bell: see that it rings when this set can go on.
  void ring_bell_once() HR_REQUIRES(driving_) { transport_->ring_bell_once(); }
  /// Drive on this thread until `work` is done or `deadline` has passed.
  void run(const WorkState& work, base::Deadline deadline, SpinBudget spin) HR_REQUIRES(driving_);
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
  /// Take part no longer: others that wait for this rank are told. What is under way is ended.
  void close() HR_EXCLUDES(mutex_, driving_);

 private:
  std::shared_ptr<WorkState> first() HR_EXCLUDES(mutex_);
  std::optional<Error> failure_of_current() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);
  void end_first() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);
  void set_failed(const Error& error) HR_EXCLUDES(mutex_);
  void end_all() HR_REQUIRES(driving_) HR_EXCLUDES(mutex_);

  const std::unique_ptr<SetTransport> transport_;
  const uint64_t id_;
  const std::vector<int> world_ranks_;
  const int rank_;
  std::function<void(const Error&)> on_failure_;
  std::atomic<uint32_t> pending_ = 0;  // size of queue_
  std::atomic<bool> failing_ = false;  // failed_ is set

  base::Mutex driving_;  // before mutex_
  std::shared_ptr<WorkState> current_ HR_GUARDED_BY(driving_);
  std::unique_ptr<Operation> operation_ HR_GUARDED_BY(driving_);
  int closed_seen_ HR_GUARDED_BY(driving_) = -1;  // a closed rank that the operation waited for

  base::Mutex mutex_;  // leaf
  std::deque<std::shared_ptr<WorkState>> queue_ HR_GUARDED_BY(mutex_);
  uint64_t submitted_ HR_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failed_ HR_GUARDED_BY(mutex_);
};

}  // namespace headrace::comm
