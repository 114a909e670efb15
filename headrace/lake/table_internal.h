// SPDX-License-Identifier: Apache-2.0
// What an opened table knows: files, footers or text shape, partition values, one schema.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/lake/listing_internal.h"
#include "headrace/lake/scan/parquet_internal.h"
#include "headrace/lake/table.h"
#include "headrace/lake/text_internal.h"

namespace headrace::lake {

/// The state of a Table; constant once it is open.
struct Table::State {
  std::string url;
  TableOptions options;
  scan::Storage storage;
  Format format = Format::parquet;
  Schema schema;  ///< physical columns, then partition columns that no file holds
  std::vector<FileInfo> files;
  std::vector<std::shared_ptr<const scan::ParquetFile>> parquet;  ///< per file
  TextShape text;
  std::vector<std::vector<Value>> partitions;  ///< per file, per partition column of `schema`
  std::vector<size_t> partition_fields;        ///< their indices in `schema`

  bool is_parquet() const { return format == Format::parquet; }
  /// Value of a column that a file has in its folder's name; nullptr for others.
  const Value* partition_value(size_t file, size_t field) const;
  /// Index of `schema[field]` in a Parquet file's own schema; -1 when it lacks the column.
  int file_column(size_t file, size_t field) const;
  int row_groups(size_t file) const;
  /// What is known of a column in a row group without reading it.
  Range range(size_t file, int row_group, size_t field, int64_t* nulls) const;
};

/// A row group of a Parquet file, or (0) a whole text file.
struct Unit {
  size_t file = 0;
  int row_group = 0;
};

/// The rows of one unit: `fields` of the table's schema in that order, with nulls for columns that
/// the file lacks and partition values filled in.
class UnitRows {
 public:
  static Result<UnitRows> open(const Table::State& table, const Unit& unit,
                               const std::vector<size_t>& fields, int64_t batch_rows,
                               const scan::ByteCounter& counter);
  Result<std::optional<Batch>> next();

 private:
  const Table::State* table_ = nullptr;
  Unit unit_;
  std::vector<size_t> fields_;
  std::vector<int64_t> place_;  ///< column of the file's batch for each field; -1: not in the file
  int64_t rows_left_ = 0;       ///< when nothing has to be read of the file itself
  int64_t batch_rows_ = 0;
  std::unique_ptr<scan::RowGroupRows> rows_;
};

/// The columns of a read: those asked for (or all readable ones) and those only its predicate
/// needs.
struct ReadPlan {
  std::vector<size_t> fields;  ///< indices in the table's schema, without doubles
  std::vector<size_t> order;   ///< for each returned column its index in `fields`
  Predicate predicate;         ///< bound
};
Result<ReadPlan> plan_read(const Table::State& table, const ReadOptions& options);

Result<std::unique_ptr<BatchReader>> make_reader(std::shared_ptr<const Table::State> table,
                                                 const ReadOptions& options);

}  // namespace headrace::lake
