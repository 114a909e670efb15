// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/adasum.h"

#include <type_traits>

#include "headrace/comm/algo/reduce_kernel_internal.h"

namespace headrace::comm {

namespace {

/// What partial results are kept in.
template <class T>
using Partial = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
std::vector<Partial<T>> widened(const std::byte* source, size_t count, double scale) {
  std::vector<Partial<T>> values(count);
  const T* from = reinterpret_cast<const T*>(source);
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BHalf>) {
    widen(from, values.data(), count);
  } else {
    values.assign(from, from + count);
  }
  if (scale != 1.0) {
    for (auto& value : values) {
      value *= static_cast<Partial<T>>(scale);
    }
  }
  return values;
}

template <class P>
void combine(std::vector<P>& a, const std::vector<P>& b) {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  const double of_a = aa > 0.0 ? 1.0 - ab / (2.0 * aa) : 1.0;
  const double of_b = bb > 0.0 ? 1.0 - ab / (2.0 * bb) : 1.0;
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<P>(of_a * static_cast<double>(a[i]) + of_b * static_cast<double>(b[i]));
  }
}

template <class T>
std::vector<Partial<T>> tree(std::span<const std::byte* const> sources, size_t count,
                             double scale) {
  if (sources.size() == 1) {
    return widened<T>(sources[0], count, scale);
  }
  const size_t split = tree_split(sources.size());
  auto left = tree<T>(sources.first(split), count, scale);
  combine(left, tree<T>(sources.subspan(split), count, scale));
  return left;
}

template <class T>
void adasum(std::span<const std::byte* const> sources, std::byte* out, size_t count,
            double prescale, double postscale) {
  const auto values = tree<T>(sources, count, prescale);
  T* to = reinterpret_cast<T*>(out);
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<Partial<T>>(values[i] * static_cast<Partial<T>>(postscale));
    if constexpr (std::is_same_v<T, Half>) {
      to[i] = {f16_of_f32(value)};
    } else if constexpr (std::is_same_v<T, BHalf>) {
      to[i] = {bf16_of_f32(value)};
    } else {
      to[i] = value;
    }
  }
}

}  // namespace

void adasum_tree(Dtype dtype, std::span<const std::byte* const> sources, std::byte* out,
                 size_t count, double prescale, double postscale) {
  switch (dtype) {
    case Dtype::f16: return adasum<Half>(sources, out, count, prescale, postscale);
    case Dtype::bf16: return adasum<BHalf>(sources, out, count, prescale, postscale);
    case Dtype::f64: return adasum<double>(sources, out, count, prescale, postscale);
    default: return adasum<float>(sources, out, count, prescale, postscale);
  }
}

}  // namespace headrace::comm
