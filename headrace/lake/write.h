// SPDX-License-Identifier: Apache-2.0
// Tables written: Parquet and CSV, each file whole or not there.
#pragma once

#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/lake/column.h"

namespace headrace::lake {

struct ParquetOptions {
  int64_t row_group_rows = 1 << 20;
  std::string compression = "zstd";  ///< "none", "snappy", "zstd", "gzip", "lz4"
  /// Begin a new row group when the value of this column changes and the group has
  /// `group_rows_min` rows: one item is then found without reading its neighbours. Empty: do not.
  std::string group_by = {};
  int64_t group_rows_min = 1;
};

/// Write `batch` to a local file through a temporary file beside it (fdatasync, rename): afterwards
/// `path` is the old file or the whole new one. Pages carry checksums. `out_of_space` when the disk
/// is full.
HR_API Result<void> write_parquet(const base::Path& path, const Batch& batch,
                                  const ParquetOptions& options = {});

/// Write `batch` as CSV (RFC 4180, LF, header): nulls are empty cells, an empty text is "", time
/// stamps ISO 8601, numbers in the shortest form that reads back the same. Packed when `path` ends
/// in .gz.
HR_API Result<void> write_csv(const base::Path& path, const Batch& batch);

}  // namespace headrace::lake
