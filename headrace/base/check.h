// SPDX-License-Identifier: Apache-2.0
// Stop the process at a bug of ours; never reachable from user input or a peer's bytes.
#pragma once

#include <string>

#include "headrace/base/export.h"

namespace headrace::base {

/// Print `what`, the place and the stack to stderr, then abort.
[[noreturn]] HR_API void check_failed(const char* condition, const char* file, int line,
                                      const std::string& what);

}  // namespace headrace::base

#define HR_CHECK(cond, what)                                             \
  do {                                                                   \
    if (!(cond)) [[unlikely]] {                                          \
      ::headrace::base::check_failed(#cond, __FILE__, __LINE__, (what)); \
    }                                                                    \
  } while (false)

#ifdef NDEBUG
#define HR_DCHECK(cond, what) static_cast<void>(0)
#else
#define HR_DCHECK(cond, what) HR_CHECK(cond, what)
#endif
