// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/lags.h"
#include "headrace/forecast/plan_internal.h"

namespace headrace::forecast {

namespace {

/// The middle of the lengths training sees, the lower one of an even number.
int64_t median_training_length(const TrainOptions& options, std::span<const Series* const> series) {
  std::vector<int64_t> lengths;
  for (const Series* s : series) {
    lengths.push_back(s->length() - int64_t{options.validation_windows} * options.horizon);
  }
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>((lengths.size() - 1) / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  return *middle;
}

void choose_lags(const TrainOptions& options, std::span<const Series* const> series, Plan* plan) {
  LagChoice choice{options.lags.empty() ? default_lags(plan->spec.frequency) : options.lags, ""};
  if (options.max_lag == "auto") {
    choice = usable_lags(choice.lags, median_training_length(options, series));
  } else if (options.max_lag != "all") {
    int lag_max = 0;
    std::from_chars(options.max_lag.data(), options.max_lag.data() + options.max_lag.size(),
                    lag_max);
    choice = lags_up_to(choice.lags, lag_max);
  }
  plan->spec.lags = std::move(choice.lags);
  if (!choice.note.empty()) {
    plan->notes.push_back(std::move(choice.note));
  }
}

Result<void> choose_time_features(const TrainOptions& options, ModelSpec* spec) {
  if (options.time_features == std::vector<std::string>{"auto"}) {
    spec->time_features = default_time_features(spec->frequency);
    return {};
  }
  for (const std::string& name : options.time_features) {
    if (name != "none") {
      HR_TRY(const TimeFeature feature, parse_time_feature(name));
      spec->time_features.push_back(feature);
    }
  }
  return {};
}

/// Numbers by value, then texts by bytes: integer categories keep the order their users know.
bool category_before(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc() && end == text.data() + text.size() && !text.empty()
               ? std::optional(value)
               : std::nullopt;
  };
  const auto left = number(a);
  const auto right = number(b);
  if (left && right && *left != *right) {
    return *left < *right;
  }
  return left.has_value() != right.has_value() ? left.has_value() : a < b;
}

void make_dictionaries(std::span<const Series* const> series, ModelSpec* spec) {
  for (size_t k = 0; k < spec->categories.size(); ++k) {
    std::set<std::string> values;
    for (const Series* s : series) {
      values.insert(s->categories[k]);
    }
    std::vector<std::string> dictionary;
    if (spec->unknown_category) {
      values.erase("");
      dictionary.emplace_back();
    }
    dictionary.insert(dictionary.end(), values.begin(), values.end());
    std::sort(dictionary.begin() + (spec->unknown_category ? 1 : 0), dictionary.end(),
              category_before);
    spec->dictionaries.push_back(std::move(dictionary));
  }
}

/// Mean and standard deviation; a constant covariate is only shifted.
class Moments {
 public:
  void add(double value) {
    ++count_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
  }
  std::pair<double, double> result() const {
    const double deviation = count_ > 0 ? std::sqrt(squares_ / static_cast<double>(count_)) : 0.0;
    return {mean_, deviation > 1e-12 * std::fabs(mean_) && deviation > 0.0 ? deviation : 1.0};
  }

 private:
  int64_t count_ = 0;
  double mean_ = 0.0;
  double squares_ = 0.0;
};

void make_scaling(const TrainOptions& options, std::span<const Series* const> series, Plan* plan) {
  const std::pair<double, double> identity = {0.0, 1.0};
  plan->scaling.static_reals.assign(options.static_reals.size(), identity);
  plan->scaling.dynamic_reals.assign(options.dynamic_reals.size(), identity);
  if (options.standardize) {
    for (size_t k = 0; k < options.static_reals.size(); ++k) {
      Moments moments;
      for (const Series* s : series) {
        moments.add(s->static_reals[k]);
      }
      plan->scaling.static_reals[k] = moments.result();
    }
    for (size_t k = 0; k < options.dynamic_reals.size(); ++k) {
      Moments moments;
      for (const Series* s : series) {
        for (int64_t i = 0; i < s->length(); ++i) {
          moments.add(s->dynamic_reals[k][static_cast<size_t>(i)]);
        }
      }
      plan->scaling.dynamic_reals[k] = moments.result();
    }
  }
  Moments log_scale;
  for (const Series* s : series) {
    double absolute = 0.0;
    int64_t observed = 0;
    const int64_t training = s->length() - int64_t{options.validation_windows} * options.horizon;
    for (int64_t i = 0; i < training; ++i) {
      const double value = s->target[static_cast<size_t>(i)];
      absolute += std::isnan(value) ? 0.0 : std::fabs(value);
      observed += std::isnan(value) ? 0 : 1;
    }
    if (absolute > 0.0) {
      log_scale.add(std::log(absolute / static_cast<double>(observed)));
    }
  }
  plan->scaling.log_scale_mean = log_scale.result().first;
}

Result<void> check_covariates(const TrainOptions& options, std::span<const Series* const> series) {
  for (const Series* s : series) {
    if (s->categories.size() != options.categories.size() ||
        s->static_reals.size() != options.static_reals.size() ||
        s->dynamic_reals.size() != options.dynamic_reals.size()) {
      return Error{Errc::invalid_argument,
                   fmt::format("forecast: item \"{}\" has {} categories, {} static and {} dynamic "
                               "covariates; the options name {}, {} and {}",
                               s->id, s->categories.size(), s->static_reals.size(),
                               s->dynamic_reals.size(), options.categories.size(),
                               options.static_reals.size(), options.dynamic_reals.size())};
    }
    if (s->frequency != series.front()->frequency) {
      return Error{
          Errc::mismatch,
          fmt::format("forecast: item \"{}\" has frequency {}, item \"{}\" has {}", s->id,
                      s->frequency.name(), series.front()->id, series.front()->frequency.name())};
    }
  }
  return {};
}

/// Take from the warm model what the options leave open.
Result<void> follow(const Model& warm, const TrainOptions& options, Plan* plan) {
  const ModelSpec& theirs = warm.spec;
  if (warm.method != Method::deepar || warm.members.empty()) {
    return Error{Errc::mismatch, fmt::format("forecast: warm start: the model is {}, which has no "
                                             "weights to start from",
                                             method_name(warm.method))};
  }
  ModelSpec& ours = plan->spec;
  if (options.context < 0) {
    ours.context = theirs.context;
  }
  if (options.lags.empty()) {
    ours.lags = theirs.lags;
    plan->notes.clear();  // those of lags that were left out
  }
  if (options.time_features == std::vector<std::string>{"auto"}) {
    ours.time_features = theirs.time_features;
  }
  if (options.season == 0) {
    ours.season = theirs.season;
  }
  ours.dictionaries = theirs.dictionaries;
  plan->scaling = warm.scaling;
  // Weights fit any length of unrolling: horizon and context may differ.
  ModelSpec start = theirs;
  start.horizon = ours.horizon;
  start.context = ours.context;
  const std::string difference = spec_difference(ours, start);
  if (!difference.empty()) {
    return Error{
        Errc::mismatch,
        fmt::format("forecast: warm start: {} (in the stored model); use the same options, or "
                    "train without a warm start",
                    difference)};
  }
  return {};
}

/// A longer past steadies the network more than more steps of training do, up to a few seasons.
int context_of(const TrainOptions& options, int season) {
  constexpr int kSeasons = 5;
  constexpr int kHorizons = 4;
  if (options.context > 0) {
    return options.context;
  }
  return options.parity
             ? options.horizon
             : std::max(options.horizon, std::min(kSeasons * season, kHorizons * options.horizon));
}

/// What options decide whatever the series.
Result<void> take_options(const TrainOptions& options, ModelSpec* spec) {
  spec->age = options.age;
  HR_TRY(spec->scale_input, parse_scale_input(options.scale_input));
  spec->gluonts_scale = options.scale_rule == "gluonts";
  spec->default_scale = options.default_scale;
  spec->scale_floor = options.scale_floor;
  spec->categories = options.categories;
  spec->static_reals = options.static_reals;
  spec->dynamic_reals = options.dynamic_reals;
  spec->unknown_category = options.unknown_category;
  HR_TRY(spec->distribution, parse_distribution(options.distribution));
  spec->hidden = options.hidden;
  spec->layers = options.layers;
  return {};
}

}  // namespace

TrainOptions follow_warm(const TrainOptions& options, const Model* warm) {
  TrainOptions followed = options;
  if (warm == nullptr || warm->method != Method::deepar) {
    return followed;
  }
  if (followed.scale_input == "auto") {
    followed.scale_input = scale_input_name(warm->spec.scale_input);
  }
  if (followed.scale_rule == "auto") {
    followed.scale_rule = warm->spec.gluonts_scale ? "gluonts" : "item";
  }
  return followed;
}

Result<void> check_warm_start(const Model& warm, const TrainOptions& given, Scope scope,
                              const Frequency& frequency) {
  HR_TRY(const TrainOptions options, resolve(follow_warm(given, &warm), scope));
  Plan plan;
  plan.spec = warm.spec;
  plan.spec.frequency = frequency;
  HR_TRY(take_options(options, &plan.spec));
  if (!options.lags.empty()) {
    plan.spec.lags.assign(options.lags.begin(), options.lags.end());
  }
  if (options.season > 0) {
    plan.spec.season = options.season;
  }
  if (options.time_features != std::vector<std::string>{"auto"}) {
    HR_TRY(choose_time_features(options, &plan.spec));
  }
  return follow(warm, options, &plan);
}

Result<Plan> make_plan(const TrainOptions& options, std::span<const Series* const> series,
                       const Model* warm) {
  if (series.empty()) {
    return Error{Errc::invalid_argument, "forecast: there is no series to train on"};
  }
  HR_TRY(check_covariates(options, series));
  Plan plan;
  ModelSpec& spec = plan.spec;
  spec.frequency = series.front()->frequency;
  spec.horizon = options.horizon;
  spec.season = options.season > 0 ? options.season : season_length(spec.frequency);
  spec.context = context_of(options, spec.season);
  HR_TRY(take_options(options, &spec));
  choose_lags(options, series, &plan);
  HR_TRY(choose_time_features(options, &spec));
  make_dictionaries(series, &spec);
  make_scaling(options, series, &plan);
  if (warm != nullptr) {
    HR_TRY(follow(*warm, options, &plan));
  }
  return plan;
}

}  // namespace headrace::forecast
