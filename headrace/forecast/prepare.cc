// SPDX-License-Identifier: Apache-2.0
// A series laid out as the columns that windows are cut from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "headrace/forecast/windows_internal.h"

namespace headrace::forecast {

namespace {

constexpr double kLargest = 1e30;  // squares and sums stay within what floats hold
constexpr double kSmallest = 1e-30;
constexpr double kCountMax = 16777216.0;  // 2^24: integers a float holds exactly

Error item_error(const Series& series, const std::string& message) {
  return Error{Errc::invalid_argument,
               fmt::format("forecast: item \"{}\": {}", series.id, message)};
}

Result<void> lay_out_values(const ModelSpec& spec, const Series& series, int64_t training,
                            PreparedSeries* out) {
  const size_t count = series.target.size();
  out->values.resize(count);
  out->observed.resize(count);
  double absolute = 0.0;
  int64_t observed = 0;
  bool first = true;
  for (size_t i = 0; i < count; ++i) {
    const double value = series.target[i];
    const bool is_observed = !std::isnan(value);
    out->values[i] = is_observed ? value : 0.0;
    out->observed[i] = is_observed ? 1.0F : 0.0F;
    if (!is_observed) {
      continue;
    }
    const auto where = [&] {
      return fmt::format("{} at {}", value, stamp_text(series.stamp(static_cast<int64_t>(i))));
    };
    if (std::fabs(value) > kLargest || (value != 0.0 && std::fabs(value) < kSmallest)) {
      return item_error(series, fmt::format("the value {} is out of range; bring the target to "
                                            "between {} and {} (or 0) by a factor",
                                            where(), kSmallest, kLargest));
    }
    if (spec.distribution == Distribution::negative_binomial &&
        (value < 0.0 || value != std::floor(value) || value > kCountMax)) {
      return item_error(series,
                        fmt::format("the negative binomial needs counts from 0 to 2^24; the "
                                    "value {} is none; use student_t",
                                    where()));
    }
    out->lowest = first ? value : std::min(out->lowest, value);
    out->highest = first ? value : std::max(out->highest, value);
    first = false;
    if (static_cast<int64_t>(i) < training) {
      absolute += std::fabs(value);
      ++observed;
    }
  }
  out->mean_absolute = observed > 0 ? absolute / static_cast<double>(observed) : 0.0;
  return {};
}

Result<void> lay_out_static(const ModelSpec& spec, const InputScaling& scaling,
                            const Series& series, PreparedSeries* out) {
  if (series.categories.size() != spec.categories.size() ||
      series.static_reals.size() != spec.static_reals.size() ||
      series.dynamic_reals.size() != spec.dynamic_reals.size()) {
    return item_error(
        series,
        fmt::format("has {} categories, {} static and {} dynamic covariates; the model needs "
                    "{}, {} and {}",
                    series.categories.size(), series.static_reals.size(),
                    series.dynamic_reals.size(), spec.categories.size(), spec.static_reals.size(),
                    spec.dynamic_reals.size()));
  }
  for (size_t k = 0; k < spec.categories.size(); ++k) {
    const std::vector<std::string>& dictionary = spec.dictionaries[k];
    // Index 0 is the unknown one where there is one; the rest ascends.
    const auto first = dictionary.begin() + (spec.unknown_category ? 1 : 0);
    const auto found = std::find(first, dictionary.end(), series.categories[k]);
    if (found == dictionary.end() && !spec.unknown_category) {
      return item_error(series, fmt::format("the value \"{}\" of category \"{}\" did not occur in "
                                            "training; train with unknown_category to allow it",
                                            series.categories[k], spec.categories[k]));
    }
    out->categories.push_back(
        found == dictionary.end() ? 0 : static_cast<int>(found - dictionary.begin()));
  }
  for (size_t k = 0; k < spec.static_reals.size(); ++k) {
    const auto& [mean, deviation] = scaling.static_reals[k];
    out->fixed.push_back(static_cast<float>((series.static_reals[k] - mean) / deviation));
  }
  return {};
}

Result<void> lay_out_dynamic(const ModelSpec& spec, const InputScaling& scaling,
                             const Series& series, const PrepareRange& range, PreparedSeries* out) {
  for (size_t k = 0; k < spec.dynamic_reals.size(); ++k) {
    const auto known = static_cast<int64_t>(series.dynamic_reals[k].size());
    if (known < range.dynamic_end) {
      return item_error(
          series,
          fmt::format("the covariate \"{}\" has {} values; {} are needed, {} of them after the "
                      "last target: add rows with the covariate and an empty target",
                      spec.dynamic_reals[k], known, range.dynamic_end,
                      range.dynamic_end - series.length()));
    }
  }
  out->dynamic_first = range.dynamic_first;
  out->dynamic_columns =
      static_cast<int>(spec.time_features.size() + (spec.age ? 1 : 0) + spec.dynamic_reals.size());
  out->dynamic.reserve(static_cast<size_t>(range.dynamic_end - range.dynamic_first) *
                       static_cast<size_t>(out->dynamic_columns));
  for (int64_t i = range.dynamic_first; i < range.dynamic_end; ++i) {
    const int64_t stamp = spec.time_features.empty() ? 0 : series.stamp(i);
    for (const TimeFeature feature : spec.time_features) {
      out->dynamic.push_back(time_feature(feature, series.frequency, stamp));
    }
    if (spec.age) {
      out->dynamic.push_back(static_cast<float>(std::log10(2.0 + static_cast<double>(i))));
    }
    for (size_t k = 0; k < spec.dynamic_reals.size(); ++k) {
      const auto& [mean, deviation] = scaling.dynamic_reals[k];
      out->dynamic.push_back(
          static_cast<float>((series.dynamic_reals[k][static_cast<size_t>(i)] - mean) / deviation));
    }
  }
  return {};
}

}  // namespace

Result<PreparedSeries> prepare_series(const ModelSpec& spec, const InputScaling& scaling,
                                      const Series& series, const PrepareRange& range) {
  HR_TRY(check_series(series));
  if (series.frequency != spec.frequency) {
    return Error{Errc::mismatch,
                 fmt::format("forecast: item \"{}\": its frequency is {}, the model's {}",
                             series.id, series.frequency.name(), spec.frequency.name())};
  }
  PreparedSeries prepared;
  prepared.id = series.id;
  HR_TRY(lay_out_values(spec, series, range.training, &prepared));
  HR_TRY(lay_out_static(spec, scaling, series, &prepared));
  HR_TRY(lay_out_dynamic(spec, scaling, series, range, &prepared));
  return prepared;
}

}  // namespace headrace::forecast
