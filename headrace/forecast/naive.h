// SPDX-License-Identifier: Apache-2.0
// Forecasts without a model: last value, seasonal naive, Naive2 of the M competitions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/base/export.h"

namespace headrace::forecast {

/// The last observed value, `horizon` times; 0 when nothing was observed.
HR_API std::vector<double> last_value(std::span<const double> training, int horizon);

/// The last `season` values, repeated. A missing value is taken from one season earlier, as often
/// as needed, then from the last observed value.
HR_API std::vector<double> seasonal_naive(std::span<const double> training, int horizon,
                                          int season);

/// Naive2: with three seasons or more and a significant autocorrelation at the season (90 %), last
/// deseasonalised value times the index of the phase of a classical multiplicative decomposition;
/// else the last value. Missing values are filled by the value a season before (the next one at the
/// start).
HR_API std::vector<double> naive2(std::span<const double> training, int horizon, int season);

/// Spread around a naive point forecast, from the in-sample errors y_t - y_(t - k season) with
/// k = floor(h / season) + 1 at step h (0-based): their quantiles, interpolated between order
/// statistics, are added to the point. With fewer than 10 such errors a normal distribution stands
/// in, with the root mean square of the errors at k = 1 times sqrt(k) (Hyndman & Athanasopoulos,
/// Forecasting: principles and practice, 5.5). Without any error: the point itself.
class HR_API NaiveSpread {
 public:
  NaiveSpread(std::span<const double> training, std::span<const double> point, int season);
  /// The quantile of step h (0-based); level in (0, 1), others are taken as the nearest inside.
  double quantile(int h, double level) const;

 private:
  std::vector<double> point_;
  int season_;
  std::vector<std::vector<double>> errors_;  // by k - 1, sorted; empty where there are too few
  double deviation_ = 0.0;
};

/// Inverse of the standard normal distribution function, |error| < 1.2e-9 (Acklam's rational
/// approximation with one Halley step).
HR_API double normal_quantile(double probability);

}  // namespace headrace::forecast
