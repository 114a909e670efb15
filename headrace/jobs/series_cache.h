// SPDX-License-Identifier: Apache-2.0
// One item after another out of the same table: text is parsed once, not once per item.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

/// What a worker keeps of the last text table it read. Parquet is not kept: its row groups without
/// the item are not touched anyway. Not thread-safe.
class HR_API SeriesCache {
 public:
  /// `bytes_max`: a table whose series are larger is read for each item.
  explicit SeriesCache(int64_t bytes_max = int64_t{512} << 20) : bytes_max_(bytes_max) {}

  /// As `load_series(spec, {item})`; the one series, or its error. The table is read again when a
  /// file of it has changed. `SeriesTable::bytes_read` is 0 when nothing was.
  Result<SeriesTable> load(const TableSpec& spec, const std::string& item);

 private:
  /// The item's part of what was read of all of them.
  Result<SeriesTable> part_of(const TableSpec& spec, const std::string& item) const;

  int64_t bytes_max_;
  std::string key_;  // of the table that is kept and how it was read; "" = none
  SeriesTable table_;
  std::unordered_map<std::string, size_t> places_;  // of items in its series
  std::string not_kept_;                            // of a table that is read for each item
};

}  // namespace headrace::jobs
