// SPDX-License-Identifier: Apache-2.0
// Where series are and how to read them, as commands, properties, Python and a run's files say it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/forecast/series.h"

namespace headrace::jobs {

struct TableSpec {
  std::string url;     ///< file, folder, glob: Parquet, CSV (long or wide), GluonTS JSON lines
  std::string format;  ///< "" = by the name's ending; "parquet", "csv", "wide_csv", "jsonl"
  /// Column names; "" means the usual ones: item_id or unique_id, timestamp or ds, target or y.
  std::string id;
  std::string time;
  std::string target;
  std::string frequency;            ///< "" = guessed from the most common step
  std::string start;                ///< first stamp of wide tables; "" = 1970-01-01
  std::string aggregate = "error";  ///< rows of one item and stamp: error, sum, mean, last
  std::string zone;                 ///< "UTC": stamps with a zone are instants, others are UTC too
  bool allow_missing_columns = false;  ///< a file that lacks a column of the others gives nulls
  std::string
      metadata;  ///< file of a GluonTS data set that tells the frequency; "" = beside train/
  std::string static_table;  ///< a row per item with categories and static covariates; "" = none
  std::vector<std::string> categories;
  std::vector<std::string> static_reals;
  std::vector<std::string> dynamic_reals;
  /// Columns of the table that a model was trained on: taken where no other are told and the table
  /// has all of them, or none of the usual ones. Its start is that of a wide table, and its zone
  /// that of the stamps, where none is told.
  forecast::ColumnNames learned;
};

/// A table of static covariates of which training would read no column: `invalid_argument`. For
/// what trains; a model knows its columns itself.
HR_API Result<void> check_static_named(const TableSpec& spec);

/// A text of a table beside its url, under the name it has as an option, a property and a key.
struct TableText {
  const char* name;
  std::string TableSpec::* field;
};
HR_API std::span<const TableText> table_texts();

/// All of it but the covariates, which belong to the training: "url", the texts,
/// "allow_missing_columns".
HR_API Json to_json(const TableSpec& spec);
/// The same back; also "categories", "static_reals", "dynamic_reals" and "learned" {"id", "time",
/// "target", "start", "zone"}. What is absent, or of
/// another type, keeps its default.
HR_API TableSpec table_spec_of(const Json& json);

}  // namespace headrace::jobs
