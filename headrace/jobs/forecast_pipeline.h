// SPDX-License-Identifier: Apache-2.0
// The pipeline behind `headrace forecast train`: global models, one model per item, evaluation.
#pragma once

#include <string>

#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

struct ForecastPipeline {
  std::string name;            ///< of the pipeline and, as a prefix, of the models
  TableSpec table;             ///< url absolute
  std::string actuals;         ///< url of what came after; "" = judge by the backtests
  std::string actuals_format;  ///< of that table; "" = as the table, or by its name
  std::string actuals_start;   ///< first stamp of wide actuals; "" = they continue the past
  std::string registry;        ///< folder; "" = the usual one
  int global_members = 3;      ///< 0: local models start cold and compete with naive methods only
  int slots = 0;               ///< items at a time; 0 = by cores
  /// A registered model to start from instead of global members of its own, or a set of one per
  /// item.
  std::string warm_start;
  Json train = Json::object();    ///< options that were given, by name
  Json predict = Json::object();  ///< those of the items' forecasts
};

/// The document, in Data Factory's Git form: `headrace flow run` takes it as it is.
/// `invalid_argument`: options that either stage would refuse.
HR_API Result<Json> forecast_pipeline(const ForecastPipeline& spec);

}  // namespace headrace::jobs
