// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/shm_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/algo/shm_chunked_internal.h"
#include "headrace/comm/algo/shm_small_internal.h"

namespace headrace::comm {

std::optional<Error> failure_of(const ShmChannel& channel) {
  const ShmFault& fault = channel.fault();
  if (fault.state.load(std::memory_order_acquire) != 2) {
    return std::nullopt;
  }
  Error error(static_cast<Errc>(fault.code), fault.text);
  Origin origin;
  origin.rank = fault.rank;
  error.set_origin(std::move(origin));
  return error;
}

Error spread_failure(const ShmChannel& channel, int culprit, const Error& error) {
  ShmFault& fault = channel.fault();
  uint32_t none = 0;
  if (fault.state.compare_exchange_strong(none, 1)) {
    const size_t letters = std::min(error.message().size(), sizeof fault.text - 1);
    std::memcpy(fault.text, error.message().data(), letters);
    fault.text[letters] = '\0';
    fault.rank = culprit;
    fault.code = static_cast<int32_t>(error.code());
    fault.state.store(2, std::memory_order_release);
    channel.ring_others();
  }
  // Another rank may be writing what it found; if it dies over that, ours is as good.
  return failure_of(channel).value_or(error);
}

ShmOperation::ShmOperation(const Call& call, ShmChannel& channel, ShmSetState& state)
    : channel_(channel),
      state_(state),
      sequence_(state.sequence++),
      flag_(flag_of(call.fingerprint(), sequence_)),
      flag_before_(std::exchange(state.last_flag[sequence_ & 1], flag_)),
      call_(&call) {}

bool ShmOperation::may_write() {
  // The line still says operation sequence - 2 to whoever has not ended that one.
  if (state_.others_done + 1 >= sequence_) {
    return true;
  }
  uint64_t least = sequence_;
  const auto ours = static_cast<uint32_t>(sequence_);
  for (int other = 0; other < channel_.ranks(); ++other) {
    if (other != channel_.rank()) {
      const uint32_t done = channel_.progress(other).done.load(std::memory_order_acquire);
      const auto behind = static_cast<int32_t>(ours - done);  // below zero: it is ahead of us
      if (sequence_ - static_cast<uint64_t>(std::max(behind, 0)) < least) {
        least = sequence_ - static_cast<uint64_t>(behind);
        missing_ = other;
      }
    }
  }
  state_.others_done = least;
  return least + 1 >= sequence_;
}

void ShmOperation::tell() {
  const Call& call = call_->as_told();
  channel_.announcement(channel_.rank(), sequence_)
      .write(sequence_, call.kind, call.op_as_told(), call.dtype, call.root, call.count,
             call.wire16, call.name);
}

Step ShmOperation::look_at(int other) {
  const uint64_t flag = channel_.line(other, sequence_).flag.load(std::memory_order_acquire);
  if (flag == flag_) [[likely]] {
    return Step::moved;
  }
  missing_ = other;
  return flag == flag_before_ ? Step::stuck : mismatch(other);
}

std::string ShmOperation::description_of(int rank) const {
  const Announcement& text = channel_.announcement(rank, sequence_);
  return describe(static_cast<Kind>(text.kind), static_cast<Op>(text.op),
                  static_cast<Dtype>(text.dtype), text.count, text.root, text.name,
                  static_cast<Wire16>(text.wire16));
}

Step ShmOperation::mismatch(int other) {
  return fail(other, describe_difference(sequence_, description_of(channel_.rank()),
                                         channel_.rank(), description_of(other), other));
}

Step ShmOperation::fail(int other, const std::string& difference) {
  error_ = spread_failure(
      channel_, other,
      {Errc::mismatch, fmt::format("comm: {}; all ranks of a process set must call the same "
                                   "operations in the same order",
                                   difference)});
  return Step::failed;
}

bool next_shm_begun(const ShmChannel& channel, const ShmSetState& state) {
  const uint64_t before = state.last_flag[state.sequence & 1];
  for (int other = 0; other < channel.ranks(); ++other) {
    // Who has not ended the operation before may show a flag that is older still.
    const uint32_t done = channel.progress(other).done.load(std::memory_order_acquire);
    if (other != channel.rank() && done == static_cast<uint32_t>(state.sequence) &&
        channel.line(other, state.sequence).flag.load(std::memory_order_acquire) != before) {
      return true;
    }
  }
  return false;
}

std::unique_ptr<ShmOperation> start_shm_operation(const Call& call, ShmChannel& channel,
                                                  ShmSetState& state) {
  const auto bytes = one_piece_bytes(call);
  if (bytes && *bytes <= channel.geometry().small_bytes) {
    return std::make_unique<ShmSmall>(call, channel, state, *bytes);
  }
  return std::make_unique<ShmChunked>(call, channel, state);
}

}  // namespace headrace::comm
