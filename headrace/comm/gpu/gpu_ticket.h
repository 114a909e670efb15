// SPDX-License-Identifier: Apache-2.0
// What a Work on a GPU has beside its state: the event that tells of its end.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/comm/gpu/cuda_library.h"
#include "headrace/comm/work_internal.h"

namespace headrace::comm {

/// Events to use again: destroying one may wait for the device, which may wait for a dead rank.
class EventPool {
 public:
  explicit EventPool(std::shared_ptr<const CudaLibrary> cuda) : cuda_(std::move(cuda)) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  const CudaLibrary& cuda() const { return *cuda_; }
  /// Of the current device.
  Result<CudaEvent> take() HR_EXCLUDES(mutex_);
  void give(CudaEvent event) HR_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<const CudaLibrary> cuda_;
  base::Mutex mutex_;  // leaf
  std::vector<CudaEvent> free_ HR_GUARDED_BY(mutex_);
};

/// Thread-safe.
class GpuTicket {
 public:
  /// `pool` is null where there is no CUDA: the operation is never enqueued.
  explicit GpuTicket(std::shared_ptr<EventPool> pool) : pool_(std::move(pool)) {}
  ~GpuTicket();
  GpuTicket(const GpuTicket&) = delete;
  GpuTicket& operator=(const GpuTicket&) = delete;

  /// The operation is on `stream` now: its end is what comes next there.
  Result<void> enqueued(CudaStream stream) HR_EXCLUDES(mutex_);
  /// The device has ended it; false while it is not even enqueued.
  Result<bool> passed() HR_EXCLUDES(mutex_);
  /// What is put on `stream` from now on begins after the operation; see Work::wait_on_stream.
  Result<void> hold(CudaStream stream, const WorkState& work) HR_EXCLUDES(mutex_);
  /// Those that wait in hold() look again.
  void wake() { changed_.notify_all(); }

 private:
  const std::shared_ptr<EventPool> pool_;
  base::Mutex mutex_;  // before that of the pool
  base::CondVar changed_;
  CudaEvent end_ HR_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace headrace::comm
