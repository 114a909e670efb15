// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/forecaster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "headrace/base/pool.h"
#include "headrace/base/thread.h"
#include "headrace/forecast/plan_internal.h"
#include "headrace/forecast/seen.h"
#include "headrace/forecast/trainer_internal.h"

namespace headrace::forecast {

namespace {

constexpr int kUnvalidatedEpochs = 5;  // without a tail to watch, a short series is soon overfitted

int member_count(const TrainOptions& options, const Model* warm) {
  if (options.members > 0) {
    return options.members;
  }
  return warm != nullptr ? std::max<int>(1, static_cast<int>(warm->members.size())) : 1;
}

bool is_constant(const Series& series) {
  double first = std::numeric_limits<double>::quiet_NaN();
  for (const double value : series.target) {
    if (std::isnan(value)) {
      continue;
    }
    if (!std::isnan(first) && value != first) {
      return false;
    }
    first = value;
  }
  return true;
}

Json summary_json(const FitSummary& summary) {
  return Json::object({{"epochs", summary.epochs},
                       {"best_epoch", summary.best_epoch},
                       {"steps", summary.steps},
                       {"best_step", summary.best_step},
                       {"skipped_steps", summary.skipped_steps},
                       {"loss", summary.loss},
                       {"masked_loss", summary.masked_loss},
                       {"monitored", summary.monitored},
                       {"learning_rate", summary.learning_rate},
                       {"refitted", summary.refitted}});
}

/// Members' fits to one model.
Model assemble(Plan plan, const TrainOptions& options, Scope scope, std::vector<Fit> fits) {
  Model model;
  model.spec = std::move(plan.spec);
  model.scaling = std::move(plan.scaling);
  model.options = to_json(options);
  model.instruction_set = instruction_set();
  Json members = Json::array();
  FitSummary total;
  for (Fit& fit : fits) {
    members.push_back(summary_json(fit.summary));
    total.steps += fit.summary.steps;
    total.best_step += fit.summary.best_step;
    total.skipped_steps += fit.summary.skipped_steps;
    total.loss += fit.summary.loss / static_cast<double>(fits.size());
    total.masked_loss += fit.summary.masked_loss / static_cast<double>(fits.size());
    total.monitored += fit.summary.monitored / static_cast<double>(fits.size());
    for (std::vector<float>& parameters : fit.parameters) {
      model.members.push_back(std::move(parameters));
    }
  }
  model.training = Json::object({{"scope", scope_name(scope)},
                                 {"steps", total.steps},
                                 {"best_step", total.best_step},
                                 {"skipped_steps", total.skipped_steps},
                                 {"loss", total.loss},
                                 {"masked_loss", total.masked_loss},
                                 {"monitored", total.monitored},
                                 {"monitor", options.monitor},
                                 {"members", std::move(members)}});
  return model;
}

Model naive_model(const Series& series, const TrainOptions& options, Method method) {
  Model model;
  model.method = method;
  model.spec.frequency = series.frequency;
  model.spec.horizon = options.horizon;
  model.spec.context = 0;
  model.spec.season = options.season > 0 ? options.season : season_length(series.frequency);
  model.spec.categories = options.categories;
  model.spec.static_reals = options.static_reals;
  model.spec.dynamic_reals = options.dynamic_reals;
  model.options = to_json(options);
  model.training = Json::object({{"steps", 0}});
  return model;
}

/// Nothing is held out, so nothing can be asked of it.
void leave_out_validation(TrainOptions* options) {
  options->validation_windows = 0;
  options->monitor = "training";
  options->patience = 0;
  options->refit = "none";
}

/// Train without a tail to watch, and not for long.
void train_unwatched(TrainOptions* options) {
  leave_out_validation(options);
  options->epochs = std::min(options->epochs, kUnvalidatedEpochs);
}

/// Of values that are counts, more than half of them 0, what is made for such; nothing of others.
void note_counts(std::span<const Series* const> series, const TrainOptions& options,
                 std::vector<std::string>* notes) {
  int64_t zeros = 0;
  int64_t observed = 0;
  for (const Series* s : series) {
    for (const double value : s->target) {
      if (std::isnan(value)) {
        continue;
      }
      if (value < 0.0 || value != std::floor(value)) {
        return;
      }
      zeros += value == 0.0 ? 1 : 0;
      ++observed;
    }
  }
  const std::string_view counts = distribution_name(Distribution::negative_binomial);
  if (2 * zeros > observed && options.distribution != counts) {
    notes->push_back(fmt::format("{} % of the values are 0: --distribution {} is made for counts",
                                 100 * zeros / observed, counts));
  }
}

/// Is there a value in the validation tail? Without one, no epoch is better than another and the
/// first, barely trained, would be kept.
bool has_observed_tail(const Series& series, const TrainOptions& options) {
  const int64_t tail = int64_t{options.validation_windows} * options.horizon;
  return std::any_of(series.target.end() - std::min(tail, series.length()), series.target.end(),
                     [](double value) { return !std::isnan(value); });
}

void drop_unobserved_tail(const Series& series, TrainOptions* options,
                          std::vector<std::string>* notes) {
  if (options->validation_windows > 0 && !has_observed_tail(series, *options)) {
    notes->push_back(
        fmt::format("no value of the validation tail ({} steps) is observed: trained without one",
                    int64_t{options->validation_windows} * options->horizon));
    train_unwatched(options);
  }
}

/// A tail that few series have values in would choose the best epoch for those few. Without one a
/// global model trains as it does by default: many series are not soon overfitted, and its budget
/// and the average over its steps are made for training that nothing stops.
void drop_rarely_observed_tail(std::span<const Series* const> series, TrainOptions* options,
                               std::vector<std::string>* notes) {
  if (options->validation_windows == 0) {
    return;
  }
  const auto observed = std::count_if(series.begin(), series.end(), [&](const Series* s) {
    return has_observed_tail(*s, *options);
  });
  if (2 * observed < std::ssize(series)) {
    notes->push_back(
        fmt::format("of most series no value of the validation tail ({} steps) is observed: "
                    "trained without one",
                    int64_t{options->validation_windows} * options->horizon));
    leave_out_validation(options);
  }
}

/// Drop windows of the validation tail that a short series has no room for; say so.
void shorten_validation(const Series& series, TrainOptions* options,
                        std::vector<std::string>* notes) {
  const int64_t spare = series.length() - 1 - options->horizon;
  const auto possible = static_cast<int>(std::max<int64_t>(0, spare / options->horizon));
  if (options->validation_windows <= possible) {
    return;
  }
  notes->push_back(fmt::format("{} values leave room for {} of {} validation windows",
                               series.length(), possible, options->validation_windows));
  options->validation_windows = possible;
  if (possible == 0) {
    train_unwatched(options);
  }
}

Result<PreparedSeries> prepare_training(const Plan& plan, const TrainOptions& options,
                                        const Series& series) {
  const int64_t held_out = int64_t{options.validation_windows} * options.horizon;
  return prepare_series(plan.spec, plan.scaling, series,
                        {std::max<int64_t>(1, series.length() - held_out), 0, series.length()});
}

std::span<const float> start_of(const Model* warm, int member) {
  return warm == nullptr ? std::span<const float>()
                         : std::span<const float>(
                               warm->members[static_cast<size_t>(member) % warm->members.size()]);
}

/// A tail that most series are too short for is shortened, so that it does not take them out of the
/// training.
void shorten_for_most(std::span<const Series> series, TrainOptions* options,
                      std::vector<std::string>* notes) {
  const int asked = options->validation_windows;
  const auto most_fit = [&] {
    const int64_t needed = int64_t{options->validation_windows + 1} * options->horizon;
    const auto fit = std::count_if(series.begin(), series.end(),
                                   [&](const Series& s) { return s.length() >= needed; });
    return 2 * fit >= std::ssize(series);
  };
  while (options->validation_windows > 0 && !most_fit()) {
    --options->validation_windows;
  }
  if (options->validation_windows == asked) {
    return;
  }
  notes->push_back(fmt::format("most series leave room for {} of {} validation windows",
                               options->validation_windows, asked));
  if (options->validation_windows == 0) {
    leave_out_validation(options);
  }
}

/// Series a global model can be trained on, by id; the others with a note.
std::vector<const Series*> usable_series(std::span<const Series> series,
                                         const TrainOptions& options,
                                         std::vector<std::string>* notes) {
  std::vector<const Series*> usable;
  const int64_t needed = int64_t{options.validation_windows + 1} * options.horizon;
  int64_t too_short = 0;
  for (const Series& s : series) {
    if (auto checked = check_series(s); !checked.ok()) {
      notes->push_back("passed over: " + checked.error().message());
    } else if (s.length() < needed) {
      ++too_short;
    } else {
      usable.push_back(&s);
    }
  }
  if (too_short > 0) {
    notes->push_back(
        fmt::format("{} of {} series are shorter than {} values and give no training "
                    "window; the model still forecasts them",
                    too_short, series.size(), needed));
  }
  std::sort(usable.begin(), usable.end(),
            [](const Series* a, const Series* b) { return a->id < b->id; });
  return usable;
}

/// Fit all members, spread over threads; each is its own deterministic run.
Result<std::vector<Fit>> fit_members(const FitInput& input, int members, const Model* warm,
                                     int threads) {
  std::vector<std::optional<Result<Fit>>> results(static_cast<size_t>(members));
  base::Mutex telling;  // leaf: held while the caller's callback runs, one at a time
  const auto body = [&](int64_t m) {
    FitInput mine = input;
    mine.member = static_cast<int>(m);
    mine.seed = base::derive_seed(input.seed, static_cast<uint64_t>(m));
    mine.start = start_of(warm, mine.member);
    if (input.progress) {
      mine.progress = [&](TrainProgress progress) {
        progress.members = members;
        const base::MutexLock lock(telling);
        return input.progress(progress);
      };
    }
    results[static_cast<size_t>(m)] = fit(mine);
  };
  // Ranks pair their sums by order, which threads would not keep.
  const bool is_shared = input.ranks != nullptr && input.ranks->size() > 1;
  if (threads > 1 && members > 1 && !is_shared) {
    base::Pool pool(std::min(threads, members));
    pool.for_each(members, body);
  } else {
    for (int m = 0; m < members; ++m) {
      body(m);
      if (!results[static_cast<size_t>(m)]->ok()) {
        break;
      }
    }
  }
  std::vector<Fit> fits;
  for (std::optional<Result<Fit>>& result : results) {
    HR_TRY(Fit one, *std::move(result));
    fits.push_back(std::move(one));
  }
  return fits;
}

}  // namespace

Model fallback_model(const Series& series, const TrainOptions& options) {
  Model model = naive_model(series, options, Method::seasonal_naive);
  if (series.length() < model.spec.season) {
    model.method = Method::last_value;
  }
  return model;
}

Result<Trained> train_local(const Series& series, const TrainOptions& options,
                            const TrainContext& context) {
  HR_TRY(TrainOptions resolved, resolve(follow_warm(options, context.warm), Scope::local));
  HR_TRY(check_series(series));
  if (series.length() < resolved.horizon + 1) {
    return Error{
        Errc::unsupported,
        fmt::format("forecast: item \"{}\" has {} values; a local model with horizon {} needs {}",
                    series.id, series.length(), resolved.horizon, resolved.horizon + 1)};
  }
  Trained trained;
  if (!resolved.parity && is_constant(series)) {
    trained.model = naive_model(series, resolved, Method::last_value);
    trained.notes.emplace_back("all observed values are equal: the last value is the forecast");
    return trained;
  }
  shorten_validation(series, &resolved, &trained.notes);
  drop_unobserved_tail(series, &resolved, &trained.notes);
  const Series* const one[] = {&series};
  note_counts(one, resolved, &trained.notes);
  HR_TRY(Plan plan, make_plan(resolved, one, context.warm));
  trained.notes.insert(trained.notes.end(), plan.notes.begin(), plan.notes.end());
  HR_TRY(const PreparedSeries prepared, prepare_training(plan, resolved, series));
  const FitInput input{plan.spec,
                       plan.scaling,
                       resolved,
                       std::span(&prepared, 1),
                       base::derive_seed(static_cast<uint64_t>(resolved.seed), series.id),
                       {},
                       fmt::format("item \"{}\"", series.id),
                       0,
                       context.progress,
                       context.stop};
  HR_TRY(std::vector<Fit> fits,
         fit_members(input, member_count(resolved, context.warm), context.warm, 1));
  trained.model = assemble(std::move(plan), resolved, Scope::local, std::move(fits));
  note_seen(one, resolved, context.warm, &trained.model);
  return trained;
}

Result<Trained> train_global(std::span<const Series> series, const TrainOptions& options,
                             const TrainContext& context) {
  HR_TRY(TrainOptions resolved, resolve(follow_warm(options, context.warm), Scope::global));
  Trained trained;
  shorten_for_most(series, &resolved, &trained.notes);
  const std::vector<const Series*> usable = usable_series(series, resolved, &trained.notes);
  if (usable.empty()) {
    return Error{Errc::invalid_argument,
                 series.empty()
                     ? "forecast: there are no series to train on"
                     : fmt::format("forecast: none of {} series can be trained on{}", series.size(),
                                   trained.notes.empty() ? "" : ": " + trained.notes.front())};
  }
  drop_rarely_observed_tail(usable, &resolved, &trained.notes);
  note_counts(usable, resolved, &trained.notes);
  HR_TRY(Plan plan, make_plan(resolved, usable, context.warm));
  trained.notes.insert(trained.notes.end(), plan.notes.begin(), plan.notes.end());
  const size_t notes_before = trained.notes.size();
  std::vector<PreparedSeries> prepared;
  for (const Series* s : usable) {
    auto one = prepare_training(plan, resolved, *s);
    if (one.ok()) {
      prepared.push_back(*std::move(one));
    } else {
      trained.notes.push_back("passed over: " + one.error().message());
    }
  }
  if (prepared.empty()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: none of {} series can be trained on; the first {}",
                             series.size(), trained.notes[notes_before])};
  }
  const FitInput input{plan.spec,
                       plan.scaling,
                       resolved,
                       prepared,
                       base::derive_seed(static_cast<uint64_t>(resolved.seed), "global"),
                       {},
                       "global model",
                       0,
                       context.progress,
                       context.stop,
                       context.ranks};
  HR_TRY(std::vector<Fit> fits,
         fit_members(input, member_count(resolved, context.warm), context.warm, context.threads));
  trained.model = assemble(std::move(plan), resolved, Scope::global, std::move(fits));
  if (context.ranks != nullptr && context.ranks->size() > 1) {
    trained.model.training.set("ranks", context.ranks->size());
  }
  note_seen(usable, resolved, context.warm, &trained.model);
  return trained;
}

}  // namespace headrace::forecast
