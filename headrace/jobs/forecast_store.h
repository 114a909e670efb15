// SPDX-License-Identifier: Apache-2.0
// Forecasts of a run while it goes on: each worker appends to a log of its own, a reader gets all
// of them. No file per item, nothing lost when a worker is killed.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/append_log.h"
#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"

namespace headrace::jobs {

/// One item's result. `scores`: by candidate, by metric, from the backtest that chose the winner.
struct ItemForecast {
  forecast::Forecast forecast;
  std::string winner;             ///< "local", "global", "seasonal_naive", ...
  std::string model;              ///< reference in the registry
  int season = 0;                 ///< steps, as the model was told or by frequency; 0 = not known
  forecast::ColumnNames columns;  ///< of item ids and stamps in the table it was read from
  double seconds = 0.0;
  std::map<std::string, std::map<std::string, double>> scores;
  std::vector<std::string> notes;
};

/// Writer of one process. Not thread-safe.
class HR_API ForecastWriter {
 public:
  /// Makes RUN/forecasts and a log in it that nobody else writes.
  static Result<ForecastWriter> open(const base::Path& run_folder);
  /// Durable on return.
  Result<void> append(const ItemForecast& item);

 private:
  explicit ForecastWriter(base::AppendLog log) : log_(std::move(log)) {}
  base::AppendLog log_;
};

/// All items, by id; of an item that was written twice (a retry) the later record.
HR_API Result<std::map<std::string, ItemForecast>> read_forecasts(const base::Path& run_folder);

}  // namespace headrace::jobs
