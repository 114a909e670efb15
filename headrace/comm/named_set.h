// SPDX-License-Identifier: Apache-2.0
// Collectives paired by name instead of by order: ranks may submit them in any order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/comm/context.h"
#include "headrace/comm/negotiate/autotune.h"
#include "headrace/comm/negotiate/request.h"
#include "headrace/comm/timeline.h"

namespace headrace::comm {

struct NamedOptions {
  /// That a small tensor waits for company at most, unless somebody waits for one. 0: not at all.
  std::chrono::microseconds cycle_time{1000};
  uint64_t fusion_bytes = uint64_t{128} << 20;   ///< of one fused operation; 0: no fusion
  uint32_t cache_capacity = 1024;                ///< names whose negotiation is remembered
  bool group_fusion = true;                      ///< groups are fused with other tensors
  std::chrono::milliseconds stall_warn{60'000};  ///< log who waits for whom after this; 0: never
  std::chrono::milliseconds stall_fail{0};       ///< end the set after this; 0: never
  bool join_active = false;  ///< average divides by the ranks that have not joined
  /// Look for better `cycle_time` and `fusion_bytes`: what rank 0 of the set says counts.
  std::optional<AutotuneOptions> autotune = {};
  int core = -1;  ///< where the engine's thread runs; -1: anywhere
};

/// What stays the same from one submission of a tensor to the next.
struct NamedTensor {
  std::string name;  ///< the same on all ranks; unique among what is pending
  Request request;
  std::string encoded;  ///< the request
};

/// One operation as a rank submits it. Memory is borrowed until the work is done.
struct NamedCall {
  std::shared_ptr<const NamedTensor> tensor;
  const void* input = nullptr;
  void* output = nullptr;  ///< null: allgather, alltoall and reducescatter make it themselves
};

struct NamedState;

/// Handle of an operation. Copyable; all copies are the same one. Thread-safe.
class HR_API NamedWork {
 public:
  explicit NamedWork(std::shared_ptr<NamedState> state) : state_(std::move(state)) {}
  bool done() const;
  /// Its error, if it has one; with `limit`: `timeout` when that is over, and it goes on.
  Result<void> wait(std::optional<std::chrono::milliseconds> limit = {}) const;

  // Once it is done without an error:
  std::span<std::byte> output() const;  ///< that the operation made itself; lives as long as this
  uint64_t rows() const;                ///< first dimension of the output
  const std::vector<int64_t>& received_splits()
      const;                                         ///< allgather, alltoall: rows from each rank
  int last_joined() const;                           ///< join: world rank
  std::unique_ptr<ProcessSet> take_new_set() const;  ///< add_set: null when not a member

 private:
  std::shared_ptr<NamedState> state_;
};

/// An engine over a process set of its own, which nobody else uses. An operation runs once all
/// ranks have submitted its name; each kind's outcome is as Horovod defines it. What is wrong with
/// one operation (types, shapes, roots that differ) fails that one, with the same error on all
/// ranks. What is wrong with a rank (dead, closed) or shutdown() of any rank fails all that are
/// pending, and all later ones.
///
/// Thread-safe. One thread, asleep while there is nothing to do.
class HR_API NamedSet {
 public:
  /// All ranks of `set` make it at the same place among its operations. `context` must outlive it.
  static std::unique_ptr<NamedSet> make(Context& context, std::unique_ptr<ProcessSet> set,
                                        const NamedOptions& options);
  struct State;
  explicit NamedSet(std::unique_ptr<State> state);
  /// Ends what is pending, on all ranks. Takes some seconds at most.
  ~NamedSet();
  NamedSet(const NamedSet&) = delete;
  NamedSet& operator=(const NamedSet&) = delete;

  int rank() const;
  int size() const;
  std::span<const int> world_ranks() const;

  /// Check what needs no other rank: `invalid_argument` says what is wrong.
  Result<std::shared_ptr<const NamedTensor>> prepare(std::string name, Request request) const;
  /// `invalid_argument`: the name is pending.
  Result<NamedWork> submit(NamedCall call);
  /// All of them, or none when a name is pending. To have them done together as well, prepare them
  /// with a group.
  Result<std::vector<NamedWork>> submit_all(std::vector<NamedCall> calls);
  /// This rank has no more data: it adds nothing to allreduces until all ranks have joined.
  Result<NamedWork> join();
  /// Record what is done from now on, into `timeline`; null: no longer.
  void set_timeline(std::shared_ptr<Timeline> timeline);
  /// Ask for the end on all ranks and wait for it, `most` at most. What is pending fails with
  /// `cancelled` and the reason. Idempotent.
  void shutdown(std::string_view reason, std::chrono::milliseconds most = std::chrono::seconds(5));

 private:
  std::unique_ptr<State> state_;
};

}  // namespace headrace::comm
