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

/// What is told of the table of what came, beside what it shares with the table it continues.
struct ActualsPlace {
  std::string url;
  std::string start;   ///< first stamp of wide rows; "" = they continue the past
  std::string format;  ///< "" = as the table, unless its files are of another by their names
};

/// How the table of what came is read: as `table`, but for `place` and the start of its rows.
HR_API TableSpec actuals_spec(TableSpec table, const ActualsPlace& place);

/// Rows of a wide CSV have no stamps. Without a start of their own each begins right after the
/// item's series in `history`. Where rows repeat that series, or half of it and more, all of the
/// table begins with it: a file that holds the past alone is not taken for what came.
/// `invalid_argument`, naming items: some rows repeat the past and others do not, or all that there
/// are may as well go on with the past's own pattern.
HR_API Result<void> continue_history(const forecast::SeriesSet& history,
                                     forecast::SeriesSet* actuals);

/// `load_series` of the table at `actuals_url(spec.url)`, by the frequency of `history` where none
/// is told, with `continue_history` for a wide CSV without `spec.start`.
HR_API Result<SeriesTable> load_actuals(TableSpec spec, const forecast::SeriesSet& history,
                                        const std::vector<std::string>& items = {});

/// What `load_actuals` would refuse whatever is forecast: to be asked before hours of work. A wide
/// table without `actuals.start` is read beside `past`, of others the columns are looked at.
HR_API Result<void> check_actuals(const TableSpec& actuals, const TableSpec& past);

}  // namespace headrace::jobs
