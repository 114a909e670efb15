// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/naive.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "headrace/forecast/quantile_internal.h"

namespace headrace::forecast {

namespace {

constexpr double kSignificance = 1.645;  // two-sided 90 %, as in the M4 competition's code
constexpr size_t kErrorsMin = 10;

/// Missing values are those one season before; before the first observed one, that one.
std::vector<double> filled(std::span<const double> values, size_t season) {
  std::vector<double> out(values.begin(), values.end());
  const auto known =
      std::find_if(out.begin(), out.end(), [](double value) { return !std::isnan(value); });
  const double first = known == out.end() ? 0.0 : *known;
  double last = first;
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isnan(out[i])) {
      out[i] = i >= season ? out[i - season] : last;
    }
    last = out[i];
  }
  return out;
}

std::vector<double> autocorrelations(std::span<const double> values, size_t lag_max) {
  const auto count = static_cast<double>(values.size());
  double mean = 0.0;
  for (const double value : values) {
    mean += value / count;
  }
  double variance = 0.0;
  for (const double value : values) {
    variance += (value - mean) * (value - mean);
  }
  std::vector<double> correlations;
  for (size_t lag = 1; lag <= lag_max; ++lag) {
    double sum = 0.0;
    for (size_t i = lag; i < values.size(); ++i) {
      sum += (values[i] - mean) * (values[i - lag] - mean);
    }
    correlations.push_back(variance > 0.0 ? sum / variance : 0.0);
  }
  return correlations;
}

bool is_seasonal(std::span<const double> values, size_t season) {
  if (season < 2 || values.size() < 3 * season) {
    return false;
  }
  const std::vector<double> correlations = autocorrelations(values, season);
  double sum = 1.0;
  for (size_t k = 0; k + 1 < season; ++k) {
    sum += 2.0 * correlations[k] * correlations[k];
  }
  const double limit = kSignificance * std::sqrt(sum / static_cast<double>(values.size()));
  return std::fabs(correlations[season - 1]) > limit;
}

/// Seasonal indices of a classical multiplicative decomposition, by position modulo season.
std::vector<double> seasonal_indices(std::span<const double> values, size_t season) {
  const size_t half = season / 2;
  const bool even = season % 2 == 0;
  std::vector<double> sums(season, 0.0);
  std::vector<int64_t> counts(season, 0);
  for (size_t i = half; i + half < values.size(); ++i) {
    double trend = 0.0;
    for (size_t j = i - half; j <= i + half; ++j) {
      const bool edge = even && (j == i - half || j == i + half);
      trend += (edge ? 0.5 : 1.0) * values[j];
    }
    trend /= static_cast<double>(season);
    if (trend != 0.0) {
      sums[i % season] += values[i] / trend;
      ++counts[i % season];
    }
  }
  double mean = 0.0;
  for (size_t phase = 0; phase < season; ++phase) {
    sums[phase] = counts[phase] > 0 ? sums[phase] / static_cast<double>(counts[phase]) : 1.0;
    mean += sums[phase] / static_cast<double>(season);
  }
  for (double& index : sums) {
    index = mean != 0.0 ? index / mean : 1.0;
  }
  return sums;
}

}  // namespace

std::vector<double> last_value(std::span<const double> training, int horizon) {
  double last = 0.0;
  for (const double value : training) {
    last = std::isnan(value) ? last : value;
  }
  return std::vector<double>(static_cast<size_t>(horizon), last);
}

std::vector<double> seasonal_naive(std::span<const double> training, int horizon, int season) {
  const auto period = static_cast<size_t>(season);
  if (training.size() < period) {
    return last_value(training, horizon);
  }
  const std::vector<double> values = filled(training, period);
  std::vector<double> forecast;
  for (size_t h = 0; h < static_cast<size_t>(horizon); ++h) {
    forecast.push_back(values[values.size() - period + h % period]);
  }
  return forecast;
}

std::vector<double> naive2(std::span<const double> training, int horizon, int season) {
  const auto period = static_cast<size_t>(season);
  const std::vector<double> values = filled(training, period);
  if (!is_seasonal(values, period)) {
    return last_value(values, horizon);
  }
  const std::vector<double> indices = seasonal_indices(values, period);
  const double last_index = indices[(values.size() - 1) % period];
  if (last_index == 0.0) {
    return last_value(values, horizon);
  }
  const double level = values.back() / last_index;
  std::vector<double> forecast;
  for (size_t h = 0; h < static_cast<size_t>(horizon); ++h) {
    forecast.push_back(level * indices[(values.size() + h) % period]);
  }
  return forecast;
}

NaiveSpread::NaiveSpread(std::span<const double> training, std::span<const double> point,
                         int season)
    : point_(point.begin(), point.end()), season_(season) {
  const auto period = static_cast<size_t>(season);
  const size_t seasons = point.empty() ? 0 : (point.size() - 1) / period + 1;
  for (size_t k = 1; k <= seasons; ++k) {
    std::vector<double> errors;
    for (size_t i = k * period; i < training.size(); ++i) {
      const double error = training[i] - training[i - k * period];
      if (!std::isnan(error)) {
        errors.push_back(error);
      }
    }
    if (k == 1 && !errors.empty()) {
      double squares = 0.0;
      for (const double error : errors) {
        squares += error * error;
      }
      deviation_ = std::sqrt(squares / static_cast<double>(errors.size()));
    }
    if (errors.size() < kErrorsMin) {
      errors.clear();
    }
    std::sort(errors.begin(), errors.end());
    errors_.push_back(std::move(errors));
  }
}

double NaiveSpread::quantile(int h, double level) const {
  const auto step = static_cast<size_t>(h);
  const size_t k = step / static_cast<size_t>(season_);
  const std::vector<double>& errors = errors_[k];
  if (!errors.empty()) {
    return point_[step] + sorted_quantile<double>(errors, std::clamp(level, 0.0, 1.0));
  }
  const double inside = std::clamp(level, 1e-9, 1.0 - 1e-9);
  return point_[step] +
         deviation_ * std::sqrt(static_cast<double>(k + 1)) * normal_quantile(inside);
}

double normal_quantile(double probability) {
  constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                           1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                           6.680131188771972e+01, -1.328068155288572e+01};
  constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                           -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                           3.754408661907416e+00};
  constexpr double kTail = 0.02425;
  const auto tail = [&](double p) {
    const double q = std::sqrt(-2.0 * std::log(p));
    return (((((kC[0] * q + kC[1]) * q + kC[2]) * q + kC[3]) * q + kC[4]) * q + kC[5]) /
           ((((kD[0] * q + kD[1]) * q + kD[2]) * q + kD[3]) * q + 1.0);
  };
  double x = 0.0;
  if (probability < kTail) {
    x = tail(probability);
  } else if (probability > 1.0 - kTail) {
    x = -tail(1.0 - probability);
  } else {
    const double q = probability - 0.5;
    const double r = q * q;
    x = (((((kA[0] * r + kA[1]) * r + kA[2]) * r + kA[3]) * r + kA[4]) * r + kA[5]) * q /
        (((((kB[0] * r + kB[1]) * r + kB[2]) * r + kB[3]) * r + kB[4]) * r + 1.0);
  }
  const double error = 0.5 * std::erfc(-x / std::numbers::sqrt2) - probability;
  const double slope = error * std::sqrt(2.0 * std::numbers::pi) * std::exp(0.5 * x * x);
  return x - slope / (1.0 + 0.5 * x * slope);
}

}  // namespace headrace::forecast
