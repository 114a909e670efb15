// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/local_plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "headrace/base/clock.h"

namespace headrace::jobs {

namespace {

/// Windows of the horizon that leave at least a season, and a horizon, of past.
int64_t possible_windows(const forecast::Series& series, const LocalPlan& plan) {
  const int64_t horizon = std::max(1, plan.train.horizon);
  const int64_t season =
      plan.train.season > 0 ? plan.train.season : forecast::season_length(series.frequency);
  return std::max<int64_t>(0, (series.length() - std::max(horizon, season) - 1) / horizon);
}

/// Training that is told nothing else leaves out the windows that the choice looks at.
forecast::TrainOptions train_options(const forecast::Series& series, const LocalPlan& plan) {
  forecast::TrainOptions options = plan.train;
  const int windows = plan.choose ? selection_windows(series, plan) : 0;
  if (options.validation_windows < 0 && windows > 0) {
    options.validation_windows = windows;
  }
  return options;
}

/// The local model, or nothing when the series is too short for one.
Result<std::optional<forecast::Trained>> train_own(const forecast::Series& series,
                                                   const LocalPlan& plan,
                                                   const std::function<bool()>& should_stop) {
  forecast::TrainContext context;
  context.warm = plan.warm_start ? plan.global : nullptr;
  context.stop = should_stop;
  auto trained = forecast::train_local(series, train_options(series, plan), context);
  if (trained.ok()) {
    return std::optional(std::move(*trained));
  }
  if (trained.error().code() == Errc::unsupported) {
    return std::optional<forecast::Trained>();
  }
  return std::move(trained).error();
}

/// Take the best candidate of the windows; the first when they cannot be compared.
Result<void> choose(const forecast::Series& series, const LocalPlan& plan,
                    const std::vector<forecast::Candidate>& candidates, LocalOutcome* outcome) {
  forecast::SelectOptions select = plan.select;
  select.windows = selection_windows(series, plan);
  size_t best = 0;
  if (select.windows > 0) {
    HR_TRY(auto selection, forecast::select_model(series, candidates, select, plan.predict));
    best = static_cast<size_t>(selection.best);
    outcome->scores = std::move(selection.scores);
    outcome->naive_share = selection.naive_share;
    if (!std::isfinite(outcome->scores[best].score)) {
      outcome->notes.push_back("no candidate has a score on the last " +
                               std::to_string(select.windows) + " windows; took " +
                               candidates[best].name);
    }
  } else {
    outcome->notes.push_back("no window that training left out; took " + candidates[best].name);
  }
  outcome->winner = candidates[best].name + (outcome->naive_share > 0.0 ? "+naive" : "");
  outcome->model = *candidates[best].model;
  outcome->model.naive_share = outcome->naive_share;
  return {};
}

/// A comparison flatters a global model that was trained on the windows: say so.
void note_windows_seen(const forecast::Series& series, const LocalPlan& plan,
                       LocalOutcome* outcome) {
  const int windows = selection_windows(series, plan);
  const int64_t left_out =
      plan.global == nullptr ? windows : plan.global->options.get_integer("validation_windows");
  if (left_out < windows) {
    outcome->notes.push_back(
        "the global model was trained on " + std::to_string(windows - left_out) + " of the " +
        std::to_string(windows) + " windows it is compared on; train it with validation_windows " +
        std::to_string(windows) + " for a fair choice");
  }
}

}  // namespace

int selection_windows(const forecast::Series& series, const LocalPlan& plan) {
  int64_t windows = std::min<int64_t>(plan.select.windows, possible_windows(series, plan));
  if (plan.train.validation_windows >= 0) {
    windows = std::min<int64_t>(windows, plan.train.validation_windows);
  }
  return plan.train.refit == "full" ? 0 : static_cast<int>(windows);
}

Result<LocalOutcome> train_one(const forecast::Series& series, const LocalPlan& plan,
                               const std::function<bool()>& should_stop) {
  const base::Micros begin = base::system_clock().monotonic();
  LocalOutcome outcome;
  HR_TRY(auto own, train_own(series, plan, should_stop));
  const forecast::Model naive = forecast::fallback_model(series, plan.train);

  // In the order of trust: of two networks the one that saw more series, unless the other is
  // clearly better.
  std::vector<forecast::Candidate> candidates;
  if (plan.global != nullptr) {
    candidates.push_back({plan.global_name, plan.global});
  }
  if (own) {
    outcome.notes = own->notes;
    candidates.push_back({"local", &own->model});
  } else {
    outcome.notes.push_back("too short for a model of its own (" + std::to_string(series.length()) +
                            " values, horizon " + std::to_string(plan.train.horizon) + ")");
  }
  candidates.push_back({std::string(forecast::method_name(naive.method)), &naive});
  if (!plan.choose) {
    const auto taken = own ? std::find_if(candidates.begin(), candidates.end(),
                                          [](const auto& one) { return one.name == "local"; })
                           : candidates.begin();
    outcome.winner = taken->name;
    outcome.model = *taken->model;
  } else {
    note_windows_seen(series, plan, &outcome);
    HR_TRY(choose(series, plan, candidates, &outcome));
  }

  HR_TRY(auto forecasts,
         forecast::predict(outcome.model, std::span(&series, 1), plan.predict, should_stop));
  if (!forecasts.errors.empty()) {
    return std::move(forecasts.errors.front().error);
  }
  outcome.forecast = std::move(forecasts.items.front());
  outcome.seconds = std::chrono::duration<double>(base::system_clock().monotonic() - begin).count();
  return outcome;
}

}  // namespace headrace::jobs
