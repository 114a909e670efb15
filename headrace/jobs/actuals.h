// SPDX-License-Identifier: Apache-2.0
// What came after the series of a table: where it lies and from which stamp on.
#pragma once

#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/series.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

/// Where the values that came lie: the test/ of a GluonTS data set when `url` is its root, else
/// `url`. `metadata`: the file that is named in the place of the data set's own.
/// `invalid_argument`: the data set has no test/; its train/ is never taken for what came.
HR_API Result<std::string> actuals_url(const std::string& url, const std::string& metadata = {});

/// Rows of a wide CSV have no stamps. Without a start of their own each begins right after the
/// item's series in `history`; one that repeats that series, or half of it and more, begins with
/// it: a file that holds the past alone is not taken for what came.
HR_API void continue_history(const forecast::SeriesSet& history, forecast::SeriesSet* actuals);

/// `load_series` of the table at `actuals_url(spec.url)`, by the frequency of `history` where none
/// is told, with `continue_history` for a wide CSV without `spec.start`.
HR_API Result<SeriesTable> load_actuals(TableSpec spec, const forecast::SeriesSet& history,
                                        const std::vector<std::string>& items = {});

}  // namespace headrace::jobs
