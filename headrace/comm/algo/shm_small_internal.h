// SPDX-License-Identifier: Apache-2.0
// One-piece collectives: each rank puts all it has, then takes what it needs.
#pragma once

#include "headrace/comm/algo/shm_operation.h"

namespace headrace::comm {

/// Up to kInlineBytes the contribution shares the cache line of the flag, above it lies in the
/// small slot of the same parity. Operations whose contributions are larger on any rank go in
/// chunks.
class ShmSmall : public ShmOperation {
 public:
  /// `bytes`: the most that any rank puts.
  /// `rings_later`: who runs it rings the others when it has ended, after a fence of its own.
  ShmSmall(const Call& call, ShmChannel& channel, ShmSetState& state, size_t bytes,
           bool rings_later = false);
  Step step() override;
  /// try_quick() has announced it.
  void set_announced() { announced_ = true; }
  Algorithm algorithm() const override {
    return inline_ ? Algorithm::inline_line : Algorithm::one_shot;
  }
  /// It has not ended at once: whoever goes on with it does not know of rings_later.
  void ring_itself() { rings_later_ = false; }

 private:
  void put();
  void put_parts(std::byte* to);
  void take();
  bool waits_for(int other) const;
  bool waits_for_all() const;
  std::byte* piece(int rank) const;

  const bool inline_;
  bool rings_later_;
  const size_t bytes_;
  bool announced_ = false;
  bool rung_ = false;
  int next_ = 0;  // whom to look at; those below are there
};

}  // namespace headrace::comm
