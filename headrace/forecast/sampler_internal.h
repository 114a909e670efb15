// SPDX-License-Identifier: Apache-2.0
// Ancestral sampling: many paths of many items at once through one decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/base/result.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/network.h"
#include "headrace/forecast/windows_internal.h"

namespace headrace::forecast {

/// Paths of one item. The draws depend on `seed` and `paths` alone, not on what else is sampled.
struct PathRequest {
  const PreparedSeries* series = nullptr;
  int64_t origin = 0;  ///< position of the first value drawn; its past is the series before it
  uint64_t seed = 0;
  float* samples = nullptr;    ///< [paths][horizon], raw values
  int64_t limited_values = 0;  ///< set: drawn values that were cut at the limit
};

struct PathOptions {
  int horizon = 0;
  int paths = 0;
  /// Values are cut at this many ranges below the lowest and above the highest value of the series;
  /// the range is max(highest - lowest, mean |y|). 0: only at what floats hold. What is cut is also
  /// what the path goes on with: a path that runs away comes back.
  double limit = 0.0;
  /// Asked before each step of a pass, where given; true stops with `cancelled`.
  std::function<bool()> stop = {};
};

/// One draw of the scaled value from distribution parameters; `scale` matters to counts only.
double draw_scaled(Distribution distribution, const float* parameters, double scale,
                   base::Rng* rng);

/// Draw the paths of all requests with one set of weights. Encodes each item once for up to
/// `kPathsPerPass` paths. `invalid_argument` when the network gives no finite distribution.
Result<void> sample_paths(const ModelSpec& spec, const InputScaling& scaling,
                          std::span<const float> parameters, const PathOptions& options,
                          std::span<PathRequest> requests);

inline constexpr int kPathsPerPass = 1024;

}  // namespace headrace::forecast
