// SPDX-License-Identifier: Apache-2.0
// Rolling-origin backtests: forecast past stretches as if they were the future and score them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/accuracy.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/notes.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

/// A model beside the naive methods, over the same items and cells.
struct Comparison {
  Scoreboard model;  ///< an item's cells of all origins are pooled under its id
  Scoreboard seasonal_naive;
  Scoreboard naive2;
  /// Of `evaluate`: steps of the forecasts that were judged, with or without an actual value.
  int64_t forecast_steps = 0;
  std::vector<ItemError> errors;
  std::vector<Note> notes;  ///< for `group_notes`

  /// Take over the items of another comparison (of other series), in its order.
  HR_API void merge(const Comparison& other);
  /// Of these, those with an actual value.
  HR_API int64_t judged_steps() const;
};

/// Backtest the way of training: with `retrain` a model per origin, else one at the oldest cut.
/// Local scope: one model per series; give one series per call to spread items over threads, then
/// `merge`. Series too short for the oldest cut are in `errors`. Error: options; `cancelled`.
HR_API Result<Comparison> backtest(std::span<const Series> series, Scope scope,
                                   const TrainOptions& train, const BacktestOptions& options,
                                   const PredictOptions& predict, const TrainContext& context = {});

/// That no actual value lies in the forecast's range: which stamps are held, and which are needed.
HR_API std::string ranges_text(const Series& actual, const Forecast& forecast);

/// Judge forecasts against what came: `actual` are series whose target holds the values of the
/// horizon (matched by id, aligned by stamp), `training` the past. Items without a partner are in
/// `errors`.
HR_API Result<Comparison> evaluate(std::span<const Forecast> forecasts,
                                   std::span<const Series> training, std::span<const Series> actual,
                                   int season = 0);

}  // namespace headrace::forecast
