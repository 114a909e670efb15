// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/node_bells.h"

#include <sched.h>

#include "headrace/base/futex.h"

namespace headrace::comm {

void wake_bell(BellLine& bell) {
  bell.rings.fetch_add(1, std::memory_order_release);
  base::futex_wake_all(bell.rings);
}

bool NodeBells::shares_core_with(int place) const {
  const auto here = static_cast<uint32_t>(::sched_getcpu() + 1);
  std::atomic<uint32_t>& told = lines_[self_].core;
  if (told.load(std::memory_order_relaxed) != here) {
    told.store(here, std::memory_order_relaxed);
  }
  return here != 0 && lines_[place].core.load(std::memory_order_relaxed) == here;
}

uint32_t begin_sleep(BellLine& bell) {
  bell.sleepers.fetch_add(1, std::memory_order_relaxed);
  const uint32_t ticket = bell.rings.load(std::memory_order_relaxed);
  base::full_fence();
  return ticket;
}

void doze(const BellLine& bell, uint32_t ticket, base::Micros most) {
  base::futex_wait(bell.rings, ticket, most);
}

void end_sleep(BellLine& bell) { bell.sleepers.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace headrace::comm
