// SPDX-License-Identifier: Apache-2.0
// Series out of a table of the lake: which columns mean what, one item or all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/series.h"
#include "headrace/jobs/table_spec.h"
#include "headrace/lake/table.h"
#include "headrace/registry/types.h"

namespace headrace::jobs {

struct SeriesTable {
  forecast::SeriesSet set;
  bool without_start = false;  ///< rows of a wide CSV, and nothing told where they begin
  registry::TableSnapshot snapshot;
  int64_t bytes_read = 0;       ///< from storage, the second table included
  int64_t row_groups_read = 0;  ///< Parquet only
  int64_t row_groups_total = 0;
};

/// A table as it is read in fact.
struct SettledTable {
  TableSpec spec;
  int64_t horizon = 0;                 ///< that the metadata tells; 0: none
  std::vector<int64_t> cardinalities;  ///< of feat_static_cat_0, ...
};

/// Follow the metadata of a GluonTS data set: its root stands for its train/, and where no
/// frequency is told it is the metadata's. Another table stays as it is. All that reads a table
/// here does so by itself; a caller needs it for the horizon. `invalid_argument`: the file cannot
/// be used.
HR_API Result<SettledTable> settle_table(const TableSpec& spec);

class StaticTable;

/// A table that stays open from item to item.
struct OpenedTable {
  lake::Table table;
  TableSpec spec;  ///< settled
  /// Rows of its `static_table` that are kept; null: read whenever they are needed.
  std::shared_ptr<const StaticTable> second;
  /// Which files it is made of, where it is kept; else asked of them whenever it is needed.
  std::optional<registry::TableSnapshot> snapshot;
};
/// `invalid_argument` when its values have no stamps of their own and no frequency is told.
HR_API Result<OpenedTable> open_series_table(const TableSpec& spec);

/// Read the table's `static_table`, where it has one, and keep its rows unless they take more than
/// `bytes_max` in memory: `load_series` then reads it no more. Returns the bytes read from storage.
HR_API Result<int64_t> keep_static(OpenedTable* opened, int64_t bytes_max);

/// Ask the files once what the table is made of: of Parquet a footer of each is read.
HR_API Result<void> keep_snapshot(OpenedTable* opened);

/// Read all series, or those of `items` (row groups without them are not touched). `not_found`: the
/// table, or an item, is not there; `invalid_argument`: a column is absent (lists those found) or
/// of a wrong type; `corrupt`: names the file.
/// `static_rows`: a stream in the place of `spec.static_table`.
HR_API Result<SeriesTable> load_series(const TableSpec& spec,
                                       const std::vector<std::string>& items = {},
                                       lake::BatchReader* static_rows = nullptr);
HR_API Result<SeriesTable> load_series(const OpenedTable& opened,
                                       const std::vector<std::string>& items = {},
                                       lake::BatchReader* static_rows = nullptr);

/// The files that decide what is read: the table's, its second table's, its metadata.
HR_API Result<lake::TableFiles> table_files(const TableSpec& spec);

/// The columns that a table is read by: those told, those of its `learned`, the usual ones.
/// `not_found`: one of them is not there.
HR_API Result<forecast::ColumnNames> table_columns(const TableSpec& spec);

/// The frequency of the whole table: as told, else the most common step of all its items. One item
/// alone may tell another (a shop that is shut at weekends), or none (a single row).
HR_API Result<forecast::Frequency> table_frequency(const TableSpec& spec);
HR_API Result<forecast::Frequency> table_frequency(const OpenedTable& opened);

/// `load_series` from a stream, such as one of Arrow's; `spec.url` names it in messages.
HR_API Result<forecast::SeriesSet> series_of(lake::BatchReader& reader, const TableSpec& spec,
                                             lake::BatchReader* static_rows = nullptr);

/// What `load_series` refuses whatever the items, without reading their rows: columns, types, the
/// zone of the stamps, a table without rows.
HR_API Result<void> check_table(const TableSpec& spec);

/// Ids in the table, those with most rows first, so that no long one is left for the end of a run;
/// of as many rows in the order of their first one. `not_found` when there are none.
HR_API Result<std::vector<std::string>> list_items(const TableSpec& spec);

}  // namespace headrace::jobs
