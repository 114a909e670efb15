// SPDX-License-Identifier: Apache-2.0
// How to wait for other ranks before going to sleep.
#pragma once

#include <sched.h>

#include <cstdint>

#include "headrace/base/futex.h"

namespace headrace::comm {

/// How long to look before sleeping, in turns of some 50 ns.
struct SpinBudget {
  uint32_t turns = 4000;
  bool crowded = false;  ///< the ranks of the node outnumber its cores
};

/// One wait, from looks at short intervals to sleep.
class Patience {
 public:
  explicit Patience(SpinBudget budget) : budget_(budget) {}

  /// Pass the time until the next look; false: it is over, sleep. `same_core`: who is waited for
  /// was last seen on this core and cannot run while we hold it. A scheduler leaves two such
  /// threads where they are for long, for it does not like to move what has just run.
  bool pass(bool same_core) {
    if (passed_ >= budget_.turns) {
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
  void renew() { passed_ = 0; }

 private:
  static constexpr uint32_t kTurnsOfYield = 20;
  SpinBudget budget_;
  uint32_t passed_ = 0;
};

}  // namespace headrace::comm
