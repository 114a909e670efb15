// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/local_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "headrace/base/clock.h"
#include "headrace/forecast/seen.h"

namespace headrace::jobs {

namespace {

/// Windows of the horizon that leave at least a season, and a horizon, of past.
int64_t possible_windows(const forecast::Series& series, const LocalPlan& plan) {
  const int64_t horizon = std::max(1, plan.train.horizon);
  const int64_t season =
      plan.train.season > 0 ? plan.train.season : forecast::season_length(series.frequency);
  return std::max<int64_t>(0, (series.length() - std::max(horizon, season) - 1) / horizon);
}

/// Why no window is left out for a choice, whatever the series; "" = some are.
std::string why_no_windows(const LocalPlan& plan) {
  if (plan.train.parity) {
    return "parity leaves out no window to compare on";
  }
  if (plan.train.validation_windows == 0) {
    return "validation_windows 0 leaves out no window to compare on";
  }
  return plan.select.windows == 0 ? "there is no window to compare on" : "";
}

/// Training that is told nothing else leaves out the windows that the choice looks at. What is
/// compared on them has not seen them: a refit comes after the choice.
forecast::TrainOptions train_options(const forecast::Series& series, const LocalPlan& plan) {
  forecast::TrainOptions options = plan.train;
  const int windows = plan.choose ? selection_windows(series, plan) : 0;
  if (windows > 0) {
    options.refit = "none";
    if (options.validation_windows < 0) {
      options.validation_windows = windows;
    }
  }
  return options;
}

Result<forecast::Trained> train(const forecast::Series& series, const LocalPlan& plan,
                                const forecast::TrainOptions& options,
                                const std::function<bool()>& should_stop) {
  forecast::TrainContext context;
  context.warm = plan.warm_start ? plan.global : nullptr;
  context.stop = should_stop;
  return forecast::train_local(series, options, context);
}

/// The local model, or nothing when the series is too short for one.
Result<std::optional<forecast::Trained>> train_own(const forecast::Series& series,
                                                   const LocalPlan& plan,
                                                   const std::function<bool()>& should_stop) {
  auto trained = train(series, plan, train_options(series, plan), should_stop);
  if (trained.ok()) {
    return std::optional(std::move(*trained));
  }
  if (trained.error().code() == Errc::unsupported) {
    return std::optional<forecast::Trained>();
  }
  return std::move(trained).error();
}

/// Train the local model that won again, on all values; a global one stays as it is.
Result<void> refit_winner(const forecast::Series& series, const LocalPlan& plan,
                          const std::function<bool()>& should_stop, LocalOutcome* outcome) {
  const bool refits = plan.train.refit == "full" && selection_windows(series, plan) > 0;
  if (!refits || outcome->model.method != forecast::Method::deepar) {
    return {};
  }
  if (!outcome->winner.starts_with("local")) {
    outcome->notes.emplace_back("refit is for local models: the global model stays as it is");
    return {};
  }
  forecast::TrainOptions options = train_options(series, plan);
  options.refit = plan.train.refit;
  HR_TRY(auto trained, train(series, plan, options, should_stop));
  trained.model.naive_share = outcome->model.naive_share;
  outcome->model = std::move(trained.model);
  return {};
}

/// Take the local model where there is one, else the first candidate.
void take_local(const std::vector<forecast::Candidate>& candidates, LocalOutcome* outcome) {
  const auto local =
      std::ranges::find(candidates, "local", [](const auto& candidate) { return candidate.name; });
  const forecast::Candidate& taken = local != candidates.end() ? *local : candidates.front();
  outcome->winner = taken.name;
  outcome->model = *taken.model;
}

/// The candidate to take where no window can be looked at: the constant of a constant series, else
/// the first.
size_t without_windows(const std::vector<forecast::Candidate>& candidates) {
  const auto constant = std::ranges::find_if(candidates, [](const auto& one) {
    return one.name == "local" && one.model->method != forecast::Method::deepar;
  });
  return constant == candidates.end() ? 0 : static_cast<size_t>(constant - candidates.begin());
}

/// Naive2 on the windows of the choice: what it would have to beat, not one to be taken.
Result<forecast::CandidateScore> score_naive2(const forecast::Series& series, const LocalPlan& plan,
                                              const forecast::SelectOptions& select) {
  forecast::Model naive2 = forecast::fallback_model(series, plan.train);
  naive2.method = forecast::Method::naive2;
  return forecast::score_model(series, {std::string(forecast::method_name(naive2.method)), &naive2},
                               select, plan.predict);
}

/// Take the best candidate of the windows; the most trusted when they cannot be compared.
Result<void> choose(const forecast::Series& series, const LocalPlan& plan, int windows,
                    const std::vector<forecast::Candidate>& candidates, LocalOutcome* outcome) {
  forecast::SelectOptions select = plan.select;
  select.windows = windows;
  size_t best = without_windows(candidates);
  if (select.windows > 0) {
    HR_TRY(auto selection, forecast::select_model(series, candidates, select, plan.predict));
    best = static_cast<size_t>(selection.best);
    outcome->scores = std::move(selection.scores);
    outcome->naive_share = selection.naive_share;
    outcome->criterion = selection.criterion;
    select.criterion = selection.criterion;
    HR_TRY(auto naive2, score_naive2(series, plan, select));
    outcome->scores.push_back(std::move(naive2));
    if (!std::isfinite(outcome->scores[best].score)) {
      outcome->notes.push_back("no candidate has a score on the last " +
                               std::to_string(select.windows) + " windows; took " +
                               candidates[best].name);
    } else if (selection.criterion != plan.select.criterion) {
      outcome->notes.push_back(plan.select.criterion + " has no value on the last " +
                               std::to_string(select.windows) +
                               " windows; compared by the mean quantile loss");
    }
  } else {
    outcome->notes.push_back("no window that training left out; took " + candidates[best].name);
  }
  outcome->winner = candidates[best].name + (outcome->naive_share > 0.0 ? "+naive" : "");
  outcome->model = *candidates[best].model;
  outcome->model.naive_share = outcome->naive_share;
  return {};
}

/// A comparison flatters a model that was trained on the windows. Take those alone that the model
/// to start from has not seen; where it has seen all of them it does not compete. Says so.
int fair_windows(const forecast::Series& series, const LocalPlan& plan,
                 std::vector<forecast::Candidate>* candidates, LocalOutcome* outcome) {
  const int windows = selection_windows(series, plan);
  if (plan.global == nullptr || windows == 0) {
    return windows;
  }
  const int fair = forecast::unseen_windows(*plan.global, series, plan.train.horizon, windows);
  const std::string whose = "the " + plan.global_name + " model";
  if (fair == windows) {
    return windows;
  }
  if (fair > 0) {
    outcome->notes.push_back(
        fmt::format("{} has seen {} of the last {} windows: compared on the "
                    "newest {}",
                    whose, windows - fair, windows, fair));
    return fair;
  }
  std::erase_if(*candidates, [&](const auto& one) { return one.model == plan.global; });
  outcome->notes.push_back(fmt::format(
      "{} has seen the last {} windows and is left out of the comparison{}; trained "
      "with validation_windows {} and no refit it competes",
      whose, windows, plan.warm_start ? ", which flatters the local model that starts from it" : "",
      windows));
  return windows;
}

}  // namespace

int selection_windows(const forecast::Series& series, const LocalPlan& plan) {
  int64_t windows = std::min<int64_t>(plan.select.windows, possible_windows(series, plan));
  if (plan.train.validation_windows >= 0) {
    windows = std::min<int64_t>(windows, plan.train.validation_windows);
  }
  return why_no_windows(plan).empty() ? static_cast<int>(windows) : 0;
}

Result<LocalOutcome> train_one(const forecast::Series& series, const LocalPlan& plan,
                               const std::function<bool()>& should_stop) {
  const base::Micros begin = base::system_clock().monotonic();
  LocalOutcome outcome;
  outcome.notes = series.notes;
  HR_TRY(auto own, train_own(series, plan, should_stop));
  const forecast::Model naive = forecast::fallback_model(series, plan.train);

  // In the order of trust: of two networks the one that saw more series, unless the other is
  // clearly better.
  std::vector<forecast::Candidate> candidates;
  if (plan.global != nullptr) {
    candidates.push_back({plan.global_name, plan.global});
  }
  if (own) {
    outcome.notes.insert(outcome.notes.end(), own->notes.begin(), own->notes.end());
    candidates.push_back({"local", &own->model});
  } else {
    outcome.notes.push_back("too short for a model of its own (" + std::to_string(series.length()) +
                            " values, horizon " + std::to_string(plan.train.horizon) + ")");
  }
  candidates.push_back({std::string(forecast::method_name(naive.method)), &naive});
  if (!plan.choose) {
    take_local(candidates, &outcome);
  } else if (const std::string why = why_no_windows(plan); !why.empty()) {
    take_local(candidates, &outcome);
    outcome.notes.push_back(why + "; took " + outcome.winner);
  } else {
    const int windows = fair_windows(series, plan, &candidates, &outcome);
    HR_TRY(choose(series, plan, windows, candidates, &outcome));
    HR_TRY(refit_winner(series, plan, should_stop, &outcome));
  }

  HR_TRY(auto forecasts,
         forecast::predict(outcome.model, std::span(&series, 1), plan.predict, should_stop));
  if (!forecasts.errors.empty()) {
    return std::move(forecasts.errors.front().error);
  }
  outcome.forecast = std::move(forecasts.items.front());
  forecast::mark_global(outcome.model, &outcome.forecast);
  outcome.seconds = std::chrono::duration<double>(base::system_clock().monotonic() - begin).count();
  return outcome;
}

}  // namespace headrace::jobs
