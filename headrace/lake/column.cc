// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/column.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "headrace/base/check.h"
#include "headrace/base/json.h"
#include "headrace/lake/builder_internal.h"
#include "headrace/lake/stamp.h"

namespace headrace::lake {

std::string_view type_name(Type type) {
  switch (type) {
    case Type::int64: return "int64";
    case Type::float64: return "float64";
    case Type::string: return "string";
    case Type::timestamp_us: return "timestamp";
    case Type::date: return "date";
    case Type::boolean: return "boolean";
    case Type::floats: return "floats";
    case Type::null: return "null";
    case Type::unsupported: return "unsupported";
  }
  return "unsupported";
}

int64_t find_field(const Schema& schema, std::string_view name) {
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name == name) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

Error missing_column(const Schema& schema, std::string_view name, std::string_view where) {
  constexpr size_t kShown = 10;  // a wide table has hundreds
  std::string found;
  for (const Field& field : std::span(schema).first(std::min(kShown, schema.size()))) {
    found += (found.empty() ? "" : ", ") + json_quote(field.name);
  }
  if (schema.size() > kShown) {
    found += fmt::format(" and {} more, {} in all", schema.size() - kShown, schema.size());
  }
  return Error{Errc::not_found, fmt::format("{}: there is no column {}; found: {}", where,
                                            json_quote(name), found.empty() ? "none" : found)};
}

int64_t Column::rows() const {
  switch (field.type) {
    case Type::float64: return std::ssize(reals);
    case Type::string: return std::ssize(codes);
    case Type::floats: return field.width > 0 ? std::ssize(lists) / field.width : std::ssize(ends);
    case Type::null:
    case Type::unsupported: return null_rows;
    default: return std::ssize(integers);
  }
}

bool Column::is_null(int64_t row) const {
  const auto at = static_cast<size_t>(row);
  if (field.type == Type::string) {
    return codes[at] < 0;
  }
  return field.type == Type::null || field.type == Type::unsupported ||
         (!validity.empty() && validity[at] == 0);
}

Value Column::value(int64_t row) const {
  if (is_null(row)) {
    return std::monostate();
  }
  const auto at = static_cast<size_t>(row);
  switch (field.type) {
    case Type::float64: return reals[at];
    case Type::string: return dictionary[static_cast<size_t>(codes[at])];
    case Type::boolean: return integers[at] != 0;
    case Type::floats: return text(row);
    default: return integers[at];
  }
}

std::string Column::text(int64_t row) const {
  if (is_null(row)) {
    return "";
  }
  const auto at = static_cast<size_t>(row);
  switch (field.type) {
    case Type::float64: return number_text(reals[at]);
    case Type::string: return dictionary[static_cast<size_t>(codes[at])];
    case Type::boolean: return integers[at] != 0 ? "true" : "false";
    case Type::timestamp_us: return stamp_text(integers[at], !field.zone.empty());
    case Type::date: return date_text(integers[at]);
    case Type::floats: return list_text(row);
    default: return std::to_string(integers[at]);
  }
}

std::span<const float> Column::list(int64_t row) const {
  const auto at = static_cast<size_t>(row);
  if (field.width > 0) {
    const auto width = static_cast<size_t>(field.width);
    return std::span(lists).subspan(at * width, width);
  }
  const int64_t begin = row == 0 ? 0 : ends[at - 1];
  return std::span(lists).subspan(static_cast<size_t>(begin),
                                  static_cast<size_t>(ends[at] - begin));
}

std::string Column::list_text(int64_t row) const {
  std::string out;
  for (const float value : list(row)) {
    out += out.empty() ? "" : " ";
    out += fmt::format("{}", value);
  }
  return out;
}

Schema Batch::schema() const {
  Schema out;
  out.reserve(columns.size());
  for (const Column& column : columns) {
    out.push_back(column.field);
  }
  return out;
}

const Column* Batch::find(std::string_view name) const {
  for (const Column& column : columns) {
    if (column.field.name == name) {
      return &column;
    }
  }
  return nullptr;
}

Result<void> append_column(Column* column, const Column& more) {
  ColumnBuilder builder(std::move(*column));
  const Result<void> result = builder.append(more);
  *column = builder.take();
  return result;
}

Result<void> append_batch(Batch* batch, const Batch& more) {
  BatchBuilder builder(std::move(*batch));
  const Result<void> result = builder.append(more);
  *batch = builder.take();
  return result;
}

namespace {

template <typename T>
std::vector<T> taken(const std::vector<T>& values, const std::vector<int64_t>& rows) {
  std::vector<T> out;
  if (!values.empty()) {
    out.reserve(rows.size());
    for (const int64_t row : rows) {
      out.push_back(values[static_cast<size_t>(row)]);
    }
  }
  return out;
}

}  // namespace

Batch take_rows(const Batch& batch, const std::vector<int64_t>& rows) {
  Batch out;
  out.columns.reserve(batch.columns.size());
  for (const Column& column : batch.columns) {
    Column picked;
    picked.field = column.field;
    picked.integers = taken(column.integers, rows);
    picked.reals = taken(column.reals, rows);
    picked.codes = taken(column.codes, rows);
    picked.validity = taken(column.validity, rows);
    picked.dictionary = column.dictionary;
    for (const int64_t row : column.field.type == Type::floats ? rows : std::vector<int64_t>()) {
      const std::span<const float> list = column.list(row);
      picked.lists.insert(picked.lists.end(), list.begin(), list.end());
      if (column.field.width == 0) {
        picked.ends.push_back(std::ssize(picked.lists));
      }
    }
    picked.null_rows = column.null_rows > 0 ? std::ssize(rows) : 0;
    out.columns.push_back(std::move(picked));
  }
  return out;
}

}  // namespace headrace::lake
