// SPDX-License-Identifier: Apache-2.0
// The lucky case of a small all_reduce: all others are there, or come at once. It is put into no
// Call and no Operation, for making and ending those costs as much as the exchange itself.
#pragma once

#include "headrace/comm/algo/shm_operation.h"

namespace headrace::comm {

/// An all_reduce without a name and without a scale on the contributions, which travel as they are.
struct QuickReduce {
  Op op = Op::sum;        ///< not average
  bool averages = false;  ///< it was average: what is told and compared
  Dtype dtype = Dtype::f32;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint64_t count = 0;
  double postscale = 1.0;
};

/// Announce, look at the others `looks` times with a pause between, and end it if all are there;
/// whoever calls rings the others then. False: the others can see it by now, so the set's next
/// Operation must be this one, as announced. Nothing may be under way on the set, the others must
/// have ended the operation before the last, and the contribution must fit a small slot.
bool try_quick(const QuickReduce& what, const ShmChannel& channel, ShmSetState& state, int looks);

}  // namespace headrace::comm
