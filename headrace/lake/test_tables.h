// SPDX-License-Identifier: Apache-2.0
// For tests: batches in a line, files in a folder.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/test_folder.h"
#include "headrace/lake/table.h"
#include "headrace/lake/write.h"

namespace headrace::lake {

inline Column integers(std::string name, std::vector<int64_t> values, Type type = Type::int64,
                       std::string zone = {}) {
  Column out;
  out.field.name = std::move(name);
  out.field.type = type;
  out.field.zone = std::move(zone);
  out.integers = std::move(values);
  return out;
}

inline Column stamps(std::string name, std::vector<int64_t> values, std::string zone = {}) {
  return integers(std::move(name), std::move(values), Type::timestamp_us, std::move(zone));
}

inline Column reals(std::string name, std::vector<double> values) {
  Column out;
  out.field.name = std::move(name);
  out.field.type = Type::float64;
  out.reals = std::move(values);
  return out;
}

inline Column texts(std::string name, const std::vector<std::optional<std::string>>& values) {
  Column out;
  out.field.name = std::move(name);
  out.field.type = Type::string;
  for (const auto& value : values) {
    int32_t code = -1;
    if (value) {
      size_t at = 0;
      while (at < out.dictionary.size() && out.dictionary[at] != *value) {
        ++at;
      }
      if (at == out.dictionary.size()) {
        out.dictionary.push_back(*value);
      }
      code = static_cast<int32_t>(at);
    }
    out.codes.push_back(code);
  }
  return out;
}

inline Column nulled(Column column, const std::vector<int64_t>& rows) {
  column.validity.assign(static_cast<size_t>(column.rows()), 1);
  for (const int64_t row : rows) {
    column.validity[static_cast<size_t>(row)] = 0;
    if (column.field.type == Type::float64) {
      column.reals[static_cast<size_t>(row)] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  return column;
}

/// All cells as text, row by row, "null" for null: easy to compare and to read.
inline std::vector<std::string> rows_as_text(const Batch& batch) {
  std::vector<std::string> out;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    std::string line;
    for (const Column& column : batch.columns) {
      line += (&column == batch.columns.data() ? "" : "|") +
              (column.is_null(row) ? "null" : column.text(row));
    }
    out.push_back(line);
  }
  return out;
}

inline void put_file(const base::Path& path, std::string_view text) {
  REQUIRE(base::make_folders(path.parent_path()).ok());
  REQUIRE(base::replace_file(path, text).ok());
}

inline void put_parquet(const base::Path& path, const Batch& batch,
                        const ParquetOptions& options = {}) {
  REQUIRE(base::make_folders(path.parent_path()).ok());
  REQUIRE(write_parquet(path, batch, options).ok());
}

/// The error of opening or reading `url`; fails when there is none.
inline Error error_of(const std::string& url, const TableOptions& options = {},
                      const ReadOptions& read = {}) {
  const auto table = Table::open(url, options);
  if (!table.ok()) {
    return table.error();
  }
  const auto batch = table->read(read);
  REQUIRE_FALSE(batch.ok());
  return batch.error();
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace headrace::lake
