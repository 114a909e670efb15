// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace::forecast {

namespace {

constexpr double kWorst = std::numeric_limits<double>::infinity();

Result<double> criterion_of(const Metrics& metrics, const std::string& name) {
  const double value = name == "mean_wql" ? metrics.mean_wql
                       : name == "mase"   ? metrics.mase
                       : name == "crps"   ? metrics.crps
                                          : kWorst;
  if (name != "mean_wql" && name != "mase" && name != "crps") {
    return Error{
        Errc::invalid_argument,
        fmt::format("forecast: criterion \"{}\" is unknown; it is mean_wql, mase or crps", name)};
  }
  return std::isfinite(value) ? value : kWorst;
}

/// Forecast the windows with one candidate; windows it cannot forecast count as the worst.
Result<CandidateScore> score_candidate(const Series& series, const Candidate& candidate,
                                       const SelectOptions& options, PredictOptions predict) {
  const int horizon = predict.horizon;
  Scoreboard board;
  bool complete = true;
  for (int w = options.windows; w >= 1; --w) {
    const Series past = series.without_last(int64_t{w} * horizon);
    HR_TRY(const Forecasts forecasts, forecast::predict(*candidate.model, {&past, 1}, predict));
    if (forecasts.items.empty()) {
      complete = false;
      continue;
    }
    const Forecast& forecast = forecasts.items.front();
    const std::span<const double> actual =
        std::span(series.target).subspan(past.target.size(), static_cast<size_t>(horizon));
    board.add(series.id, candidate.name,
              {past.target, actual, forecast.quantile(0.5), forecast.mean, forecast.levels,
               forecast.quantiles, forecast.samples, std::max(1, candidate.model->spec.season)});
  }
  CandidateScore score{candidate.name, board.total(), kWorst};
  if (complete) {
    HR_TRY(score.score, criterion_of(score.metrics, options.criterion));
  }
  return score;
}

}  // namespace

Result<Selection> select_model(const Series& series, std::span<const Candidate> candidates,
                               const SelectOptions& options, const PredictOptions& predict) {
  if (candidates.empty()) {
    return Error{Errc::invalid_argument, "forecast: there are no candidates to choose from"};
  }
  HR_TRY(criterion_of(Metrics(), options.criterion));
  PredictOptions settled = predict;
  settled.horizon = predict.horizon > 0 ? predict.horizon : candidates.front().model->spec.horizon;
  settled.quantiles = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
  settled.keep_samples = options.criterion == "crps";
  if (series.length() <= int64_t{options.windows} * settled.horizon) {
    return Error{
        Errc::unsupported,
        fmt::format("forecast: item \"{}\": {} values are too few to compare models on {} windows "
                    "of {}",
                    series.id, series.length(), options.windows, settled.horizon)};
  }
  Selection selection;
  double bar = kWorst;
  for (const Candidate& candidate : candidates) {
    HR_TRY(CandidateScore score, score_candidate(series, candidate, options, settled));
    const double needed = selection.scores.empty() ? kWorst : bar * (1.0 - options.margin);
    if (selection.scores.empty() || score.score < needed) {
      selection.best = static_cast<int>(selection.scores.size());
      bar = score.score;
    }
    selection.scores.push_back(std::move(score));
  }
  return selection;
}

}  // namespace headrace::forecast
