// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/series.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace headrace::forecast {

namespace {

Error item_error(const std::string& id, const std::string& message) {
  return Error{Errc::invalid_argument, fmt::format("forecast: item \"{}\": {}", id, message)};
}

}  // namespace

Series Series::without_last(int64_t count) const {
  Series series = *this;
  series.target.resize(static_cast<size_t>(std::max<int64_t>(0, length() - count)));
  return series;
}

Result<Duplicates> parse_duplicates(std::string_view name) {
  if (name == "error" || name.empty()) {
    return Duplicates::error;
  }
  if (name == "sum") {
    return Duplicates::sum;
  }
  if (name == "mean") {
    return Duplicates::mean;
  }
  if (name == "last") {
    return Duplicates::last;
  }
  return Error{
      Errc::invalid_argument,
      fmt::format("forecast: aggregate \"{}\" is unknown; it is error, sum, mean or last", name)};
}

Result<void> need_series(const SeriesSet& set, std::string_view where) {
  if (!set.series.empty() || set.errors.empty()) {
    return {};
  }
  return Error(set.errors.front().error)
      .add_context(
          fmt::format("{}: none of {} items can be used; the first", where, set.errors.size()));
}

Result<void> check_series(const Series& series) {
  bool observed = false;
  for (int64_t i = 0; i < series.length(); ++i) {
    const double value = series.target[static_cast<size_t>(i)];
    if (std::isinf(value)) {
      return item_error(series.id,
                        fmt::format("\"target\" is infinite at {}; replace the value, or leave it "
                                    "empty to count as missing",
                                    stamp_text(series.stamp(i))));
    }
    observed = observed || !std::isnan(value);
  }
  if (!observed) {
    return item_error(
        series.id, fmt::format("none of {} target values is observed (all are null or NaN); fill "
                               "them, or take the item out",
                               series.length()));
  }
  for (const std::vector<double>& real : series.dynamic_reals) {
    if (real.size() < series.target.size()) {
      return item_error(series.id,
                        fmt::format("a dynamic covariate has {} values, the target has {}",
                                    real.size(), series.target.size()));
    }
    if (std::any_of(real.begin(), real.end(), [](double value) { return !std::isfinite(value); })) {
      return item_error(series.id, "a dynamic covariate has a value that is no finite number");
    }
  }
  for (const double value : series.static_reals) {
    if (!std::isfinite(value)) {
      return item_error(series.id, "a static covariate is no finite number");
    }
  }
  return {};
}

}  // namespace headrace::forecast
