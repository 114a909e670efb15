// SPDX-License-Identifier: Apache-2.0
// A process set whose ranks share memory.
#pragma once

#include <memory>
#include <utility>

#include "headrace/base/shm_segment.h"
#include "headrace/comm/algo/shm_operation.h"
#include "headrace/comm/set_transport_internal.h"

namespace headrace::comm {

class ShmTransport : public SetTransport {
 public:
  /// `memory` is empty where the channel's memory belongs to somebody else.
  ShmTransport(base::ShmMapping memory, ShmChannel channel)
      : memory_(std::move(memory)), channel_(std::move(channel)) {}

  int rank() const override { return channel_.rank(); }
  std::unique_ptr<Operation> start(const Call& call) override {
    return start_shm_operation(call, channel_, state_);
  }
  bool next_begun() override { return next_shm_begun(channel_, state_); }
  bool closed(int rank) const override {
    return channel_.progress(rank).closed.load(std::memory_order_acquire) != 0;
  }
  std::optional<Error> failure() override { return failure_of(channel_); }
  Error spread(const Error& error) override {
    const Error cause = spread_failure(channel_, error.origin() ? error.origin()->rank : -1, error);
    channel_.ring_calls();
    return cause;
  }
  void hear(const Error&) override {}  // it stands in the memory
  void leave() override {
    channel_.mine().closed.store(1, std::memory_order_release);
    channel_.ring_others();
    channel_.ring_calls();
  }
  uint32_t begin_sleep() override { return channel_.bells().begin_sleep(); }
  void doze(uint32_t ticket, base::Micros most) override { channel_.bells().doze(ticket, most); }
  void end_sleep() override { channel_.bells().end_sleep(); }
  void wake() override { channel_.bells().ring_self(); }
  void ring_bell_once() override {}

  // Idle ranks sleep at a bell of this set: at the node's, they would make every operation of
  // every set wake them.
  void call_others(uint32_t next) override {
    channel_.mine().called.store(next, std::memory_order_release);
    channel_.ring_calls();
  }
  bool called(uint32_t ours) override {
    for (int rank = 0; rank < channel_.ranks(); ++rank) {
      const uint32_t theirs = channel_.progress(rank).called.load(std::memory_order_acquire);
      if (rank != channel_.rank() && static_cast<int32_t>(theirs - ours) > 0) {
        return true;
      }
    }
    return false;
  }
  uint32_t begin_idle() override { return comm::begin_sleep(own_call_bell()); }
  void doze_idle(uint32_t ticket, base::Micros most) override {
    comm::doze(own_call_bell(), ticket, most);
  }
  void end_idle() override { comm::end_sleep(own_call_bell()); }
  void wake_idle() override { ring_bell(own_call_bell(), true); }

  bool shares_core_with(int rank) const override { return channel_.shares_core_with(rank); }
  ShmTransport* shared_memory() override { return this; }
  ShmChannel& channel() { return channel_; }
  ShmSetState& state() { return state_; }

 private:
  BellLine& own_call_bell() { return channel_.call_bell(channel_.rank()); }

  base::ShmMapping memory_;
  ShmChannel channel_;
  ShmSetState state_;
};

}  // namespace headrace::comm
