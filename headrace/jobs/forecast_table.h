// SPDX-License-Identifier: Apache-2.0
// Forecasts as a table: one row per item and step, in Parquet or CSV, and back.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/lake/column.h"

namespace headrace::jobs {

/// Columns item_id, timestamp, step (1 ... horizon), mean, q<level> for each level ("q0.1"), model
/// (what made the forecast) and, where they were kept, samples (a list of 32-bit floats, one value
/// per path). All forecasts must have the same levels and as many samples (`invalid_argument`).
HR_API Result<lake::Batch> forecast_batch(std::span<const forecast::Forecast> forecasts);

/// Write them; the ending decides between .parquet and .csv. The file is replaced durably.
HR_API Result<void> write_forecasts(const base::Path& path,
                                    std::span<const forecast::Forecast> forecasts);

/// Read such a table again. Frequency and quantiles are found from the columns.
HR_API Result<std::vector<forecast::Forecast>> read_forecast_table(const base::Path& path);
/// The same from rows in memory; `where` names them in messages.
HR_API Result<std::vector<forecast::Forecast>> forecasts_of(const lake::Batch& batch,
                                                            const std::string& where);

}  // namespace headrace::jobs
