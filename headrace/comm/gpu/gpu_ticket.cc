// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/gpu_ticket.h"

#include <utility>

namespace headrace::comm {

namespace {

// Whoever enqueues or ends it wakes us; the bound is there so that no wait is without one.
constexpr base::Micros kLookMost = std::chrono::milliseconds(50);

}  // namespace

EventPool::~EventPool() {
  base::MutexLock lock(mutex_);
  for (const CudaEvent one : free_) {
    cuda_->free_event(one);
  }
}

Result<CudaEvent> EventPool::take() {
  {
    base::MutexLock lock(mutex_);
    if (!free_.empty()) {
      const CudaEvent event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  return cuda_->make_event();
}

void EventPool::give(CudaEvent event) {
  if (event != nullptr) {
    base::MutexLock lock(mutex_);
    free_.push_back(event);
  }
}

GpuTicket::~GpuTicket() {
  base::MutexLock lock(mutex_);
  if (end_ != nullptr) {  // else there may be no pool
    pool_->give(end_);
  }
}

Result<void> GpuTicket::enqueued(CudaStream stream) {
  HR_TRY(const CudaEvent event, pool_->take());
  const auto recorded = pool_->cuda().record(event, stream);
  if (!recorded.ok()) {
    pool_->give(event);
    return recorded;
  }
  {
    base::MutexLock lock(mutex_);
    end_ = event;
  }
  wake();
  return {};
}

Result<bool> GpuTicket::passed() {
  base::MutexLock lock(mutex_);
  if (end_ == nullptr) {
    return false;
  }
  return pool_->cuda().passed(end_);
}

Result<void> GpuTicket::hold(CudaStream stream, const WorkState& work) {
  base::MutexLock lock(mutex_);
  while (!work.done()) {
    const auto ready = [&]()
                           HR_NO_THREAD_SAFETY_ANALYSIS { return end_ != nullptr || work.done(); };
    static_cast<void>(changed_.wait_for(mutex_, kLookMost, ready));
    if (end_ != nullptr && !work.done()) {
      return pool_->cuda().wait(stream, end_);
    }
  }
  return work.outcome_when_done();
}

Result<void> Work::wait_on_stream(uintptr_t stream) const {
  if (state_->gpu == nullptr) {
    return wait();
  }
  return state_->gpu->hold(reinterpret_cast<CudaStream>(stream), *state_);
}

}  // namespace headrace::comm
