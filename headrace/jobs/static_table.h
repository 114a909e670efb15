// SPDX-License-Identifier: Apache-2.0
// Static covariates in a table of their own: a row per item, joined to the series' rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
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
/// from the table that has it; `invalid_argument` when both have it. Thread-safe once it is read.
class StaticTable {
 public:
  /// `spec.static_table`, or `stream` when one is given (borrowed, read once), beside a table of
  /// the columns `first`. `not_found`, `corrupt`, ... as of any table; `not_found` too when neither
  /// has a column (lists both tables').
  static Result<StaticTable> open(const TableSpec& spec, const lake::Schema& first,
                                  lake::BatchReader* stream = nullptr);

  /// Take out of `columns`, those of the first table, what this one has.
  void leave_out(lake::SeriesColumns* columns) const;

  /// Read the rows, once. `invalid_argument`: items with several (names the first of them).
  Result<void> read();
  int64_t bytes_read() const { return rows_.stats.bytes_read; }  ///< from storage
  int64_t bytes() const;                                         ///< that the rows take in memory

  /// Put this table's columns into the rows of the first, as if they had been there.
  /// `not_found`: items without a row.
  Result<void> join(const TableSpec& spec, lake::SeriesRows* rows) const;

 private:
  const lake::Schema& schema() const;
  Result<void> find_columns(const TableSpec& spec, const lake::Schema& first);
  /// Rows of these items, in their order.
  Result<std::vector<size_t>> places_of(const std::vector<std::string>& items,
                                        const std::string& first_url) const;
  bool has_columns() const { return !columns_.categories.empty() || !columns_.reals.empty(); }

  std::string url_;
  std::optional<lake::Table> table_;
  lake::BatchReader* stream_ = nullptr;
  lake::StaticColumns columns_;
  lake::StaticRows rows_;
  std::unordered_map<std::string_view, size_t> places_;  // of the items in rows_, which owns them
};

}  // namespace headrace::jobs
