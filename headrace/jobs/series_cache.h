// SPDX-License-Identifier: Apache-2.0
// One item after another out of the same table, without reading the table once per item.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

/// What a worker keeps of the table it read last. Text is read whole at the first item. Of Parquet
/// only the item's row groups are read, until those reads together come to the whole table twice,
/// which a table sorted by item hardly reaches: then it is read whole. Its table of static
/// covariates is read once. Not thread-safe.
class HR_API SeriesCache {
 public:
  /// `bytes_max`: a table whose series are larger is not kept, but read item by item; so is a
  /// second table whose rows are larger, read for each item then.
  explicit SeriesCache(int64_t bytes_max = int64_t{512} << 20) : bytes_max_(bytes_max) {}

  /// As `load_series(spec, {item})`, but for a frequency that is not told, which is the whole
  /// table's; the one series, or its error. The table is opened again when a file of it has
  /// changed; one on an object store is listed once, and a change there is not seen.
  /// `SeriesTable::bytes_read` is 0 when nothing was.
  Result<SeriesTable> load(const TableSpec& spec, const std::string& item);

 private:
  /// Forget the table before and open this one; bytes read of its second table.
  Result<int64_t> open(const TableSpec& spec, lake::TableFiles files);
  Result<SeriesTable> read(const std::string& item);
  bool worth_keeping() const;
  /// Read all of it; `whole_` stays empty when it is too large.
  Result<SeriesTable> load_whole(const std::string& item);
  /// The item's part of what was read of all of them.
  Result<SeriesTable> part_of(const std::string& item) const;

  int64_t bytes_max_;
  std::string key_;  // of the table and how it is read; "" = none
  lake::TableFiles files_;
  std::optional<OpenedTable> opened_;  // with its frequency
  double tables_read_ = 0.0;           // item by item, in units of the whole table
  bool keep_ = true;                   // false: it is too large, or cannot be read as a whole
  std::optional<SeriesTable> whole_;
  std::unordered_map<std::string, size_t> places_;  // of items in its series
};

}  // namespace headrace::jobs
