// SPDX-License-Identifier: Apache-2.0
// Columns that grow: values one by one from text, or batch by batch from files.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headrace/lake/column.h"

namespace headrace::lake {

/// Grow one column. Text values are found again by a hash table, so that the dictionary holds each
/// once.
class ColumnBuilder {
 public:
  explicit ColumnBuilder(Field field);
  explicit ColumnBuilder(Column column);

  /// The field may be set while there are only nulls.
  const Field& field() const { return column_.field; }
  int64_t rows() const { return column_.rows(); }
  void add_null(int64_t count = 1);
  void add_integer(int64_t value);  ///< also time stamps, dates, booleans
  void add_real(double value);
  void add_text(std::string_view value);
  /// `value` of the builder's type, or null, `count` times.
  void add_value(const Value& value, int64_t count = 1);
  /// `mismatch` when the types differ; a column of type null goes with every other.
  Result<void> append(const Column& more);
  Column take();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  int32_t code_of(std::string_view text);
  void become(const Field& field);
  void mark_valid(int64_t count, bool valid);

  Column column_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> known_;
};

/// Grow a batch.
class BatchBuilder {
 public:
  explicit BatchBuilder(const Schema& schema);
  explicit BatchBuilder(Batch batch);
  ColumnBuilder& operator[](size_t column) { return columns_[column]; }
  int64_t rows() const { return columns_.empty() ? 0 : columns_.front().rows(); }
  Result<void> append(const Batch& more);
  /// What has grown; the builder is empty then, with the same fields.
  Batch take();

 private:
  std::vector<ColumnBuilder> columns_;
};

}  // namespace headrace::lake
