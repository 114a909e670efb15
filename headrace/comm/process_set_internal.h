// SPDX-License-Identifier: Apache-2.0
// What a ProcessSet is made of.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/comm/forks_internal.h"
#include "headrace/comm/process_set.h"
#include "headrace/comm/progress_internal.h"
#include "headrace/comm/transport/network.h"

namespace headrace::comm {

struct ProcessSet::State {
  ForkMark mark;
  std::shared_ptr<SetQueue> queue;
  std::shared_ptr<Progress> progress;  // outlives the context's own pointer while sets exist
  std::shared_ptr<Network> network;    // which the queue's transport uses; may be null
  uint64_t id = 0;                     // the same on all ranks, of this set alone
  uint64_t splits = 0;                 // sets that were made of it
  std::vector<int> world_ranks;
  int rank = 0;
  SpinBudget spin;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  Wire16 wire16 = Wire16::none;

  Work submit(Call&& call, const Options& options);
  /// An all_reduce that nobody names, on this thread, which has locked `driving`.
  Work reduce_now(const QuickReduce& what, const Options& options) HR_RELEASE(queue->driving());
  /// Any call, likewise; `announced`: the number under which try_at_once() has begun it.
  Work drive(Call&& call, const Options& options, std::optional<uint64_t> announced)
      HR_RELEASE(queue->driving());
  std::shared_ptr<WorkState> made(Call&& call, const Options& options) const;
  /// Unlock, and see to what others have left to do.
  void stop_driving() HR_RELEASE(queue->driving());
};

}  // namespace headrace::comm
