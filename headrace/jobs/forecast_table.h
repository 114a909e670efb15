// SPDX-License-Identifier: Apache-2.0
// Forecasts as a table: one row per item and step, in Parquet or CSV, and back.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/lake/column.h"
#include "headrace/lake/table.h"

namespace headrace::jobs {

/// Columns item_id, timestamp, step (1 ... horizon), mean, q<level> for each level ("q0.1"), model
/// (what made the forecast, as `forecast::made_by`) and, where they were kept, samples (a list of
/// 32-bit floats, one value per path). `names` are those of the first two where they are known and
/// no other column has them; ids are whole numbers where they are said to be, stamps in their zone.
/// All forecasts must have the same levels and as many samples
/// (`invalid_argument`).
HR_API Result<lake::Batch> forecast_batch(std::span<const forecast::Forecast> forecasts,
                                          const forecast::ColumnNames& names = {});

/// Write them; the ending decides between .parquet and .csv. The file is replaced durably.
HR_API Result<void> write_forecasts(const base::Path& path,
                                    std::span<const forecast::Forecast> forecasts,
                                    const forecast::ColumnNames& names = {});

/// A column of ids, one per row, as whole numbers where all of them are.
HR_API lake::Column integer_column(const lake::Column& texts);

/// Whether a table can be written under this name: .parquet, .csv or .csv.gz. `invalid_argument`
/// says so of `what` ("forecasts"). To be asked before hours of work, not after.
HR_API Result<void> check_ending(const base::Path& path, const std::string& what);
/// Write a batch as its checked ending says.
HR_API Result<void> write_by_ending(const base::Path& path, const lake::Batch& batch);

/// Read such a table again, whoever wrote it: time stamps or dates, whole numbers or reals;
/// quantiles are found by their columns' names, paths in `samples`: lists of floats of any kind, or
/// text as CSV has them. Ids and stamps are in the first two columns
/// where `step` follows them, as `forecast_batch` writes them, else in those that `names` tells or
/// in those of the usual names. Without a `frequency` it is the most common step,
/// which a horizon of one does not tell. `not_found`: a column is missing. `invalid_argument`: one
/// is of a type that does not fit, a cell is empty, or an item has not one row per step, or not as
/// many samples at each (names it).
HR_API Result<std::vector<forecast::Forecast>> read_forecast_table(
    const base::Path& path, const std::optional<forecast::Frequency>& frequency = {},
    const forecast::ColumnNames& names = {});
/// The same from a stream, such as one of Arrow's; `where` names it in messages.
HR_API Result<std::vector<forecast::Forecast>> forecasts_of(
    lake::BatchReader& reader, const std::string& where,
    const std::optional<forecast::Frequency>& frequency = {},
    const forecast::ColumnNames& names = {});

/// The columns of ids and stamps of such a file, found in the same way.
HR_API Result<forecast::ColumnNames> forecast_columns(const base::Path& path,
                                                      const forecast::ColumnNames& names = {});

}  // namespace headrace::jobs
