// SPDX-License-Identifier: Apache-2.0
// How the ranks of one node wake one another: one word per rank, whatever sets they share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "headrace/base/clock.h"
#include "headrace/base/futex.h"

namespace headrace::comm {

inline constexpr size_t kLineBytes = 64;

struct alignas(kLineBytes) BellLine {
  std::atomic<uint32_t> sleepers;  ///< threads of this rank that sleep, or are about to
  std::atomic<uint32_t> rings;     ///< what they sleep on
  std::atomic<uint32_t> core;      ///< 1 + where this rank waited last; 0: it has not yet
};

void wake_bell(BellLine& bell);
/// Wake whoever sleeps at the bell. `always`: also who is about to, without a fence before.
inline void ring_bell(BellLine& bell, bool always) {
  if (always || bell.sleepers.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    wake_bell(bell);
  }
}
/// To sleep: begin_sleep(), look once more whether there is nothing to do, doze(), end_sleep().
uint32_t begin_sleep(BellLine& bell);
void doze(const BellLine& bell, uint32_t ticket, base::Micros most);
void end_sleep(BellLine& bell);

/// View of the bells of a node, as the rank at place `self` sees them. Owns nothing; thread-safe.
class NodeBells {
 public:
  NodeBells(BellLine* lines, int self) : lines_(lines), self_(self) {}

  /// Order what was published before the calls of ring() that follow.
  static void fence() {
    // Pairs with the fence in begin_sleep: either we see the sleeper, or it sees what we published.
    base::full_fence();
  }
  /// Wake the rank at `place` if it sleeps.
  void ring(int place) const { ring_bell(lines_[place], false); }
  /// Whether the rank at `place` was last seen on the core of the calling thread.
  bool shares_core_with(int place) const;
  /// Wake the sleeping threads of this rank.
  void ring_self() const { ring_bell(lines_[self_], true); }

  uint32_t begin_sleep() const { return comm::begin_sleep(lines_[self_]); }
  void doze(uint32_t ticket, base::Micros most) const { comm::doze(lines_[self_], ticket, most); }
  void end_sleep() const { comm::end_sleep(lines_[self_]); }

 private:
  BellLine* lines_;
  int self_;
};

}  // namespace headrace::comm
