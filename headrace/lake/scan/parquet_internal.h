// SPDX-License-Identifier: Apache-2.0
// One Parquet file: footer, statistics, and row groups as plain batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/lake/column.h"
#include "headrace/lake/predicate.h"
#include "headrace/lake/scan/storage_internal.h"

namespace headrace::lake::scan {

/// Rows of one row group, batch by batch.
class RowGroupRows {
 public:
  virtual ~RowGroupRows() = default;
  virtual Result<std::optional<Batch>> next() = 0;
};

/// The footer of one file, read once. Thread-safe.
class ParquetFile {
 public:
  /// `corrupt` when it is no Parquet file or a damaged one.
  static Result<std::shared_ptr<const ParquetFile>> open(const Storage& storage,
                                                         const std::string& path, int64_t bytes,
                                                         const ByteCounter& counter);
  virtual ~ParquetFile() = default;

  virtual const Schema& schema() const = 0;
  virtual int64_t rows() const = 0;
  virtual int row_groups() const = 0;
  virtual int64_t row_group_rows(int row_group) const = 0;
  virtual const std::string& written_by() const = 0;
  /// Hex XXH3-128 of the footer's bytes: offsets, sizes and statistics of every column chunk.
  virtual Result<std::string> footer_hash(const ByteCounter& counter) const = 0;
  /// What the statistics of a row group say of `schema()[column]`; nulls: -1 when not told.
  virtual Range range(int row_group, int column, int64_t* nulls) const = 0;
  /// Read `columns` (indices in schema()) of one row group.
  virtual Result<std::unique_ptr<RowGroupRows>> read(int row_group, const std::vector<int>& columns,
                                                     int64_t batch_rows,
                                                     const ByteCounter& counter) const = 0;
};

}  // namespace headrace::lake::scan
