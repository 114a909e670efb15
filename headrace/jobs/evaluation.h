// SPDX-License-Identifier: Apache-2.0
// Judge a run's forecasts against what came and against the naive methods, and keep the result in
// the run's folder: forecasts.parquet, forecasts.csv, evaluation.json.
#pragma once

#include <span>
#include <string>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/forecast/backtest.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

/// `forecast::evaluate` on what was read of two tables: an item whose rows could not be used has
/// what is wrong with them in `errors`, not their absence.
HR_API Result<forecast::Comparison> judge(std::span<const forecast::Forecast> forecasts,
                                          const forecast::SeriesSet& history,
                                          const forecast::SeriesSet& actuals, int season = 0);

/// How many items each method was chosen for, by a run's summary: "3 local, 1 global+naive",
/// by `candidate_label`.
HR_API std::string winners_text(const Json& summary);

/// A sentence on the forecasts that could not be judged; "" when all were.
HR_API std::string unjudged_text(const forecast::Comparison& comparison);

/// "6 of 24 steps judged: the others ..."; "" when all steps of the forecasts were.
HR_API std::string judged_steps_text(const forecast::Comparison& comparison);

/// Evaluate the forecasts stored under `run_folder`. `table` is the past they were made from,
/// `actuals` what came (`load_actuals`); with an empty url the backtests that chose the models are
/// summed up instead, each item weighing the same: of each candidate, and of what was taken
/// ("as_chosen"), the means over the "common_items" that all candidates which most items have were
/// scored on, and on how many items it was ("items"); of a candidate of few items that number
/// alone. Returns the summary: "items", "winners" by name, "judged_on"
/// ("actuals" or "backtest"), metrics of the model ("mase", "median_mase", "smape", "owa",
/// "mean_wql", "mean_item_wql", "coverage_80", ...), the same of "seasonal_naive" and "naive2", and
/// "judged_steps" of "forecast_steps" (of the items that were judged), "constant_items" and
/// "unscaled_items" (those without a MASE), "notes" of items, equal ones told once, and "text":
/// some lines for a person. What could not be judged on `actuals` is in "not_judged" [{"item",
/// "message"}] and, as a sentence, in "warning"; when nothing could, backtests are summed up too.
HR_API Result<Json> evaluate_run(const base::Path& run_folder, const TableSpec& table,
                                 const TableSpec& actuals);

/// What `evaluate_run` left: {"summary", "items", "table", "actuals"}. `not_found` when it has not
/// run.
HR_API Result<Json> read_evaluation(const base::Path& run_folder);

}  // namespace headrace::jobs
