// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/check.h"

#include <execinfo.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace headrace::base {

void check_failed(const char* condition, const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "headrace: bug: %s:%d: %s does not hold: %s\n", file, line, condition,
               what.c_str());
  void* frames[64];
  const int count = backtrace(frames, 64);
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  std::abort();
}

}  // namespace headrace::base
