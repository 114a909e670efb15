// SPDX-License-Identifier: Apache-2.0
// The forecaster's front: train, predict, evaluate. Pure computation on series in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/accuracy.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/series.h"
#include "headrace/forecast/training_ranks.h"

namespace headrace::forecast {

/// Where training stands, told after each epoch.
struct TrainProgress {
  int member = 0;
  int epoch = 0;   ///< 1 after the first
  int epochs = 0;  ///< at most
  double loss = 0.0;
  double monitored = 0.0;  ///< what decides which epoch is best
  int members = 1;         ///< of the model; each runs `epochs` at most
};

struct TrainContext {
  /// Asked after each epoch, from the training thread; false stops with `cancelled`.
  std::function<bool(const TrainProgress&)> progress;
  const Model* warm = nullptr;  ///< start from these weights instead of random ones; borrowed
  int threads = 1;              ///< of a global training; the result does not depend on it
  /// Asked every few steps, from the training threads; true stops with `cancelled`.
  std::function<bool()> stop;
  /// Of a global training: the ranks to share it with, borrowed; all of them call with the same
  /// series and options. The result is that of one rank but for the rounding of sums in another
  /// order, and the same on all ranks and from run to run; what one rank's `progress` or `stop`
  /// stops ends on all. `threads` is not used then: members are trained one after the other.
  TrainingRanks* ranks = nullptr;
};

struct Trained {
  Model model;
  std::vector<std::string>
      notes;  ///< sentences for the log: lags left out, few observed values, ...
};

/// Train one model for one series, on the calling thread. The result depends on the series, the
/// options, the start weights and the instruction set alone; its random numbers are derived from
/// (seed, id). A validation tail that is too short or without a value is left out, with a note.
/// `unsupported`: too short to train (n < horizon + 1), see `fallback_model`.
/// `mismatch`: the warm model differs in a named field. `invalid_argument`: options, infinite or
/// missing values, negative binomial on other than counts. `cancelled`.
HR_API Result<Trained> train_local(const Series& series, const TrainOptions& options,
                                   const TrainContext& context = {});

/// Train one model for all series; the order of the series does not matter. Series that cannot give
/// a window are passed over with a note. A validation tail that most series have no room for, or no
/// value in, is left out, with a note; the number of epochs stays. Errors as above, and
/// `invalid_argument` when none is left.
HR_API Result<Trained> train_global(std::span<const Series> series, const TrainOptions& options,
                                    const TrainContext& context = {});

/// Refuse with `mismatch` what training from `warm` would refuse whatever the series: options that
/// are not as the stored model has them, another frequency, a model without weights.
HR_API Result<void> check_warm_start(const Model& warm, const TrainOptions& options, Scope scope,
                                     const Frequency& frequency);

/// A model without parameters for a series too short to train: seasonal naive, or the last value
/// when there is less than a season.
HR_API Model fallback_model(const Series& series, const TrainOptions& options);

/// A forecast of one item.
struct Forecast {
  std::string id;
  Frequency frequency;
  int64_t start_us = 0;  ///< stamp of the first step forecast
  int horizon = 0;
  Method method = Method::deepar;
  bool with_naive = false;     ///< averaged with seasonal naive, see Model::naive_share
  bool by_global = false;      ///< by a model of all series in the place of one of the item's own
  bool unnamed = false;        ///< read of a table that does not say what made it
  std::vector<double> levels;  ///< quantile levels, ascending
  std::vector<double> quantiles;  ///< [levels][horizon]
  std::vector<double> mean;       ///< [horizon]
  std::vector<float> samples;     ///< [paths][horizon]; empty unless kept
  int64_t limited_values = 0;     ///< drawn values that ran away and were cut at the path limit

  /// Values of one level; the level must be one of `levels` (HR_CHECK).
  HR_API std::span<const double> quantile(double level) const;
};

/// What made a forecast, as tables and scores say it: a method's name, "global" where a model of
/// all series stands for one of the item's own, "deepar+naive" or "global+naive" where it was
/// averaged, "forecast" where nothing told it; and back. `invalid_argument`: no such method.
HR_API std::string made_by(const Forecast& forecast);
HR_API Result<void> set_made_by(std::string_view text, Forecast* forecast);

/// The forecast of an item by what is to be its own model: say so where `model` is one of all
/// series.
HR_API void mark_global(const Model& model, Forecast* forecast);

struct Forecasts {
  std::vector<Forecast> items;    ///< in the order of the series, without those that failed
  std::vector<ItemError> errors;  ///< e.g. an unknown category, future covariates missing
};

/// Forecast the steps after each series. Results are the same bits whatever other series are in the
/// call, and in which order. Error: options that do not fit the model. `stop`, when given, is asked
/// every few thousand values; true stops with `cancelled`.
HR_API Result<Forecasts> predict(const Model& model, std::span<const Series> series,
                                 const PredictOptions& options,
                                 const std::function<bool()>& stop = {});

}  // namespace headrace::forecast
