// SPDX-License-Identifier: Apache-2.0
// One group of ranks in NCCL, with a stream of its own, that never waits without a bound.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "headrace/base/clock.h"
#include "headrace/base/thread.h"
#include "headrace/comm/gpu/nccl_call.h"

namespace headrace::comm {

/// Until when to wait, and what ends the wait before: what the process set has failed with.
struct GpuPatience {
  base::Deadline deadline = base::Deadline::never();
  std::function<std::optional<Error>()> failure;
};

/// Thread-safe. NCCL's calls are made without blocking (its own option), and one that is under way
/// is asked for: so the death of a rank ends the wait, and not NCCL's own time limits.
class NcclGroup {
 public:
  struct Place {
    int rank = 0;
    int ranks = 1;
    int device = 0;
  };
  /// All ranks together. `timeout` when some do not come; the failure of the set.
  static Result<std::unique_ptr<NcclGroup>> join(std::shared_ptr<const NcclLibrary> nccl,
                                                 std::shared_ptr<const CudaLibrary> cuda,
                                                 const NcclId& id, Place place,
                                                 const GpuPatience& patience);
  /// Everything enqueued has ended, or it is aborted.
  ~NcclGroup();

  CudaStream stream() const { return stream_; }
  int device() const { return place_.device; }

  /// Put `calls` on stream() as one; they begin together. Returns when they are there.
  Result<void> enqueue(std::span<const Call> calls, const GpuPatience& patience);

  /// What NCCL has found wrong since.
  Result<void> health() const;

  /// Stop what runs on the device. Nothing can be enqueued afterwards.
  void abort();

 private:
  NcclGroup(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<const CudaLibrary> cuda,
            Place place)
      : nccl_(std::move(nccl)), cuda_(std::move(cuda)), place_(place) {}

  Result<void> settle(int result, const char* call, const GpuPatience& patience) const;
  Result<void> begin(const NcclId& id, const GpuPatience& patience);
  bool finalize();

  const std::shared_ptr<const NcclLibrary> nccl_;
  const std::shared_ptr<const CudaLibrary> cuda_;
  const Place place_;
  CudaStream stream_ = nullptr;
  void* scratch_ = nullptr;
  bool joined_ = false;
  base::Mutex calls_;  // NCCL wants one call of a group at a time
  mutable base::Mutex
      asking_;  // leaf; held over a question to NCCL, which abort() must not free it under
  std::atomic<ncclComm*> comm_ = nullptr;
};

}  // namespace headrace::comm
