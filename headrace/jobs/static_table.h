// SPDX-License-Identifier: Apache-2.0
// Static covariates in a table of their own: a row per item, joined to the series' rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/jobs/table_spec.h"
#include "headrace/lake/series.h"
#include "headrace/lake/table.h"

namespace headrace::jobs {

/// The column of the item ids of either table (in series_table.cc, where the usual names are).
Result<std::string> id_column(const TableSpec& spec, const lake::Schema& schema,
                              const std::string& url);

/// The second table of a TableSpec. A column that is named as a category or static covariate comes
/// from the table that has it; `invalid_argument` when both have it.
class StaticTable {
 public:
  /// `spec.static_table`, or `stream` when one is given (borrowed, read once). `not_found`,
  /// `corrupt`, ... as of any table.
  static Result<StaticTable> open(const TableSpec& spec, lake::BatchReader* stream = nullptr);

  /// Take out of `columns`, those of the first table, what this one has. `not_found`: neither has
  /// a column (lists both tables').
  Result<void> take_columns(const TableSpec& spec, const lake::Schema& first,
                            lake::SeriesColumns* columns);

  /// Put this table's columns into the rows of the first, as if they had been there.
  /// `not_found`: items without a row; `invalid_argument`: items with several (names the first of
  /// them).
  Result<void> join(const TableSpec& spec, lake::SeriesRows* rows) const;

 private:
  const lake::Schema& schema() const;

  std::string url_;
  std::optional<lake::Table> table_;
  lake::BatchReader* stream_ = nullptr;
  lake::StaticColumns columns_;
};

}  // namespace headrace::jobs
