// SPDX-License-Identifier: Apache-2.0
// How to wait for other ranks before going to sleep.
#pragma once

#include <sched.h>

#include <cstdint>

#include "headrace/base/futex.h"

namespace headrace::comm {

/// How often to look before sleeping: with the core held, which is fastest when the others run, and
/// then with the core offered to whoever wants it, which may be the rank that is waited for. Two
/// ranks on one core would else burn their whole time in turns; and they stay there, for a
/// scheduler does not move what has just run.
struct SpinBudget {
  uint32_t turns = 500;  ///< none where the ranks of a node outnumber its cores
  uint32_t yields = 200;
};

/// One wait, from the cheap looks to the dear ones.
class Patience {
 public:
  explicit Patience(SpinBudget budget) : budget_(budget) {}

  /// Pass the time until the next look; false: it is over, sleep.
  bool pass() {
    if (passed_ < budget_.turns) {
      base::spin_pause();
    } else if (passed_ - budget_.turns < budget_.yields) {
      ::sched_yield();
    } else {
      return false;
    }
    ++passed_;
    return true;
  }
  void renew() { passed_ = 0; }

 private:
  SpinBudget budget_;
  uint32_t passed_ = 0;
};

}  // namespace headrace::comm
