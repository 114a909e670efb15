// SPDX-License-Identifier: Apache-2.0
// Large collectives: the moves of an ExchangePlan, chunk by chunk, through rings of slots.
#pragma once

#include <vector>

#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/algo/shm_operation.h"

namespace headrace::comm {

/// Three stages, each counted: put (own contributions into slots), reduce (own part; result into
/// the user's memory and a slot), take (others' results and pieces out of their slots). Stages of
/// different chunks overlap.
class ShmChunked : public ShmOperation {
 public:
  ShmChunked(const Call& call, ShmChannel& channel, ShmSetState& state);
  Step step() override;
  Algorithm algorithm() const override { return Algorithm::chunked; }

 private:
  using Counter = std::atomic<uint32_t> ProgressLine::*;
  enum class Stage : uint8_t { put, reduced, taken };

  bool agree();
  void tell_sizes();
  bool expects_what_comes(int from);
  bool advance(Stage stage);
  bool may_put();
  bool may_reduce();
  bool may_take();
  void put();
  void reduce();
  void take();
  /// All others have counted `wanted` chunks of this set.
  bool all_at(Counter counter, uint32_t wanted);
  void count(Counter counter, uint32_t value);

  ExchangePlan plan_;
  const uint32_t base_;  // chunks of the operations before
  uint32_t steps_;       // of this rank, then of the set
  uint32_t put_ = 0;
  uint32_t reduced_ = 0;
  uint32_t taken_ = 0;
  int next_ = 0;  // whose announcement to look at
  bool announced_ = false;
  bool agreed_ = false;
  bool past_caches_;
  std::vector<std::byte> scaled_;  // own contribution, where it is scaled
  std::vector<const std::byte*> sources_;
};

}  // namespace headrace::comm
