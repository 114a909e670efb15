// SPDX-License-Identifier: Apache-2.0
// A collective on its way through shared memory: steps that never block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/random.h"
#include "headrace/base/result.h"
#include "headrace/comm/algo/call.h"
#include "headrace/comm/algo/operation.h"
#include "headrace/comm/transport/shm_channel.h"

namespace headrace::comm {

/// What a rank remembers of a set from operation to operation.
struct ShmSetState {
  uint64_t sequence = 0;           ///< number of the next operation
  uint32_t chunks = 0;             ///< of all operations so far
  uint64_t others_done = 0;        ///< operations that all others are known to have ended
  uint64_t last_flag[2] = {0, 0};  ///< of the operation before on this parity
};

/// What the line of an operation says: never zero, and another than that of the one two before.
inline uint64_t flag_of(uint64_t fingerprint, uint64_t sequence) {
  return base::derive_seed(fingerprint, sequence) | 1;
}

/// What the operations of one set over shared memory have in common.
class ShmOperation : public Operation {
 public:
  /// The call has moved.
  void set_call(const Call& call) { call_ = &call; }

 protected:
  ShmOperation(const Call& call, ShmChannel& channel, ShmSetState& state);

  /// The line and the small slot of this parity are free to be written.
  bool may_write();
  /// Say what this rank does in this operation, for those who do something else.
  void tell();
  /// Say that it is in it; what it put and told before is there for the others. Who raises its flag
  /// rings them, at the latest before it gives up waiting for them.
  void raise_flag() {
    // Pairs with the acquire in look_at.
    channel_.line(channel_.rank(), sequence_).flag.store(flag_, std::memory_order_release);
  }
  /// The flag of `other` is there and is ours. moved: yes. stuck: not yet. failed: another one.
  Step look_at(int other);
  Step mismatch(int other);
  /// The same error on all ranks, with what this rank and `other` do differently.
  Step fail(int other, const std::string& difference);
  std::string description_of(int rank) const;

  const Call& call() const { return *call_; }

  ShmChannel& channel_;
  ShmSetState& state_;
  const uint64_t sequence_;
  const uint64_t flag_;
  const uint64_t flag_before_;

 private:
  const Call* call_;
};

/// Start the next operation of a set; all ranks do so in the same order. `call` and what it points
/// at must outlive it, and it must end before the next one of the set starts.
std::unique_ptr<ShmOperation> start_shm_operation(const Call& call, ShmChannel& channel,
                                                  ShmSetState& state);

/// Between two operations: another rank has announced the next one already.
bool next_shm_begun(const ShmChannel& channel, const ShmSetState& state);

/// What the set failed with, when a rank has found that it must.
std::optional<Error> failure_of(const ShmChannel& channel);
/// Let all ranks of the set know of a failure; the first one counts and is returned.
Error spread_failure(const ShmChannel& channel, int culprit, const Error& error);

}  // namespace headrace::comm
