// SPDX-License-Identifier: Apache-2.0
// What a HeadraceForecast activity may be told: its typeProperties, read and checked in one place.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/selection.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

enum class ForecastOperation : uint8_t { items, train_global, train_local, evaluate };

struct ForecastProperties {
  ForecastOperation operation = ForecastOperation::items;
  TableSpec table;
  TableSpec actuals;     ///< evaluate: what came; url "" = none
  std::string item;      ///< train local
  std::string model;     ///< name in the registry, or the prefix of items' names
  std::string registry;  ///< folder; "" = the usual one
  /// References of global models, joined to an ensemble, or a set of one model per item.
  std::vector<std::string> warm_start;
  bool start_warm = true;  ///< local weights start from the ensemble; false: it only competes
  bool choose = true;      ///< choose by backtest among local, global and naive
  int threads = 1;         ///< of a global training
  forecast::TrainOptions train;
  Json train_warm = Json::object();  ///< laid over `train` where local weights start from others
  forecast::PredictOptions predict;
  forecast::SelectOptions select;
};

/// Read evaluated properties; paths that are not absolute start at `folder`. `invalid_argument`
/// names the property, its value and what is allowed.
HR_API Result<ForecastProperties> read_forecast_properties(const Json& properties,
                                                           const base::Path& folder);

/// Check what is literal before a run: names, types, ranges, and that what the operation needs is
/// there. `names` are those of all properties; values that are expressions are in them alone.
HR_API Result<void> check_forecast_properties(const Json& properties,
                                              std::span<const std::string> names);

/// All property names beside the required ones.
HR_API std::vector<std::string> forecast_property_names();

}  // namespace headrace::jobs
