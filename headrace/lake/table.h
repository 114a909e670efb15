// SPDX-License-Identifier: Apache-2.0
// A table in a data lake: one file, a glob, a folder or a hive-partitioned folder of Parquet, CSV
// or GluonTS JSON lines, local or in any file system that Arrow knows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/lake/column.h"
#include "headrace/lake/predicate.h"

namespace headrace::lake {

enum class Format : uint8_t { automatic, parquet, csv, wide_csv, json_lines };

/// "parquet", "csv", "wide_csv", "json_lines".
HR_API std::string_view format_name(Format format);

struct TableOptions {
  /// `automatic`: by the names' endings (.parquet .pq, .csv .csv.gz .tsv, .json .jsonl and .gz). A
  /// CSV file is taken for wide (M4) only when told. One file that begins as Parquet is Parquet,
  /// whatever text it is told to be.
  Format format = Format::automatic;
  /// Types of columns of CSV, and of partition values, by name; others are found from the values.
  std::map<std::string, Type> types = {};
  /// Empty: all time stamps of a column must have one zone, or none (`mismatch` otherwise). "UTC":
  /// stamps with a zone are instants, stamps without are taken for UTC.
  std::string zone = {};
  /// A file that lacks a column of the others gives nulls instead of `mismatch`.
  bool allow_missing_columns = false;
  /// Wide CSV and JSON lines hold no stamp per value. Given this (stamp of a start and an index: a
  /// forecaster's frequency), their tables have a column `timestamp` too.
  std::function<int64_t(int64_t start_us, int64_t index)> stamp = {};
  int64_t wide_start_us = 0;  ///< first stamp of each row of a wide CSV
  /// JSON lines: the month a year ends with, where a start is named by quarter or year ("2015Q3").
  int year_end_month = 12;
  /// JSON lines: feat_static_cat_K must be below the K-th of these; none: any value.
  std::vector<int64_t> cardinalities = {};
};

struct FileInfo {
  std::string path = {};  ///< as the file system names it
  std::string name = {};  ///< relative to the table
  int64_t bytes = 0;
  int64_t modified_us = 0;
  int64_t rows = -1;            ///< -1: not known without reading (text formats)
  int64_t row_groups = 0;       ///< Parquet
  std::string written_by = {};  ///< Parquet: "parquet-cpp-arrow version 26.0.1"
};

/// What a read cost.
struct ReadStats {
  int64_t files_total = 0;
  int64_t files_read = 0;
  int64_t row_groups_total = 0;
  int64_t row_groups_read = 0;
  int64_t bytes_read = 0;     ///< from storage, footers included when they were read for this
  int64_t rows_read = 0;      ///< decoded
  int64_t rows_returned = 0;  ///< after the predicate
};

struct ReadOptions {
  std::vector<std::string> columns = {};  ///< in this order; empty: all readable ones
  Predicate predicate = {};               ///< need not be bound
  int64_t batch_rows = 65536;             ///< at most; bounds the memory of a stream
  int64_t rows_max = -1;                  ///< stop after so many rows; -1: all
};

/// A stream of batches with bounded memory: one row group's compressed columns and one batch. Not
/// thread-safe.
class HR_API BatchReader {
 public:
  virtual ~BatchReader() = default;
  /// Columns of every batch; partition columns included when asked for.
  virtual const Schema& schema() const = 0;
  /// The next rows, never an empty batch; nullopt at the end. Errors name the file and the row
  /// group (Parquet) or the line (text).
  virtual Result<std::optional<Batch>> next() = 0;
  virtual const ReadStats& stats() const = 0;
};

/// Read `reader` to its end.
HR_API Result<Batch> read_all(BatchReader& reader);

/// Distinct values of a column and how often each occurs; nulls are counted apart.
struct Distinct {
  Column values;  ///< in the order of first appearance
  std::vector<int64_t> counts;
  int64_t nulls = 0;
  ReadStats stats;
};

/// What a table held when it was opened: for the lineage of what was made of it.
struct Snapshot {
  /// BLAKE2b-256 of names, sizes and content hashes of the files: the same for a copy of the table.
  std::string digest;
  std::vector<FileInfo> files;
};

/// An opened table: its files are listed and their footers read. Thread-safe; readers are
/// independent of one another.
class HR_API Table {
 public:
  /// `url`: a path, "file:///...", "s3://bucket/...", or either with * ? [..] ** in it. Errors:
  /// `not_found` (nothing there; a folder without data files), `corrupt` (names the file),
  /// `mismatch` (files differ in columns, types or zones; names both), `unsupported`.
  static Result<Table> open(const std::string& url, const TableOptions& options = {});
  Table(Table&&) noexcept;
  Table& operator=(Table&&) noexcept;
  ~Table();

  const std::string& url() const;
  Format format() const;
  const Schema& schema() const;
  const std::vector<FileInfo>& files() const;
  int64_t rows() const;  ///< -1 when only reading tells

  /// A stream of the rows, in the order of files (sorted by name) and rows.
  Result<std::unique_ptr<BatchReader>> scan(const ReadOptions& options = {}) const;
  /// All at once.
  Result<Batch> read(const ReadOptions& options = {}, ReadStats* stats = nullptr) const;
  /// Distinct values of `column`: from folder names and statistics where they suffice, else by
  /// reading that column alone.
  Result<Distinct> distinct(const std::string& column) const;
  /// For Parquet reads nothing more: the footers' bytes stand for the content.
  Result<Snapshot> snapshot() const;
  /// Columns by which the row groups are in ascending order, by their statistics.
  std::vector<std::string> sorted_by() const;

  struct State;

 private:
  explicit Table(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;  // shared with the readers, which may outlive the table
};

/// The files of a table as its storage lists them; none is opened. Tells whether a table that was
/// read has changed since, by names, sizes and times.
struct TableFiles {
  Format format = Format::automatic;  ///< as found by their endings, or as told
  std::vector<FileInfo> files;
};
HR_API Result<TableFiles> list_table_files(const std::string& url,
                                           Format format = Format::automatic);

/// What a file that is written at a local path would be to a table: the very file that it is read
/// from, under whatever name (a hard or symbolic link), or one more of its folder or glob.
enum class TablePart : uint8_t { none, same_file, one_more };
/// `none` of tables that are not local, and where nothing is at `url`.
HR_API TablePart part_of_table(const std::string& url, Format format,
                               const std::filesystem::path& path);

/// "26.0.1": the Arrow that is linked, which may be another than an installed pyarrow.
HR_API std::string arrow_version();

}  // namespace headrace::lake
