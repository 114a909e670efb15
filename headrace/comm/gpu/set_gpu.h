// SPDX-License-Identifier: Apache-2.0
// The operations of one process set on tensors in the memory of GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/comm/gpu/gpu_setup.h"

namespace headrace::comm {

class GpuLink;

/// Thread-safe. Collectives are enqueued in the order of submission; all ranks submit them in the
/// same order, as they do those of the CPU.
///
/// The first collective meets all ranks of the set and makes NCCL's group; the first message of a
/// direction between two ranks makes one for it. A thread looks at what is under way: it ends works
/// whose event has passed, and all of them when a rank dies, NCCL fails or time is over.
class SetGpu {
 public:
  SetGpu(SetDoor door, GpuSettings settings);
  /// What is under way may end for two seconds, then it is stopped.
  ~SetGpu();
  SetGpu(const SetGpu&) = delete;
  SetGpu& operator=(const SetGpu&) = delete;

  /// A collective, or a barrier. Enqueued when this returns, unless it has failed; through host
  /// memory it is done.
  Work submit(Call&& call, base::Deadline deadline);
  /// send or recv; `call.root` is the other rank. Enqueued by a thread of its direction.
  Work message(Call&& call, int tag, base::Deadline deadline);

  /// Collectives that this thread submits until end_group() begin together, as one; they have one
  /// Work, which end_group() returns too. It is enqueued by end_group().
  void begin_group(base::Deadline deadline);
  Work end_group();

 private:
  friend class GpuLink;
  struct Flight {
    std::shared_ptr<WorkState> work;
    NcclGroup* group = nullptr;  // null: of a link that has none yet, or still being collected
  };
  /// Calls of a thread between begin_group() and end_group().
  struct Collected {
    std::vector<Call> calls;
    std::shared_ptr<WorkState> work;
    int depth = 0;  // groups within the group
  };

  const GpuMeans& means() HR_EXCLUDES(load_);
  /// A set uses one device of each rank.
  Result<void> claim(int device) HR_EXCLUDES(mutex_);
  Result<GpuWay> prepare(int device, base::Deadline deadline) HR_EXCLUDES(setup_, mutex_);
  Result<GpuWay> meet(int device, base::Deadline deadline) HR_REQUIRES(setup_);
  NcclGroup* group() HR_EXCLUDES(setup_);
  GpuPatience patience(base::Deadline deadline);

  Work run(std::vector<Call> calls, std::shared_ptr<WorkState> work);
  Result<void> enqueue(NcclGroup& group, std::span<const Call> calls, const WorkState& work);

  /// Watch it. False: everything has failed, and so has the work.
  bool take_off(const Flight& flight) HR_EXCLUDES(mutex_);
  /// Where `work`, which is watched already, is done.
  void set_group(const WorkState& work, NcclGroup* group) HR_EXCLUDES(mutex_);
  void fail_all(const Error& error) HR_EXCLUDES(mutex_);
  std::optional<Error> failed() HR_EXCLUDES(mutex_);
  std::vector<Flight> flights() HR_EXCLUDES(mutex_);
  void watch();
  std::optional<Error> trouble(const std::vector<Flight>& flights);
  std::optional<Error> trouble_of_closed_ranks(const WorkState& waiting);
  /// End what the device has done: how many; the error of CUDA.
  Result<size_t> land(const std::vector<Flight>& flights) HR_EXCLUDES(mutex_);

  const SetDoor door_;
  const GpuSettings settings_;

  base::Mutex load_;  // leaf
  std::unique_ptr<const GpuMeans> means_ HR_GUARDED_BY(load_);

  base::Mutex setup_;  // before mutex_; held while ranks meet
  std::optional<Result<GpuWay>> way_ HR_GUARDED_BY(setup_);
  std::unique_ptr<NcclGroup> group_ HR_GUARDED_BY(setup_);

  base::Mutex linking_;  // leaf: messages go while ranks meet for a collective
  std::map<std::pair<int, Kind>, std::unique_ptr<GpuLink>> links_ HR_GUARDED_BY(linking_);

  base::Mutex mutex_;  // leaf
  base::CondVar changed_;
  bool stop_ HR_GUARDED_BY(mutex_) = false;
  int device_ HR_GUARDED_BY(mutex_) = -1;
  std::optional<Error> failed_ HR_GUARDED_BY(mutex_);
  std::vector<Flight> flights_ HR_GUARDED_BY(mutex_);
  std::map<std::thread::id, Collected> collected_ HR_GUARDED_BY(mutex_);
  uint64_t submitted_ HR_GUARDED_BY(mutex_) = 0;

  // Of the watching thread: who has closed the set, and until when that may be in order.
  int closed_ = -1;
  base::Deadline closed_limit_ = base::Deadline::never();
  base::Thread watcher_;  // last: it stops before what it looks at goes
};

}  // namespace headrace::comm
