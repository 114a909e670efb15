// SPDX-License-Identifier: Apache-2.0
// Quantiles of sorted values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace headrace::forecast {

/// Linear interpolation between order statistics at position level * (count - 1). At least one
/// value.
template <typename T>
double sorted_quantile(std::span<const T> sorted, double level) {
  const double position = level * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = position - std::floor(position);
  const auto low = static_cast<double>(sorted[below]);
  return low + share * (static_cast<double>(sorted[above]) - low);
}

}  // namespace headrace::forecast
