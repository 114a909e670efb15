// SPDX-License-Identifier: Apache-2.0
// What ranks tell one another before they use NCCL together, and which way they then go.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/comm/gpu/gpu_ticket.h"
#include "headrace/comm/gpu/nccl_group.h"

namespace headrace::comm {

/// What the GPU's part needs of its process set: to meet over the CPU's transport, and to die with
/// it. All must be there until the SetGpu is gone.
struct SetDoor {
  int rank = 0;
  int ranks = 1;
  std::function<Work(ConstBuffer, Buffer, base::Deadline)> all_gather;
  std::function<Work(ConstBuffer, int to, int tag, base::Deadline)> send;
  std::function<Work(Buffer, int from, int tag, base::Deadline)> recv;
  /// A collective whose buffers are in host memory.
  std::function<Work(Call&&, base::Deadline)> on_host;
  std::function<std::optional<Error>()> failure;
  std::function<void(const Error&)> fail;
  std::function<int()> closed_rank;  ///< a rank that has closed the set; -1: none
};

struct GpuSettings {
  std::vector<std::string> folders = {};  ///< of libraries, before the system's
  bool staging = false;                   ///< go through host memory where NCCL is not there
};

/// The libraries, or why they cannot be used.
struct GpuMeans {
  static GpuMeans load(std::span<const std::string> folders);

  Result<std::shared_ptr<const NcclLibrary>> nccl;
  Result<std::shared_ptr<const CudaLibrary>> cuda;
  std::shared_ptr<EventPool> events;  // null without CUDA
};

/// What a rank tells of itself. Sent as bytes between processes of the same build.
struct GpuCard {
  int32_t version = 0;  ///< of NCCL; 0: it cannot be used
  int32_t cuda = 0;     ///< 1: its runtime is there
  NcclId id = {};
  std::array<char, 600> why = {};  ///< not; a text that ends with 0
};

/// With `with_id` a new NcclId is in it.
GpuCard card_of(const GpuMeans& means, bool with_id);

enum class GpuWay : uint8_t { nccl, host };

/// The way that all ranks can go; `ranks` are those of the cards. `unsupported` names the first
/// rank that cannot use NCCL, and why; `mismatch`: they have different versions of it.
Result<GpuWay> common_way(std::span<const GpuCard> cards, std::span<const int> ranks, bool staging);

/// Wait for a work of the CPU; `keep` is what its buffers are in, for when the wait ends first.
Result<void> wait_for(const Work& work, std::shared_ptr<void> keep, const GpuPatience& patience);

/// Wait until `stream` has done all that is on it now.
Result<void> wait_for_stream(EventPool& events, CudaStream stream, const GpuPatience& patience);

/// Do a call through host memory: copy in, the CPU's operation, copy out, on this thread.
Result<void> run_on_host(const SetDoor& door, EventPool& events, const Call& call, int tag,
                         const GpuPatience& patience);

}  // namespace headrace::comm
