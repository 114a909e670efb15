// SPDX-License-Identifier: Apache-2.0
// Named points at which a test may end the process or pretend a condition; free when unused.
#pragma once

#include <atomic>
#include <cstdint>

#include "headrace/base/export.h"

namespace headrace::registry::fault {

/// Called with the name of each point that is passed; null outside tests.
using Hook = void (*)(const char* point);
HR_API std::atomic<Hook>& hook();

/// What statfs(2) is said to return as file-system type; 0 outside tests.
HR_API std::atomic<int64_t>& filesystem_type();

inline void point(const char* name) {
  if (const Hook call = hook().load(std::memory_order_relaxed)) [[unlikely]] {
    call(name);
  }
}

}  // namespace headrace::registry::fault
