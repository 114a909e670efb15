// SPDX-License-Identifier: Apache-2.0
// Treat numbers below 1.2e-38 as zero while a scope lasts.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace headrace::forecast {

/// Gradients that fade over many unobserved steps become denormal, and one such number costs a
/// multiply-add some hundred cycles. They decide nothing. Of the calling thread, put back at the
/// end.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlush); }
  ~FlushDenormals() { _mm_setcsr(before_); }
#else
  FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kFlush = 0x8040;  // results to zero, operands as zero
  unsigned before_;
#endif
};

}  // namespace headrace::forecast
