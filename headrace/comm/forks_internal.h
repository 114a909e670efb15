// SPDX-License-Identifier: Apache-2.0
// Was this made before fork()? None of our threads runs in a forked child, and what it shares with
// the other ranks is its parent's.
#pragma once

#include <cstdint>

#include "headrace/base/result.h"

namespace headrace::comm {

/// How often the processes that led to this one have forked since the library was loaded.
uint32_t forks();

/// A member of what must not be used in a forked child.
class ForkMark {
 public:
  /// This is a process that was forked after the owner was made.
  bool forked() const { return made_at_ != forks(); }

 private:
  uint32_t made_at_ = forks();
};

/// What a call in a forked child gives.
Error forked_error();

}  // namespace headrace::comm
