// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/node_bells.h"

#include "headrace/base/futex.h"

namespace headrace::comm {

void NodeBells::fence() {
  // Pairs with the fence in begin_sleep: either we see the sleeper, or it sees what we published.
  base::full_fence();
}

void NodeBells::ring(int place) const {
  BellLine& line = lines_[place];
  if (line.sleepers.load(std::memory_order_relaxed) != 0) {
    line.rings.fetch_add(1, std::memory_order_release);
    base::futex_wake_all(line.rings);
  }
}

void NodeBells::ring_self() const {
  lines_[self_].rings.fetch_add(1, std::memory_order_release);
  base::futex_wake_all(lines_[self_].rings);
}

uint32_t NodeBells::begin_sleep() const {
  lines_[self_].sleepers.fetch_add(1, std::memory_order_relaxed);
  const uint32_t ticket = lines_[self_].rings.load(std::memory_order_relaxed);
  base::full_fence();
  return ticket;
}

void NodeBells::doze(uint32_t ticket, base::Micros most) const {
  base::futex_wait(lines_[self_].rings, ticket, most);
}

void NodeBells::end_sleep() const {
  lines_[self_].sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace headrace::comm
