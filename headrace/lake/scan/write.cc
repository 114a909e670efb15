// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/write.h"

#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/compression.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <algorithm>

#include "headrace/base/json.h"
#include "headrace/lake/scan/arrow_internal.h"
#include "headrace/lake/sink_internal.h"

namespace headrace::lake {

namespace {

Result<arrow::Compression::type> compression_of(const std::string& name) {
  constexpr std::pair<std::string_view, arrow::Compression::type> kKnown[] = {
      {"none", arrow::Compression::UNCOMPRESSED}, {"snappy", arrow::Compression::SNAPPY},
      {"zstd", arrow::Compression::ZSTD},         {"gzip", arrow::Compression::GZIP},
      {"lz4", arrow::Compression::LZ4},
  };
  for (const auto& [known, type] : kKnown) {
    if (known == name) {
      return type;
    }
  }
  return Error{
      Errc::invalid_argument,
      fmt::format("compression {}: expected none, snappy, zstd, gzip or lz4", json_quote(name))};
}

bool same_value(const Column& column, int64_t a, int64_t b) {
  return column.is_null(a) == column.is_null(b) &&
         (column.is_null(a) || column.value(a) == column.value(b));
}

/// First rows of the row groups, and the number of rows at the end.
Result<std::vector<int64_t>> group_bounds(const Batch& batch, const ParquetOptions& options) {
  const Column* by = nullptr;
  if (!options.group_by.empty()) {
    by = batch.find(options.group_by);
    if (by == nullptr) {
      return missing_column(batch.schema(), options.group_by, "writing Parquet");
    }
  }
  std::vector<int64_t> bounds = {0};
  const int64_t rows = batch.rows();
  const int64_t rows_max = std::max<int64_t>(1, options.row_group_rows);
  for (int64_t row = 1; row < rows; ++row) {
    const int64_t have = row - bounds.back();
    const bool boundary =
        by != nullptr && have >= options.group_rows_min && !same_value(*by, row - 1, row);
    if (have >= rows_max || boundary) {
      bounds.push_back(row);
    }
  }
  bounds.push_back(rows);
  return bounds;
}

Result<void> write_groups(const Batch& batch, const ParquetOptions& options,
                          const std::string& where, scan::ByteSink* sink) {
  HR_TRY(const auto compression, compression_of(options.compression));
  HR_TRY(const auto bounds, group_bounds(batch, options));
  const auto properties = parquet::WriterProperties::Builder()
                              .compression(compression)
                              ->enable_page_checksum()
                              ->max_row_group_length(INT64_MAX)
                              ->build();
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  HR_ARROW(auto writer,
           parquet::arrow::FileWriter::Open(*scan::arrow_schema(batch.schema()),
                                            arrow::default_memory_pool(), scan::arrow_output(sink),
                                            properties, arrow_properties),
           where);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    if (bounds[i + 1] == bounds[i]) {
      continue;  // a table without rows has no row group
    }
    HR_TRY(const auto rows, scan::arrow_batch(batch, bounds[i], bounds[i + 1] - bounds[i]), where);
    HR_ARROW_OK(writer->NewBufferedRowGroup(), where);
    HR_ARROW_OK(writer->WriteRecordBatch(*rows), where);
  }
  HR_ARROW_OK(writer->Close(), where);
  return {};
}

}  // namespace

Result<void> write_parquet(const base::Path& path, const Batch& batch,
                           const ParquetOptions& options) {
  HR_TRY(auto file, base::FileReplacement::begin(path));
  FileSink sink(&file);
  const Result<void> written = scan::guarded(
      path.string(), [&] { return write_groups(batch, options, path.string(), &sink); });
  HR_TRY(sink.first_error());  // Arrow carries no code: a full disk shall be told as one
  HR_TRY(written);
  return file.commit();
}

}  // namespace headrace::lake
