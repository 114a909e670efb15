// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "headrace/base/check.h"
#include "headrace/lake/builder_internal.h"

namespace headrace::lake {

ColumnBuilder::ColumnBuilder(Field field) { column_.field = std::move(field); }

ColumnBuilder::ColumnBuilder(Column column) : column_(std::move(column)) {
  for (size_t i = 0; i < column_.dictionary.size(); ++i) {
    known_.emplace(column_.dictionary[i], static_cast<int32_t>(i));
  }
}

/// Validity is kept from the first null on. Called before the values are added.
void ColumnBuilder::mark_valid(int64_t count, bool valid) {
  if (valid && column_.validity.empty()) {
    return;
  }
  if (column_.validity.empty()) {
    column_.validity.assign(static_cast<size_t>(rows()), 1);
  }
  column_.validity.insert(column_.validity.end(), static_cast<size_t>(count), valid ? 1 : 0);
}

void ColumnBuilder::add_null(int64_t count) {
  const auto n = static_cast<size_t>(count);
  switch (column_.field.type) {
    case Type::string: column_.codes.insert(column_.codes.end(), n, -1); return;
    case Type::null:
    case Type::unsupported: column_.null_rows += count; return;
    case Type::float64:
      mark_valid(count, false);
      column_.reals.insert(column_.reals.end(), n, std::numeric_limits<double>::quiet_NaN());
      return;
    case Type::floats:
      mark_valid(count, false);
      column_.lists.resize(column_.lists.size() + n * static_cast<size_t>(column_.field.width));
      if (column_.field.width == 0) {
        column_.ends.insert(column_.ends.end(), n, std::ssize(column_.lists));
      }
      return;
    default: mark_valid(count, false); column_.integers.insert(column_.integers.end(), n, 0);
  }
}

void ColumnBuilder::add_integer(int64_t value) {
  mark_valid(1, true);
  column_.integers.push_back(value);
}

void ColumnBuilder::add_real(double value) {
  mark_valid(1, true);
  column_.reals.push_back(value);
}

int32_t ColumnBuilder::code_of(std::string_view text) {
  const auto found = known_.find(text);
  if (found != known_.end()) {
    return found->second;
  }
  const auto code = static_cast<int32_t>(column_.dictionary.size());
  column_.dictionary.emplace_back(text);
  known_.emplace(text, code);
  return code;
}

void ColumnBuilder::add_text(std::string_view value) { column_.codes.push_back(code_of(value)); }

void ColumnBuilder::add_value(const Value& value, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::holds_alternative<std::monostate>(value)) {
      add_null();
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      add_text(*text);
    } else if (const auto* real = std::get_if<double>(&value)) {
      add_real(*real);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      add_integer(*flag ? 1 : 0);
    } else {
      add_integer(std::get<int64_t>(value));
    }
  }
}

/// Take the type of `field` after nothing but nulls.
void ColumnBuilder::become(const Field& field) {
  const int64_t nulls = column_.null_rows;
  column_ = Column();
  column_.field = field;
  add_null(nulls);
}

Result<void> ColumnBuilder::append(const Column& more) {
  if (more.field.type == Type::null) {
    add_null(more.rows());
    return {};
  }
  if (column_.field.type == Type::null) {
    become(more.field);
  }
  if (more.field.type != column_.field.type || more.field.width != column_.field.width) {
    return Error{Errc::mismatch,
                 fmt::format("column \"{}\" is {} here and {} before", column_.field.name,
                             type_name(more.field.type), type_name(column_.field.type))};
  }
  if (!more.validity.empty() && column_.validity.empty()) {
    column_.validity.assign(static_cast<size_t>(rows()), 1);
  }
  if (!more.validity.empty()) {
    column_.validity.insert(column_.validity.end(), more.validity.begin(), more.validity.end());
  } else if (!column_.validity.empty()) {
    column_.validity.insert(column_.validity.end(), static_cast<size_t>(more.rows()), 1);
  }
  column_.integers.insert(column_.integers.end(), more.integers.begin(), more.integers.end());
  column_.reals.insert(column_.reals.end(), more.reals.begin(), more.reals.end());
  for (const int64_t end : more.ends) {
    column_.ends.push_back(std::ssize(column_.lists) + end);
  }
  column_.lists.insert(column_.lists.end(), more.lists.begin(), more.lists.end());
  column_.null_rows += more.null_rows;
  std::vector<int32_t> codes(more.dictionary.size(), -1);  // filled at first use: keeps the order
  column_.codes.reserve(column_.codes.size() + more.codes.size());
  for (const int32_t code : more.codes) {
    if (code < 0) {
      column_.codes.push_back(-1);
      continue;
    }
    int32_t& ours = codes[static_cast<size_t>(code)];
    if (ours < 0) {
      ours = code_of(more.dictionary[static_cast<size_t>(code)]);
    }
    column_.codes.push_back(ours);
  }
  return {};
}

Column ColumnBuilder::take() {
  Column out = std::move(column_);
  column_ = Column();
  column_.field = out.field;
  known_.clear();
  return out;
}

BatchBuilder::BatchBuilder(const Schema& schema) {
  columns_.reserve(schema.size());
  for (const Field& field : schema) {
    columns_.emplace_back(field);
  }
}

BatchBuilder::BatchBuilder(Batch batch) {
  columns_.reserve(batch.columns.size());
  for (Column& column : batch.columns) {
    columns_.emplace_back(std::move(column));
  }
}

Result<void> BatchBuilder::append(const Batch& more) {
  HR_CHECK(more.columns.size() == columns_.size(), "batches of different columns");
  for (size_t i = 0; i < columns_.size(); ++i) {
    HR_TRY(columns_[i].append(more.columns[i]));
  }
  return {};
}

Batch BatchBuilder::take() {
  Batch out;
  out.columns.reserve(columns_.size());
  for (ColumnBuilder& column : columns_) {
    out.columns.push_back(column.take());
  }
  return out;
}

}  // namespace headrace::lake
