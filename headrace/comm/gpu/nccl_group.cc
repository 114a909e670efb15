// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/nccl_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headrace::comm {

namespace {

// NCCL has nothing to sleep on, so it is asked in growing steps.
constexpr base::Micros kAskLeast = std::chrono::microseconds(20);
constexpr base::Micros kAskMost = std::chrono::milliseconds(2);
// A group that is left in order waits that long for NCCL to have sent everything.
constexpr base::Micros kFinalizeMost = std::chrono::seconds(2);
// A thread that is longer than that in a call of NCCL or CUDA waits for kernels that never end.
constexpr base::Micros kAbortAfter = std::chrono::seconds(1);

Error aborted() {
  return {Errc::cancelled, "comm: the GPU operations of this process set were stopped"};
}

}  // namespace

Result<std::unique_ptr<NcclGroup>> NcclGroup::join(std::shared_ptr<const NcclLibrary> nccl,
                                                   std::shared_ptr<const CudaLibrary> cuda,
                                                   const NcclId& id, Place place,
                                                   const GpuPatience& patience) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(std::move(nccl), std::move(cuda), place));
  HR_TRY(group->begin(id, patience));
  return group;
}

Result<void> NcclGroup::begin(const NcclId& id, const GpuPatience& patience) {
  const DeviceScope scope(*cuda_, place_.device);
  HR_TRY(scope.outcome());
  HR_TRY(stream_, cuda_->make_stream());
  HR_TRY(scratch_, cuda_->allocate(sizeof(uint64_t)));
  NcclConfig config;
  ncclComm* comm = nullptr;
  const int result = nccl_->init_rank(&comm, place_.ranks, id, place_.rank, &config);
  comm_.store(comm);
  HR_TRY(settle(result, "ncclCommInitRankConfig", patience));
  joined_ = true;
  return {};
}

NcclGroup::~NcclGroup() {
  if (!finalize()) {
    abort();
  }
}

bool NcclGroup::finalize() {
  ncclComm* comm = comm_.load();
  if (!joined_ || comm == nullptr || !health().ok()) {
    return false;
  }
  GpuPatience patience = {base::Deadline::in(kFinalizeMost), [] { return std::nullopt; }};
  if (!settle(nccl_->finalize(comm), "ncclCommFinalize", patience).ok()) {
    return false;
  }
  comm_.store(nullptr);
  return nccl_->destroy(comm) == kNcclSuccess;
}

Result<void> NcclGroup::settle(int result, const char* call, const GpuPatience& patience) const {
  base::Micros pause = kAskLeast;
  while (true) {
    {
      base::MutexLock lock(asking_);
      ncclComm* comm = comm_.load();
      if (comm == nullptr) {
        return aborted();
      }
      if (result != kNcclSuccess && result != kNcclInProgress) {
        return nccl_->error(result, call, comm);
      }
      int state = kNcclSuccess;
      result = nccl_->async_error(comm, &state);
      if (result == kNcclSuccess && state == kNcclSuccess) {
        return {};
      }
      if (result == kNcclSuccess && state != kNcclInProgress) {
        return nccl_->error(state, call, comm);
      }
    }
    if (auto failed = patience.failure()) {
      return *std::move(failed);
    }
    if (patience.deadline.passed()) {
      return Error{Errc::timeout,
                   fmt::format("comm: {} of NCCL with {} ranks (this is rank {} of them, on "
                               "cuda:{}) did not end in time; some rank has not called it, or NCCL "
                               "cannot reach it: NCCL_DEBUG=INFO makes NCCL tell more",
                               call, place_.ranks, place_.rank, place_.device)};
    }
    base::sleep_for(pause);
    pause = std::min(2 * pause, kAskMost);
  }
}

Result<void> NcclGroup::enqueue(std::span<const Call> calls, const GpuPatience& patience) {
  base::MutexLock lock(calls_);
  const NcclTarget target = {.comm = comm_.load(),
                             .stream = stream_,
                             .rank = place_.rank,
                             .ranks = place_.ranks,
                             .scratch = scratch_};
  if (target.comm == nullptr) {
    return aborted();
  }
  if (const int begun = nccl_->group_start(); begun != kNcclSuccess) {
    return nccl_->error(begun, "ncclGroupStart", target.comm);
  }
  int failed = kNcclSuccess;
  Kind kind = Kind::barrier;
  for (const Call& call : calls) {
    kind = call.kind;
    failed = nccl_enqueue(*nccl_, call, target);
    if (failed != kNcclSuccess) {
      break;
    }
  }
  const int ended = nccl_->group_end();  // also after a failure, or the thread stays in the group
  if (failed != kNcclSuccess) {
    return nccl_->error(failed, kind_name(kind), comm_.load());
  }
  return settle(ended, "ncclGroupEnd", patience);
}

Result<void> NcclGroup::health() const {
  base::MutexLock lock(asking_);
  ncclComm* comm = comm_.load();
  if (comm == nullptr) {
    return aborted();
  }
  int state = kNcclSuccess;
  const int result = nccl_->async_error(comm, &state);
  if (result != kNcclSuccess || (state != kNcclSuccess && state != kNcclInProgress)) {
    return nccl_->error(result != kNcclSuccess ? result : state, "an operation", comm);
  }
  return {};
}

void NcclGroup::abort() HR_NO_THREAD_SAFETY_ANALYSIS {
  const auto limit = base::Deadline::in(kAbortAfter);
  bool locked = calls_.try_lock();
  while (!locked && !limit.passed()) {
    base::sleep_for(kAskMost);
    locked = calls_.try_lock();
  }
  // Unlocked: a launch waits for kernels that wait for a rank that is gone; this is what ends them.
  ncclComm* comm = nullptr;
  {
    base::MutexLock lock(asking_);
    comm = comm_.exchange(nullptr);
  }
  if (comm != nullptr) {
    static_cast<void>(nccl_->abort(comm));
  }
  if (locked) {
    calls_.unlock();
  }
}

}  // namespace headrace::comm
