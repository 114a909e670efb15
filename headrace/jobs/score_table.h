// SPDX-License-Identifier: Apache-2.0
// The scores of a comparison as tables: a row per item and method, a row per step ahead.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/forecast/backtest.h"
#include "headrace/lake/column.h"

namespace headrace::jobs {

/// Metrics by name as an object, as `Metrics::named` and `Scoreboard::named_totals` give them.
HR_API Json metrics_json(const std::map<std::string, double>& named);

/// Which items of a board have no MASE and why: a sentence for those that are constant before the
/// forecast, one for those without two values a season apart.
HR_API std::vector<std::string> without_mase(const forecast::Scoreboard& board);

/// Columns item_id, method and one per metric (`forecast::Metrics::named`): the model's items
/// first, then those of "seasonal_naive_point", then those of "naive2_point": a forecast of the
/// model's may be by "seasonal_naive", with intervals. A metric that an item has not is
/// null. `integer_ids`: as `ColumnNames`.
HR_API lake::Batch item_scores(const forecast::Comparison& comparison, bool integer_ids = false);

/// Columns step (1 ... horizon) and one per metric, over all items of one board.
HR_API lake::Batch step_scores(const forecast::Scoreboard& board);

/// Write `item_scores`; the ending decides between .parquet and .csv. The file is replaced durably.
HR_API Result<void> write_item_scores(const base::Path& path,
                                      const forecast::Comparison& comparison,
                                      bool integer_ids = false);

}  // namespace headrace::jobs
