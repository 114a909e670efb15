// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

namespace headrace::forecast {

namespace {

constexpr double kWorst = std::numeric_limits<double>::infinity();

constexpr std::string_view kLoss = "quantile_loss";
constexpr std::pair<std::string_view, double Metrics::*> kCriteria[] = {
    {"mean_wql", &Metrics::mean_wql},
    {"mase", &Metrics::mase},
    {"crps", &Metrics::crps},
    {kLoss, &Metrics::quantile_loss}};

Result<double> criterion_of(const Metrics& metrics, std::string_view name) {
  const auto* const known =
      std::ranges::find(kCriteria, name, [](const auto& c) { return c.first; });
  if (known == std::end(kCriteria)) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: criterion \"{}\" is unknown; it is mean_wql, mase, crps or "
                             "quantile_loss",
                             name)};
  }
  const double value = metrics.*known->second;
  return std::isfinite(value) ? value : kWorst;
}

/// Where the last windows of a series are forecast from, and with what.
struct Task {
  const Series& series;
  const SelectOptions& options;
  PredictOptions predict;
  std::string criterion;

  Series past(int window) const {
    return series.without_last(int64_t{window} * int64_t{predict.horizon});
  }
};

Result<Task> make_task(const Series& series, const Model& model, const SelectOptions& options,
                       const PredictOptions& predict) {
  HR_TRY([[maybe_unused]] const double known, criterion_of(Metrics(), options.criterion));
  Task task{series, options, predict, options.criterion};
  PredictOptions& settled = task.predict;
  settled.horizon = predict.horizon > 0 ? predict.horizon : model.spec.horizon;
  settled.quantiles = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
  settled.keep_samples = options.criterion == "crps";
  if (series.length() <= int64_t{options.windows} * settled.horizon) {
    return Error{
        Errc::unsupported,
        fmt::format("forecast: item \"{}\": {} values are too few to compare models on {} windows "
                    "of {}",
                    series.id, series.length(), options.windows, settled.horizon)};
  }
  return task;
}

/// A candidate's forecasts of all windows, oldest first; fewer where it cannot forecast one.
Result<std::vector<Forecast>> forecast_windows(const Task& task, const Candidate& candidate) {
  std::vector<Forecast> out;
  for (int w = task.options.windows; w >= 1; --w) {
    const Series past = task.past(w);
    HR_TRY(Forecasts forecasts, forecast::predict(*candidate.model, {&past, 1}, task.predict));
    if (!forecasts.items.empty()) {
      out.push_back(std::move(forecasts.items.front()));
    }
  }
  return out;
}

/// Score forecasts of all windows; incomplete ones count as the worst.
Result<CandidateScore> score_windows(const Task& task, std::string name,
                                     std::span<const Forecast> forecasts, int season) {
  Scoreboard board;
  const bool complete = std::ssize(forecasts) == task.options.windows;
  for (int w = task.options.windows; complete && w >= 1; --w) {
    const Series past = task.past(w);
    const Forecast& forecast = forecasts[static_cast<size_t>(task.options.windows - w)];
    const std::span<const double> actual =
        std::span(task.series.target)
            .subspan(past.target.size(), static_cast<size_t>(task.predict.horizon));
    board.add(task.series.id, name,
              {past.target, actual, forecast.quantile(0.5), forecast.mean, forecast.levels,
               forecast.quantiles, forecast.samples, std::max(1, season)});
  }
  CandidateScore score{std::move(name), board.total(), kWorst};
  HR_TRY(score.score, criterion_of(score.metrics, task.criterion));
  return score;
}

/// Average the draws of each step by rank: which path a draw belongs to is lost, and no score asks.
std::vector<float> mixed_samples(const Forecast& network, const Forecast& naive, double share) {
  const auto horizon = static_cast<size_t>(network.horizon);
  const size_t paths = network.samples.size() / horizon;
  std::vector<float> out(network.samples.size());
  std::vector<float> a(paths);
  std::vector<float> b(paths);
  for (size_t h = 0; h < horizon; ++h) {
    for (size_t path = 0; path < paths; ++path) {
      a[path] = network.samples[path * horizon + h];
      b[path] = naive.samples[path * horizon + h];
    }
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    for (size_t path = 0; path < paths; ++path) {
      out[path * horizon + h] = static_cast<float>((1.0 - share) * static_cast<double>(a[path]) +
                                                   share * static_cast<double>(b[path]));
    }
  }
  return out;
}

/// What `Model::naive_share` makes of the two.
Forecast mixed(const Forecast& network, const Forecast& naive, double share) {
  Forecast out = network;
  for (size_t i = 0; i < out.quantiles.size(); ++i) {
    out.quantiles[i] = (1.0 - share) * network.quantiles[i] + share * naive.quantiles[i];
  }
  for (size_t i = 0; i < out.mean.size(); ++i) {
    out.mean[i] = (1.0 - share) * network.mean[i] + share * naive.mean[i];
  }
  out.samples = mixed_samples(network, naive, share);
  return out;
}

bool is_network(const Candidate& candidate) { return candidate.model->method == Method::deepar; }

/// Where candidates are compared by nothing but a loss, the simplest come first.
std::vector<size_t> order_of_trust(std::span<const Candidate> candidates, bool simplest_first) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (simplest_first) {
    std::ranges::stable_partition(order, [&](size_t i) { return !is_network(candidates[i]); });
  }
  return order;
}

/// The best of the candidates in `order` for which `eligible`, or -1.
int best_of(const std::vector<CandidateScore>& scores, std::span<const size_t> order, double margin,
            const auto& eligible) {
  int best = -1;
  double bar = kWorst;
  for (const size_t i : order) {
    const double score = scores[i].score;
    if (eligible(i) && (best < 0 || score < bar * (1.0 - margin))) {
      best = static_cast<int>(i);
      bar = score;
    }
  }
  return best;
}

/// When the criterion has no value for any candidate: their losses as they are.
Result<void> fall_back_to_loss(Task* task, std::vector<CandidateScore>* scores) {
  const bool compared = std::ranges::any_of(
      *scores, [](const CandidateScore& one) { return std::isfinite(one.score); });
  if (compared) {
    return {};
  }
  task->criterion = kLoss;
  for (CandidateScore& one : *scores) {
    HR_TRY(one.score, criterion_of(one.metrics, kLoss));
  }
  return {};
}

/// Give the best network its share of seasonal naive. A share below kLeastShare on either side is
/// not worth a second forecast: the better one stays alone.
Result<void> combine(const Task& task, std::span<const Candidate> candidates,
                     const std::vector<std::vector<Forecast>>& forecasts, Selection* selection) {
  constexpr double kLeastShare = 0.05;
  const auto order = order_of_trust(candidates, false);
  const auto is_one = [&](size_t i) { return is_network(candidates[i]); };
  const auto is_naive = [&](size_t i) { return !is_one(i); };
  const int network = best_of(selection->scores, order, task.options.margin, is_one);
  const int naive = best_of(selection->scores, order, 0.0, is_naive);
  if (network < 0 || naive < 0) {
    return {};
  }
  const auto n = static_cast<size_t>(network);
  const auto v = static_cast<size_t>(naive);
  const double a = selection->scores[n].score;
  const double b = selection->scores[v].score;
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return {};
  }
  const double share = a + b > 0.0 ? a * a / (a * a + b * b) : 1.0;  // of equals the simplest
  selection->best = share > 1.0 - kLeastShare ? naive : network;
  if (share < kLeastShare || share > 1.0 - kLeastShare) {
    return {};
  }
  selection->naive_share = share;
  std::vector<Forecast> both;
  for (size_t w = 0; w < forecasts[n].size(); ++w) {
    both.push_back(mixed(forecasts[n][w], forecasts[v][w], share));
  }
  HR_TRY(auto score, score_windows(task, candidates[n].name + "+naive", both,
                                   candidates[n].model->spec.season));
  selection->scores.push_back(std::move(score));
  return {};
}

}  // namespace

Result<Selection> select_model(const Series& series, std::span<const Candidate> candidates,
                               const SelectOptions& options, const PredictOptions& predict) {
  if (candidates.empty()) {
    return Error{Errc::invalid_argument, "forecast: there are no candidates to choose from"};
  }
  HR_TRY(Task task, make_task(series, *candidates.front().model, options, predict));
  Selection selection;
  std::vector<std::vector<Forecast>> forecasts;
  for (const Candidate& candidate : candidates) {
    HR_TRY(auto windows, forecast_windows(task, candidate));
    HR_TRY(CandidateScore score,
           score_windows(task, candidate.name, windows, candidate.model->spec.season));
    selection.scores.push_back(std::move(score));
    forecasts.push_back(std::move(windows));
  }
  HR_TRY(fall_back_to_loss(&task, &selection.scores));
  const auto order = order_of_trust(candidates, task.criterion != options.criterion);
  selection.best = best_of(selection.scores, order, options.margin, [](size_t) { return true; });
  if (options.combine) {
    HR_TRY(combine(task, candidates, forecasts, &selection));
  }
  selection.criterion = task.criterion;
  return selection;
}

Result<CandidateScore> score_model(const Series& series, const Candidate& candidate,
                                   const SelectOptions& options, const PredictOptions& predict) {
  HR_TRY(const Task task, make_task(series, *candidate.model, options, predict));
  HR_TRY(const auto windows, forecast_windows(task, candidate));
  return score_windows(task, candidate.name, windows, candidate.model->spec.season);
}

}  // namespace headrace::forecast
