// SPDX-License-Identifier: Apache-2.0
// How to wait for other ranks before going to sleep.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "headrace/base/futex.h"

namespace headrace::comm {

/// How long to look before sleeping, in turns of some 50 ns.
struct SpinBudget {
  uint32_t turns = 4000;
  bool crowded = false;  ///< the ranks of the node outnumber its cores
};

/// Waits, one after the other, each from looks at short intervals to sleep. Looking takes the core
/// from others of this process, so it is done less where waits turn out to be longer than that.
class Patience {
 public:
  explicit Patience(SpinBudget budget) : budget_(budget), turns_(budget.turns) {}

  /// Pass the time until the next look; false: it is over, sleep. `same_core`: who is waited for
  /// was last seen on this core and cannot run while we hold it. A scheduler leaves two such
  /// threads where they are for long, for it does not like to move what has just run.
  bool pass(bool same_core) {
    if (passed_ >= turns_) {
      if (!sleeps_) {
        sleeps_ = true;
        since_ = Clock::now();
      }
      return false;
    }
    if (same_core || budget_.crowded) {
      ::sched_yield();
      passed_ += kTurnsOfYield;
    } else {
      base::spin_pause();
      ++passed_;
    }
    return true;
  }
  /// What was waited for is there.
  void renew() {
    passed_ = 0;
    if (sleeps_) {
      const bool soon = Clock::now() - since_ < kWorthLooking;
      turns_ = soon ? std::min(budget_.turns, 2 * turns_)
                    : std::max(std::min(kTurnsLeast, budget_.turns), turns_ / 2);
      sleeps_ = false;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kTurnsOfYield = 20;
  static constexpr uint32_t kTurnsLeast = 50;
  static constexpr auto kWorthLooking = std::chrono::microseconds(200);

  SpinBudget budget_;
  uint32_t turns_;
  bool sleeps_ = false;
  Clock::time_point since_ = {};
  uint32_t passed_ = 0;
};

}  // namespace headrace::comm
