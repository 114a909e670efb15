// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "headrace/forecast/monitor_internal.h"
#include "headrace/forecast/quantile_internal.h"
#include "headrace/forecast/sampler_internal.h"

namespace headrace::forecast {

namespace {

constexpr double kLevels[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};

double finite_or_infinity(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
}

}  // namespace

Monitor::Monitor(const FitInput& input, TrainingStep* step)
    : input_(&input), sharing_(input.ranks), step_(step), filler_(input.spec, input.scaling) {
  const std::string& name = input.options.monitor;
  kind_ = name == "validation" ? Kind::validation
          : name == "horizon"  ? Kind::horizon
          : name == "wql"      ? Kind::wql
                               : Kind::training;
  if (kind_ == Kind::training) {
    return;
  }
  for (size_t s = 0; s < input.series.size(); ++s) {
    for (int w = 1; w <= input.options.validation_windows; ++w) {
      const int64_t split = input.series[s].length() - int64_t{w} * input.spec.horizon;
      if (split > 0) {
        windows_.push_back({static_cast<int>(s), split});
      }
    }
  }
}

Result<Monitor> Monitor::make(const FitInput& input, TrainingStep* step) {
  Monitor monitor(input, step);
  if (monitor.kind_ != Kind::training && monitor.windows_.empty()) {
    return Error{
        Errc::unsupported,
        fmt::format("forecast: {}: no series is long enough for a validation tail of {} values",
                    input.name, input.spec.horizon)};
  }
  return monitor;
}

Result<double> Monitor::value(double training_loss, std::span<const float> weights) {
  switch (kind_) {
    case Kind::training: return finite_or_infinity(training_loss);
    case Kind::wql: return sampled(weights);
    default: return loss(weights);
  }
}

Result<double> Monitor::loss(std::span<const float> weights) {
  const auto batch = static_cast<size_t>(input_->options.batch);
  const RowRange rows = sharing_.part(input_->options.batch);
  double sum = 0.0;
  int64_t cells = 0;
  for (size_t begin = 0; begin < windows_.size() && rows.count > 0; begin += batch) {
    const std::span<const WindowIndex> now =
        std::span(windows_).subspan(begin, std::min(batch, windows_.size() - begin));
    const int64_t observed = filler_.fill(input_->series, now, rows, kind_ == Kind::horizon, step_);
    if (observed > 0) {
      sum += step_->loss(weights).masked_loss * static_cast<double>(observed);
      cells += observed;
    }
  }
  double totals[] = {sum, static_cast<double>(cells)};
  HR_TRY(sharing_.sum(totals));
  return totals[1] > 0.0 ? finite_or_infinity(totals[0] / totals[1])
                         : std::numeric_limits<double>::infinity();
}

Result<double> Monitor::sampled(std::span<const float> weights) const {
  const RowRange mine = sharing_.part(std::ssize(windows_));
  const auto part =
      sampled_part(weights, std::span(windows_).subspan(static_cast<size_t>(mine.first),
                                                        static_cast<size_t>(mine.count)));
  // One rank's failure is all ranks': the others would wait for it.
  double totals[] = {part.value_or(0.0), part.ok() ? 0.0 : 1.0};
  HR_TRY(sharing_.sum(totals));
  if (!part.ok()) {
    return part.error();
  }
  if (totals[1] > 0.0) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: {}: another rank could not draw forecasts of the "
                             "validation tail; see its message",
                             input_->name)};
  }
  return finite_or_infinity(totals[0]);
}

Result<double> Monitor::sampled_part(std::span<const float> weights,
                                     std::span<const WindowIndex> windows) const {
  const auto horizon = static_cast<size_t>(input_->spec.horizon);
  const auto paths = static_cast<size_t>(input_->options.monitor_samples);
  std::vector<float> samples(windows.size() * paths * horizon);
  std::vector<PathRequest> requests;
  for (size_t w = 0; w < windows.size(); ++w) {
    const PreparedSeries& series = input_->series[static_cast<size_t>(windows[w].series)];
    // The same draws in every epoch: differences come from the weights alone.
    requests.push_back({&series, windows[w].split, base::derive_seed(input_->seed, "monitor"),
                        &samples[w * paths * horizon], 0});
  }
  const PathOptions options{input_->spec.horizon, static_cast<int>(paths), 10.0};
  HR_TRY(sample_paths(input_->spec, input_->scaling, weights, options, requests));
  double sum = 0.0;
  std::vector<float> column(paths);
  for (size_t w = 0; w < windows.size(); ++w) {
    const PreparedSeries& series = *requests[w].series;
    const double unit = series.mean_absolute > 0.0 ? series.mean_absolute : 1.0;
    for (size_t h = 0; h < horizon; ++h) {
      const size_t position = static_cast<size_t>(windows[w].split) + h;
      if (series.observed[position] == 0.0F) {
        continue;
      }
      for (size_t p = 0; p < paths; ++p) {
        column[p] = requests[w].samples[p * horizon + h];
      }
      std::sort(column.begin(), column.end());
      for (const double level : kLevels) {
        const double error = series.values[position] - sorted_quantile<float>(column, level);
        sum += 2.0 * std::max(level * error, (level - 1.0) * error) / unit;
      }
    }
  }
  return sum;
}

}  // namespace headrace::forecast
