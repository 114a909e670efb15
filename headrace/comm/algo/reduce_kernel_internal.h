// SPDX-License-Identifier: Apache-2.0
// What the kernels of each instruction set share, and the table they fill.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "headrace/base/dtype.h"
#include "headrace/comm/algo/reduce_kernel.h"

namespace headrace::comm {

/// 16-bit floats as types of their own.
struct Half {
  uint16_t bits;
};
struct BHalf {
  uint16_t bits;
};

/// Levels of the tree of as many ranks as a process set may have.
inline constexpr size_t kTreeLevels = 20;

inline void widen(const Half* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = f32_of_f16(from[i].bits);
  }
}
inline void widen(const BHalf* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = f32_of_bf16(from[i].bits);
  }
}

/// value * scale in f64, cut towards zero; what does not fit is the nearest value that does.
template <class T>
T scaled_integer(T value, double scale) {
  const double product = std::trunc(static_cast<double>(value) * scale);
  // 2^63 and 2^64 are exact in f64, the greatest values of the types are not.
  const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (!(product < above)) {
    return std::isnan(product) ? T{0} : std::numeric_limits<T>::max();
  }
  const double least = static_cast<double>(std::numeric_limits<T>::min());
  return product <= least ? std::numeric_limits<T>::min() : static_cast<T>(product);
}

using ReduceFunction = void (*)(std::span<const std::byte* const> sources, std::byte* out,
                                double scale, size_t count);

struct ReduceKernels {
  ReduceFunction (*arithmetic)(Dtype in, Dtype out, Op op);
  ReduceFunction (*bits)(Op op);
};

ReduceKernels reduce_kernels(int64_t target);

}  // namespace headrace::comm
