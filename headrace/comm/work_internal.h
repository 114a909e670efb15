// SPDX-License-Identifier: Apache-2.0
// What a Work points at.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/thread.h"
#include "headrace/comm/algo/call.h"
#include "headrace/comm/forks_internal.h"
#include "headrace/comm/work.h"

namespace headrace::comm {

class GpuTicket;

/// `status` is what waiters sleep on: 0 under way, 1 done, 2 under way and somebody may sleep.
struct WorkState {
  Call call;
  base::Deadline deadline = base::Deadline::never();
  uint64_t sequence = 0;
  std::shared_ptr<GpuTicket> gpu = {};  // of an operation on a GPU

  bool done() const { return status.load(std::memory_order_acquire) == 1; }
  /// End it; the first outcome counts.
  void complete(Result<void> how);
  const Result<void>& outcome_when_done() const HR_NO_THREAD_SAFETY_ANALYSIS { return outcome; }

  const ForkMark mark;
  std::atomic<uint32_t> status = 0;
  std::atomic<int> source = -1;
  base::Mutex mutex;
  Result<void> outcome HR_GUARDED_BY(mutex);  // never changes once status is 1
  std::vector<std::function<void(const Result<void>&)>> callbacks HR_GUARDED_BY(mutex);
};

}  // namespace headrace::comm
