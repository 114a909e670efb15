// SPDX-License-Identifier: Apache-2.0
// All options of training, prediction and backtests: one table each gives JSON keys, command-line
// flags and Python keywords.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"

namespace headrace::forecast {

/// How many models: one per series, or one for all.
enum class Scope : uint8_t { local, global };
HR_API std::string_view scope_name(Scope scope);  ///< "local", "global"

/// What training can be told. An `auto` value (-1 or "auto") is settled by `resolve`.
struct TrainOptions {
  // The task.
  int horizon = 0;
  int season = 0;  ///< 0: by frequency

  // Covariates: names of columns.
  std::vector<std::string> categories;
  std::vector<std::string> static_reals;
  std::vector<std::string> dynamic_reals;
  bool unknown_category = true;
  bool standardize = true;

  // What a step sees.
  int context = -1;
  std::vector<int> lags;
  std::string max_lag = "auto";
  std::vector<std::string> time_features = {"auto"};
  bool age = true;
  std::string scale_input = "auto";
  std::string scale_rule = "auto";
  double default_scale = 0.0;
  double scale_floor = 0.0;

  // The network.
  std::string distribution = "student_t";
  int hidden = 40;
  int layers = 2;
  double dropout = 0.1;

  // Training.
  int epochs = -1;
  int batches_per_epoch = 50;
  int batch = 32;
  double learning_rate = 1e-3;
  double weight_decay = 1e-8;
  double clip_norm = 10.0;
  int plateau_patience = 10;
  double plateau_factor = 0.5;
  double learning_rate_min = 0.0;
  std::string window_sampling = "uniform";
  int min_past = 0;
  int64_t seed = 1;

  // Validation, averaging.
  int validation_windows = -1;
  int patience = -1;
  std::string monitor = "auto";
  int monitor_samples = 50;
  std::string refit = "none";
  int snapshots = 1;
  std::string snapshot_use = "average";
  double weight_average = -1.0;
  int members = -1;

  bool parity = false;
};

struct PredictOptions {
  int horizon = 0;  ///< 0: the model's
  int samples = 100;
  /// The deciles, and what intervals of 50, 80, 90 and 95 % need.
  std::vector<double> quantiles = {0.025, 0.05, 0.1,  0.2, 0.25, 0.3,  0.4,  0.5,
                                   0.6,   0.7,  0.75, 0.8, 0.9,  0.95, 0.975};
  bool keep_samples = false;
  bool nonnegative = false;
  double path_limit = 10.0;
  int64_t seed = 1;
};

struct BacktestOptions {
  int windows = 1;
  int stride = 0;  ///< 0: the horizon
  bool retrain = false;
};

/// One option as data. `Fields<T>` tables are made in options.cc; everything that lists options
/// reads them: `headrace forecast train --help`, the check of a pipeline's typeProperties, Python's
/// keywords.
struct OptionInfo {
  std::string_view
      name;  ///< JSON key and Python keyword; the flag is `--` with dashes for underscores
  std::string_view
      group;  ///< "task", "covariates", "inputs", "network", "training", "validation", ...
  std::string_view
      type;  ///< "integer", "number", "text", "boolean", "integers", "numbers", "texts"
  std::string default_text;               ///< as on a command line
  std::string_view help;                  ///< one sentence, with units and range
  std::vector<std::string_view> choices;  ///< closed set of texts, if any
  double min = 0.0;                       ///< of numbers, infinite when there is no bound
  double max = 0.0;
};
HR_API std::vector<OptionInfo> train_option_list();
HR_API std::vector<OptionInfo> predict_option_list();
HR_API std::vector<OptionInfo> backtest_option_list();

/// Set one option from a JSON value (`[1, 2]`, `true`, `0.5`) or from text as typed ("1,2", "yes",
/// "0.5"). `invalid_argument`: an unknown name (with the nearest known one), a wrong type, a value
/// out of range.
HR_API Result<void> set_option(TrainOptions* options, std::string_view name, const Json& value);
HR_API Result<void> set_option(PredictOptions* options, std::string_view name, const Json& value);
HR_API Result<void> set_option(BacktestOptions* options, std::string_view name, const Json& value);

/// Set every member of an object; the first error stops.
HR_API Result<void> set_options(TrainOptions* options, const Json& object);
HR_API Result<void> set_options(PredictOptions* options, const Json& object);
HR_API Result<void> set_options(BacktestOptions* options, const Json& object);

/// All options as a JSON object, in the order of the table.
HR_API Json to_json(const TrainOptions& options);
HR_API Json to_json(const PredictOptions& options);
HR_API Json to_json(const BacktestOptions& options);

/// Settle what is `auto` for this scope, apply `parity`, and check what fields say together (a
/// horizon must be given, monitor needs a validation tail, ...).
HR_API Result<TrainOptions> resolve(const TrainOptions& options, Scope scope);

/// Names that other libraries have for an option, a frequency or a column here: "prediction_length"
/// for "horizon".
HR_API std::vector<std::string_view> names_elsewhere(std::string_view option);

/// The name of `known` that is nearest to `name` (edit distance at most 3), or that `name` has
/// elsewhere, or "".
HR_API std::string nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace headrace::forecast
