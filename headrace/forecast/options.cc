// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/options.h"

#include <algorithm>

#include "headrace/forecast/option_table_internal.h"

namespace headrace::forecast {

using internal::kNoLimit;
using internal::OptionField;

namespace {

/// Names that GluonTS, Darts, NeuralForecast and others have, and ours.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"prediction_length", "horizon"},
    {"forecast_horizon", "horizon"},
    {"output_chunk_length", "horizon"},
    {"h", "horizon"},
    {"fh", "horizon"},
    {"context_length", "context"},
    {"input_chunk_length", "context"},
    {"input_size", "context"},
    {"season_length", "season"},
    {"seasonality", "season"},
    {"lags_seq", "lags"},
    {"distr_output", "distribution"},
    {"hidden_size", "hidden"},
    {"hidden_dim", "hidden"},
    {"num_cells", "hidden"},
    {"num_layers", "layers"},
    {"n_rnn_layers", "layers"},
    {"dropout_rate", "dropout"},
    {"max_epochs", "epochs"},
    {"num_epochs", "epochs"},
    {"n_epochs", "epochs"},
    {"batch_size", "batch"},
    {"num_batches_per_epoch", "batches_per_epoch"},
    {"lr", "learning_rate"},
    {"random_state", "seed"},
    {"random_seed", "seed"},
    {"num_samples", "samples"},
    {"num_parallel_samples", "samples"},
    {"quantile_levels", "quantiles"},
    {"n_windows", "windows"},
    {"freq", "frequency"},
    {"id_col", "id"},
    {"id_column", "id"},
    {"item_id", "id"},
    {"unique_id", "id"},
    {"time_col", "time"},
    {"time_column", "time"},
    {"timestamp", "time"},
    {"timestamp_column", "time"},
    {"target_col", "target"},
    {"target_column", "target"},
};

std::vector<OptionField<TrainOptions>> task_fields() {
  using T = TrainOptions;
  return {
      {"horizon", "task", &T::horizon, "steps to forecast; required", 1, 100000},
      {"season", "task", &T::season,
       "steps of one season for metrics and naive methods; 0 = by frequency", 0, 1000000},
  };
}

std::vector<OptionField<TrainOptions>> covariates_fields() {
  using T = TrainOptions;
  return {
      {"categories", "covariates", &T::categories, "columns with a category per item"},
      {"static_reals", "covariates", &T::static_reals, "columns with a number per item"},
      {"dynamic_reals", "covariates", &T::dynamic_reals,
       "columns with a number per step, known in the future too"},
      {"unknown_category", "covariates", &T::unknown_category,
       "keep index 0 for categories that training did not see; otherwise they are an error"},
      {"standardize", "covariates", &T::standardize,
       "bring real covariates to mean 0 and standard deviation 1"},
  };
}

std::vector<OptionField<TrainOptions>> inputs_fields() {
  using T = TrainOptions;
  return {
      {"context", "inputs", &T::context,
       "steps the network is unrolled over the past; auto = the warm model's, else five seasons, "
       "between one and four horizons",
       1, 100000, true},
      {"lags", "inputs", &T::lags, "past values a step sees, in steps; empty = by frequency", 1,
       100000},
      {"max_lag", "inputs", &T::max_lag,
       "largest lag: a number, all, or auto = those with a value for half of the training "
       "positions"},
      {"time_features",
       "inputs",
       &T::time_features,
       "calendar features; auto = by frequency, none",
       -kNoLimit,
       kNoLimit,
       false,
       {"auto", "none", "second_of_minute", "minute_of_hour", "hour_of_day", "day_of_week",
        "day_of_month", "day_of_year", "week_of_year", "month_of_year"}},
      {"age", "inputs", &T::age, "give the network log10(2 + steps since the start)"},
      {"scale_input",
       "inputs",
       &T::scale_input,
       "how log(scale) enters: off, raw, centred on its mean over the training data; auto = "
       "centred, or as the warm start has it",
       -kNoLimit,
       kNoLimit,
       false,
       {"auto", "off", "raw", "centred"}},
      {"scale_rule",
       "inputs",
       &T::scale_rule,
       "scale of a window whose context is empty or zero: the item's mean (item) or GluonTS's "
       "floor "
       "(gluonts); auto = item",
       -kNoLimit,
       kNoLimit,
       false,
       {"auto", "item", "gluonts"}},
      {"default_scale", "inputs", &T::default_scale,
       "scale of a window without an observed context under scale_rule gluonts; 0 = the batch's "
       "mean",
       0},
      {"scale_floor", "inputs", &T::scale_floor,
       "smallest scale of a window as a share of the item's mean; 0 = none", 0, 1},
  };
}

std::vector<OptionField<TrainOptions>> network_fields() {
  using T = TrainOptions;
  return {
      {"distribution",
       "network",
       &T::distribution,
       "of the next value",
       -kNoLimit,
       kNoLimit,
       false,
       {"student_t", "normal", "negative_binomial"}},
      {"hidden", "network", &T::hidden, "LSTM cells per layer", 1, 1024},
      {"layers", "network", &T::layers, "LSTM layers", 1, 8},
      {"dropout", "network", &T::dropout, "between layers, in training only", 0, 0.99},
  };
}

std::vector<OptionField<TrainOptions>> training_fields() {
  using T = TrainOptions;
  return {
      {"epochs", "training", &T::epochs, "at most; auto = 16 for a global model, 20 for local ones",
       1, 1000000, true},
      {"batches_per_epoch", "training", &T::batches_per_epoch, "optimiser steps of an epoch", 1,
       1000000},
      {"batch", "training", &T::batch, "windows of one step", 1, 65536},
      {"learning_rate", "training", &T::learning_rate, "of Adam", 1e-12, 10},
      {"weight_decay", "training", &T::weight_decay, "L2, added to the gradient", 0, 10},
      {"clip_norm", "training", &T::clip_norm, "largest gradient norm; 0 = no limit", 0},
      {"plateau_patience", "training", &T::plateau_patience,
       "epochs without a better loss before the learning rate falls; 0 = never", 0, 1000000},
      {"plateau_factor", "training", &T::plateau_factor, "by which it falls", 1e-6, 1},
      {"learning_rate_min", "training", &T::learning_rate_min, "below which it does not fall", 0,
       10},
      {"window_sampling",
       "training",
       &T::window_sampling,
       "windows drawn uniformly, or items by their scale as in the paper",
       -kNoLimit,
       kNoLimit,
       false,
       {"uniform", "scale"}},
      {"min_past", "training", &T::min_past,
       "values a training window has before its horizon, at least", 0, 1000000},
      {"seed", "training", &T::seed, "of all random numbers", 0},
  };
}

std::vector<OptionField<TrainOptions>> validation_fields() {
  using T = TrainOptions;
  return {
      {"validation_windows", "validation", &T::validation_windows,
       "horizons held out at the end of each item; auto = 1 for local models, 0 for a global one",
       0, 1000, true},
      {"patience", "validation", &T::patience,
       "epochs without a better monitored value before training stops; 0 = never; auto = 3 for "
       "local "
       "models with validation, else 0",
       0, 1000000, true},
      {"monitor",
       "validation",
       &T::monitor,
       "what decides the best epoch: loss in training, in validation, over the horizon of "
       "validation, "
       "or wql of sampled forecasts; auto = training without validation, else horizon",
       -kNoLimit,
       kNoLimit,
       false,
       {"auto", "training", "validation", "horizon", "wql"}},
      {"monitor_samples", "validation", &T::monitor_samples, "paths per item for monitor wql", 1,
       10000},
      {"refit",
       "validation",
       &T::refit,
       "after early stopping: keep the weights (none), or train again on everything for the best "
       "number "
       "of steps (full)",
       -kNoLimit,
       kNoLimit,
       false,
       {"none", "full"}},
  };
}

std::vector<OptionField<TrainOptions>> averaging_fields() {
  using T = TrainOptions;
  return {
      {"snapshots", "averaging", &T::snapshots, "best epochs whose weights are used together", 1,
       100},
      {"snapshot_use",
       "averaging",
       &T::snapshot_use,
       "average the weights of snapshots, or mix their forecasts",
       -kNoLimit,
       kNoLimit,
       false,
       {"average", "mixture"}},
      {"weight_average", "averaging", &T::weight_average,
       "decay of a running average of the weights per step, which is then what is kept; 0 = off; "
       "auto "
       "= 0.99 for a global model, 0 for local ones",
       0, 0.9999, true},
      {"members", "averaging", &T::members,
       "models with seeds of their own whose forecasts are mixed; auto = 1, or those of the warm "
       "start",
       1, 64, true},
  };
}

std::vector<OptionField<TrainOptions>> parity_fields() {
  using T = TrainOptions;
  return {
      {"parity", "parity", &T::parity,
       "do exactly what GluonTS does: all lags, its scale rule, no validation, best training loss"},
  };
}

// The tables are made on first use and never change; every caller only reads them.
const std::vector<OptionField<TrainOptions>>& train_fields() {
  static const std::vector<OptionField<TrainOptions>> fields = [] {
    std::vector<OptionField<TrainOptions>> all;
    for (auto part :
         {task_fields(), covariates_fields(), inputs_fields(), network_fields(), training_fields(),
          validation_fields(), averaging_fields(), parity_fields()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return fields;
}

const std::vector<OptionField<PredictOptions>>& predict_fields() {
  using T = PredictOptions;
  static const std::vector<OptionField<T>> fields = {
      {"horizon", "forecast", &T::horizon, "steps to forecast; 0 = the model's", 0, 100000},
      {"samples", "forecast", &T::samples, "paths drawn per item", 1, 1000000},
      {"quantiles", "forecast", &T::quantiles, "levels; a plot needs 0.5", 0, 1},
      {"keep_samples", "forecast", &T::keep_samples,
       "return the paths too: column samples, a list per row"},
      {"nonnegative", "forecast", &T::nonnegative, "cut drawn values at 0, after drawing"},
      {"path_limit", "forecast", &T::path_limit,
       "how far paths may run from an item's past values, in ranges of these; 0 = anywhere", 0},
      {"seed", "forecast", &T::seed, "of the paths", 0},
  };
  return fields;
}

const std::vector<OptionField<BacktestOptions>>& backtest_fields() {
  using T = BacktestOptions;
  static const std::vector<OptionField<T>> fields = {
      {"windows", "backtest", &T::windows, "origins per item", 1, 10000},
      {"stride", "backtest", &T::stride, "steps between origins; 0 = the horizon", 0, 1000000},
      {"retrain", "backtest", &T::retrain, "train anew for each origin"},
  };
  return fields;
}

}  // namespace

std::string_view scope_name(Scope scope) { return scope == Scope::local ? "local" : "global"; }

std::vector<OptionInfo> train_option_list() { return internal::list_options(train_fields()); }
std::vector<OptionInfo> predict_option_list() { return internal::list_options(predict_fields()); }
std::vector<OptionInfo> backtest_option_list() { return internal::list_options(backtest_fields()); }

Result<void> set_option(TrainOptions* options, std::string_view name, const Json& value) {
  return internal::set_field(train_fields(), options, name, value);
}
Result<void> set_option(PredictOptions* options, std::string_view name, const Json& value) {
  return internal::set_field(predict_fields(), options, name, value);
}
Result<void> set_option(BacktestOptions* options, std::string_view name, const Json& value) {
  return internal::set_field(backtest_fields(), options, name, value);
}

Result<void> set_options(TrainOptions* options, const Json& object) {
  return internal::set_fields(train_fields(), options, object);
}
Result<void> set_options(PredictOptions* options, const Json& object) {
  return internal::set_fields(predict_fields(), options, object);
}
Result<void> set_options(BacktestOptions* options, const Json& object) {
  return internal::set_fields(backtest_fields(), options, object);
}

Json to_json(const TrainOptions& options) {
  return internal::fields_to_json(train_fields(), options);
}
Json to_json(const PredictOptions& options) {
  return internal::fields_to_json(predict_fields(), options);
}
Json to_json(const BacktestOptions& options) {
  return internal::fields_to_json(backtest_fields(), options);
}

std::vector<std::string_view> names_elsewhere(std::string_view option) {
  std::vector<std::string_view> out;
  for (const auto& [theirs, ours] : kElsewhere) {
    if (ours == option) {
      out.push_back(theirs);
    }
  }
  return out;
}

std::string nearest_name(std::string_view name, std::span<const std::string_view> known) {
  constexpr size_t kFarthest = 3;
  for (const auto& [theirs, ours] : kElsewhere) {
    if (theirs == name && std::ranges::find(known, ours) != known.end()) {
      return std::string(ours);
    }
  }
  std::string nearest;
  size_t best = kFarthest + 1;
  for (const std::string_view candidate : known) {
    // Levenshtein's distance, one row at a time.
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) {
      row[j] = j;
    }
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t changed = diagonal + static_cast<size_t>(name[i - 1] != candidate[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
      }
    }
    if (row.back() < best && row.back() < candidate.size()) {
      best = row.back();
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace headrace::forecast
