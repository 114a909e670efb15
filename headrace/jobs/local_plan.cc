// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/local_plan.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "headrace/base/clock.h"

namespace headrace::jobs {

namespace {

/// The local model, or nothing when the series is too short for one.
Result<std::optional<forecast::Trained>> train_own(const forecast::Series& series,
                                                   const LocalPlan& plan,
                                                   const std::function<bool()>& should_stop) {
  forecast::TrainContext context;
  context.warm = plan.warm_start ? plan.global : nullptr;
  if (should_stop) {
    context.progress = [&](const forecast::TrainProgress&) { return !should_stop(); };
  }
  auto trained = forecast::train_local(series, plan.train, context);
  if (trained.ok()) {
    return std::optional(std::move(*trained));
  }
  if (trained.error().code() == Errc::unsupported) {
    return std::optional<forecast::Trained>();
  }
  return std::move(trained).error();
}

Result<void> choose(const forecast::Series& series, const LocalPlan& plan,
                    std::vector<forecast::Candidate> candidates, LocalOutcome* outcome) {
  forecast::SelectOptions select = plan.select;
  select.windows = selection_windows(series, plan);
  size_t best = 0;
  if (plan.choose && candidates.size() > 1 && select.windows > 0) {
    HR_TRY(auto selection, forecast::select_model(series, candidates, select, plan.predict));
    best = static_cast<size_t>(selection.best);
    outcome->scores = std::move(selection.scores);
    outcome->naive_share = selection.naive_share;
  } else if (plan.choose && candidates.size() > 1) {
    outcome->notes.push_back("too short to compare models; took " + candidates[best].name);
  }
  outcome->winner = candidates[best].name + (outcome->naive_share > 0.0 ? "+naive" : "");
  outcome->model = *candidates[best].model;
  outcome->model.naive_share = outcome->naive_share;
  return {};
}

}  // namespace

int selection_windows(const forecast::Series& series, const LocalPlan& plan) {
  // One season of past at least must stay before the oldest origin.
  const int64_t horizon = std::max(1, plan.train.horizon);
  const int64_t past = std::max<int64_t>(horizon, plan.train.season) + 1;
  const int64_t possible = (series.length() - past) / horizon;
  return static_cast<int>(std::clamp<int64_t>(possible, 0, plan.select.windows));
}

Result<LocalOutcome> train_one(const forecast::Series& series, const LocalPlan& plan,
                               const std::function<bool()>& should_stop) {
  const base::Micros begin = base::system_clock().monotonic();
  LocalOutcome outcome;
  HR_TRY(auto own, train_own(series, plan, should_stop));
  const forecast::Model naive = forecast::fallback_model(series, plan.train);

  std::vector<forecast::Candidate> candidates;
  if (own) {
    outcome.notes = own->notes;
    candidates.push_back({"local", &own->model});
  } else {
    outcome.notes.push_back("too short for a model of its own (" + std::to_string(series.length()) +
                            " values, horizon " + std::to_string(plan.train.horizon) + ")");
  }
  if (plan.global != nullptr) {
    candidates.push_back({"global", plan.global});
  }
  candidates.push_back({std::string(forecast::method_name(naive.method)), &naive});
  HR_TRY(choose(series, plan, std::move(candidates), &outcome));

  HR_TRY(auto forecasts, forecast::predict(outcome.model, std::span(&series, 1), plan.predict));
  if (!forecasts.errors.empty()) {
    return std::move(forecasts.errors.front().error);
  }
  outcome.forecast = std::move(forecasts.items.front());
  outcome.seconds = std::chrono::duration<double>(base::system_clock().monotonic() - begin).count();
  return outcome;
}

}  // namespace headrace::jobs
