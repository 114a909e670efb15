// SPDX-License-Identifier: Apache-2.0
// Messages of one direction between this rank and another one, from GPU to GPU.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "headrace/comm/gpu/set_gpu.h"

namespace headrace::comm {

/// NCCL matches messages of a group by their order alone and does them one after the other, so each
/// direction has a group and a stream of its own: two ranks that send to one another first do not
/// wait in vain. A thread meets the other rank and enqueues, so that a ring of ranks whose first
/// message waits for the next one's does not either.
class GpuLink {
 public:
  /// `kind` is send or recv; `peer` a rank of the set.
  GpuLink(SetGpu& gpu, int peer, Kind kind);
  ~GpuLink();

  struct Message {
    std::shared_ptr<WorkState> work;
    int tag = 0;
    CudaEvent begin = nullptr;  ///< recorded behind what the message comes after; null: no CUDA
  };
  void push(Message message) HR_EXCLUDES(mutex_);

  /// Null before it is made.
  NcclGroup* group() HR_EXCLUDES(mutex_);

 private:
  void run();
  void handle(const Message& message);
  Result<GpuWay> connect(int device, base::Deadline deadline);
  Result<GpuCard> exchange(const GpuCard& mine, const GpuPatience& patience);
  Result<void> enqueue(const Message& message);

  SetGpu& gpu_;
  const int peer_;
  const Kind kind_;
  std::optional<Result<GpuWay>> way_;  // of the thread

  base::Mutex mutex_;  // leaf
  base::CondVar changed_;
  bool stop_ HR_GUARDED_BY(mutex_) = false;
  std::deque<Message> messages_ HR_GUARDED_BY(mutex_);
  std::unique_ptr<NcclGroup> group_ HR_GUARDED_BY(mutex_);
  base::Thread thread_;  // last
};

}  // namespace headrace::comm
