// SPDX-License-Identifier: Apache-2.0
// Judge a run's forecasts against what came and against the naive methods, and keep the result in
// the run's folder: forecasts.parquet, forecasts.csv, evaluation.json.
#pragma once

#include <map>
#include <string>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

/// Evaluate the forecasts stored under `run_folder`. `table` is the past they were made from,
/// `actuals` what came; with an empty url the backtests that chose the models are summed up
/// instead. Returns the summary: "items", "winners" by name, "judged_on" ("actuals" or "backtest"),
/// metrics of the model ("mase", "median_mase", "smape", "owa", "mean_wql", "mean_item_wql",
/// "coverage_80", ...), the same of "seasonal_naive" and "naive2", and "text": some lines for a
/// person.
HR_API Result<Json> evaluate_run(const base::Path& run_folder, const TableSpec& table,
                                 const TableSpec& actuals);

/// What `evaluate_run` left: {"summary", "items", "table", "actuals"}. `not_found` when it has not
/// run.
HR_API Result<Json> read_evaluation(const base::Path& run_folder);

}  // namespace headrace::jobs
