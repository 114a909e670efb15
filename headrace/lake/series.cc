// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/series.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "headrace/base/json.h"
#include "headrace/lake/stamp.h"

namespace headrace::lake {

namespace {

constexpr int64_t kNoStamp = std::numeric_limits<int64_t>::min();
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

Error wrong_type(const std::string& where, const Field& field, std::string_view role,
                 std::string_view expected) {
  const std::string own =
      field.file_type.empty() ? std::string(type_name(field.type)) : field.file_type;
  return Error{Errc::invalid_argument,
               fmt::format("{}: column {} is to be the {}, but it is {}; "
                           "expected {}: convert it, or name another column",
                           where, json_quote(field.name), role, own, expected)};
}

bool is_number(Type type) {
  return type == Type::int64 || type == Type::float64 || type == Type::boolean ||
         type == Type::null;
}

/// Dictionary codes that go on from batch to batch.
class Codes {
 public:
  int32_t of(const std::string& text) {
    const auto [at, added] = known_.try_emplace(text, static_cast<int32_t>(values_.size()));
    if (added) {
      values_.push_back(text);
    }
    return at->second;
  }
  /// Append the codes of a column of texts or whole numbers; -1 for null.
  void append(const Column& column, std::vector<int32_t>* out) {
    if (column.field.type != Type::string) {
      for (int64_t row = 0; row < column.rows(); ++row) {
        out->push_back(column.is_null(row) ? -1 : of(column.text(row)));
      }
      return;
    }
    std::vector<int32_t> ours(column.dictionary.size(), -1);
    for (const int32_t code : column.codes) {
      if (code < 0) {
        out->push_back(-1);
        continue;
      }
      int32_t& mapped = ours[static_cast<size_t>(code)];
      if (mapped < 0) {
        mapped = of(column.dictionary[static_cast<size_t>(code)]);
      }
      out->push_back(mapped);
    }
  }
  std::vector<std::string> take() { return std::move(values_); }

 private:
  std::unordered_map<std::string, int32_t> known_;
  std::vector<std::string> values_;
};

void append_stamps(const Column& column, std::vector<int64_t>* out) {
  const int64_t unit = column.field.type == Type::date ? kMicrosPerDay : 1;
  for (int64_t row = 0; row < column.rows(); ++row) {
    int64_t us = kNoStamp;
    if (!column.is_null(row) &&
        __builtin_mul_overflow(column.integers[static_cast<size_t>(row)], unit, &us)) {
      us = kNoStamp;
    }
    out->push_back(us);
  }
}

void append_reals(const Column& column, std::vector<double>* out) {
  for (int64_t row = 0; row < column.rows(); ++row) {
    const auto at = static_cast<size_t>(row);
    out->push_back(column.is_null(row)                  ? kNoValue
                   : column.field.type == Type::float64 ? column.reals[at]
                                                        : static_cast<double>(column.integers[at]));
  }
}

/// Numbers with a space between them, as `Column::text` writes a list.
Result<void> append_list(const std::string& where, const std::string& name, std::string_view text,
                         std::vector<float>* out) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    float value = 0.0F;
    const auto [stop, code] = std::from_chars(text.data() + at, text.data() + end, value);
    if (code != std::errc() || stop != text.data() + end) {
      return Error{Errc::invalid_argument,
                   fmt::format("{}: column {}: {} is no list of numbers with a space between them",
                               where, json_quote(name), json_quote(text.substr(0, 60)))};
    }
    out->push_back(value);
    at = end + 1;
  }
  return {};
}

Result<void> append_lists(const std::string& where, const Column& column, SeriesRows* out) {
  for (int64_t row = 0; row < column.rows(); ++row) {
    if (column.field.type == Type::floats && !column.is_null(row)) {
      const std::span<const float> list = column.list(row);
      out->lists.insert(out->lists.end(), list.begin(), list.end());
    } else if (column.field.type != Type::floats) {
      HR_TRY(append_list(where, column.field.name, column.text(row), &out->lists));
    }
    out->list_ends.push_back(std::ssize(out->lists));
  }
  return {};
}

Result<const Field*> need(const Schema& schema, const std::string& where, const std::string& name) {
  const int64_t index = find_field(schema, name);
  if (index < 0) {
    return missing_column(schema, name, where);
  }
  return &schema[static_cast<size_t>(index)];
}

Result<void> check_id(const Schema& schema, const std::string& where, const std::string& name) {
  HR_TRY(const Field* id, need(schema, where, name));
  if (id->type != Type::string && id->type != Type::int64) {
    return wrong_type(where, *id, "item id", "text or whole numbers");
  }
  return {};
}

Result<void> check_covariates(const Schema& schema, const std::string& where,
                              const std::vector<std::string>& categories,
                              const std::vector<std::string>& reals) {
  for (const std::string& name : categories) {
    HR_TRY(const Field* field, need(schema, where, name));
    if (field->type == Type::unsupported || field->type == Type::float64) {
      return wrong_type(where, *field, "categorical covariate", "text or whole numbers");
    }
  }
  for (const std::string& name : reals) {
    HR_TRY(const Field* field, need(schema, where, name));
    if (!is_number(field->type)) {
      return wrong_type(where, *field, "numeric covariate", "numbers");
    }
  }
  return {};
}

/// Check names and types before anything is read.
Result<void> check_columns(const Schema& schema, const std::string& where,
                           const SeriesColumns& columns, SeriesRows* out) {
  if (!columns.id.empty()) {
    HR_TRY(check_id(schema, where, columns.id));
    const int64_t id = find_field(schema, columns.id);
    out->integer_ids = schema[static_cast<size_t>(id)].type == Type::int64;
  }
  HR_TRY(const Field* time, need(schema, where, columns.time));
  if (time->type != Type::timestamp_us && time->type != Type::date) {
    return wrong_type(where, *time, "time", "time stamps or dates");
  }
  out->zone = time->zone;
  if (!columns.target.empty()) {
    HR_TRY(const Field* target, need(schema, where, columns.target));
    if (!is_number(target->type)) {
      return wrong_type(where, *target, "target", "numbers");
    }
  }
  if (!columns.lists.empty()) {
    HR_TRY(const Field* lists, need(schema, where, columns.lists));
    if (lists->type != Type::floats && lists->type != Type::string && !is_number(lists->type)) {
      return wrong_type(where, *lists, "list", "lists of floats");
    }
  }
  return check_covariates(schema, where, columns.categories, columns.reals);
}

std::vector<std::string> column_names(const SeriesColumns& columns) {
  std::vector<std::string> out;
  if (!columns.id.empty()) {
    out.push_back(columns.id);
  }
  out.push_back(columns.time);
  if (!columns.target.empty()) {
    out.push_back(columns.target);
  }
  out.insert(out.end(), columns.categories.begin(), columns.categories.end());
  out.insert(out.end(), columns.reals.begin(), columns.reals.end());
  if (!columns.lists.empty()) {
    out.push_back(columns.lists);
  }
  return out;
}

Result<void> check_ids(const SeriesRows& rows, const std::string& where,
                       const SeriesColumns& columns) {
  int64_t nulls = 0;
  int64_t first = -1;
  for (size_t row = 0; row < rows.item.size(); ++row) {
    if (rows.item[row] < 0) {
      first = nulls == 0 ? static_cast<int64_t>(row) : first;
      ++nulls;
    }
  }
  if (nulls == 0) {
    return {};
  }
  const int64_t stamp = rows.stamp_us[static_cast<size_t>(first)];
  return Error{
      Errc::invalid_argument,
      fmt::format("{}: {} of {} rows have no item id (column {} is null), the first is row "
                  "{} with time {}; fill the column or filter those rows out",
                  where, nulls, rows.item.size(), json_quote(columns.id), first,
                  stamp == kNoStamp ? "null" : stamp_text(stamp, !rows.zone.empty()))};
}

/// Covariates of batch after batch.
class Covariates {
 public:
  Covariates(const std::vector<std::string>& categories, const std::vector<std::string>& reals)
      : codes_(categories.size()) {
    for (const std::string& name : categories) {
      categories_.push_back({name, {}, {}});
    }
    for (const std::string& name : reals) {
      reals_.push_back({name, {}});
    }
  }
  void append(const Batch& batch) {
    for (size_t i = 0; i < codes_.size(); ++i) {
      codes_[i].append(*batch.find(categories_[i].name), &categories_[i].code);
    }
    for (SeriesRows::Real& real : reals_) {
      append_reals(*batch.find(real.name), &real.values);
    }
  }
  std::vector<SeriesRows::Category> take_categories() {
    for (size_t i = 0; i < codes_.size(); ++i) {
      categories_[i].values = codes_[i].take();
    }
    return std::move(categories_);
  }
  std::vector<SeriesRows::Real> take_reals() { return std::move(reals_); }

 private:
  std::vector<Codes> codes_;
  std::vector<SeriesRows::Category> categories_;
  std::vector<SeriesRows::Real> reals_;
};

Result<void> check_one_row_each(const std::vector<int32_t>& item, const StaticRows& rows,
                                const std::string& where, const std::string& id) {
  std::vector<int64_t> count(rows.ids.size(), 0);
  for (const int32_t code : item) {
    if (code < 0) {
      return Error{Errc::invalid_argument,
                   fmt::format("{}: a row has no item id (column {} is null); fill it or leave the "
                               "row out",
                               where, json_quote(id))};
    }
    ++count[static_cast<size_t>(code)];
  }
  std::vector<std::string> twice;
  for (size_t i = 0; i < count.size(); ++i) {
    if (count[i] > 1) {
      twice.push_back(rows.ids[i]);
    }
  }
  if (twice.empty()) {
    return {};
  }
  return Error{Errc::invalid_argument,
               fmt::format("{}: {} items have more than one row: {}; a table of static covariates "
                           "has one row per item",
                           where, twice.size(), first_names(twice))};
}

}  // namespace

Result<SeriesRows> read_series(BatchReader& reader, const std::string& where,
                               const SeriesColumns& columns) {
  SeriesRows out;
  HR_TRY(check_columns(reader.schema(), where, columns, &out));
  Codes ids;
  Covariates covariates(columns.categories, columns.reals);
  for (;;) {
    HR_TRY(const auto batch, reader.next());
    if (!batch) {
      break;
    }
    if (columns.id.empty()) {
      out.item.resize(out.item.size() + static_cast<size_t>(batch->rows()), ids.of(""));
    } else {
      ids.append(*batch->find(columns.id), &out.item);
    }
    append_stamps(*batch->find(columns.time), &out.stamp_us);
    if (columns.target.empty()) {
      out.target.resize(out.stamp_us.size(), kNoValue);
    } else {
      append_reals(*batch->find(columns.target), &out.target);
    }
    covariates.append(*batch);
    if (!columns.lists.empty()) {
      HR_TRY(append_lists(where, *batch->find(columns.lists), &out));
    }
  }
  out.ids = ids.take();
  out.categories = covariates.take_categories();
  out.reals = covariates.take_reals();
  out.stats = reader.stats();
  HR_TRY(check_ids(out, where, columns));
  return out;
}

namespace {

/// Before types are looked at: a CSV that is a header alone has columns of none.
Result<void> check_rows(const Table& table) {
  if (table.rows() == 0) {
    return Error{Errc::not_found,
                 table.url() + ": the table has no rows; add some, or name another table"};
  }
  return {};
}

}  // namespace

Result<void> check_series_columns(const Table& table, const SeriesColumns& columns) {
  HR_TRY(check_rows(table));
  SeriesRows checked;
  return check_columns(table.schema(), table.url(), columns, &checked);
}

Result<SeriesRows> read_series(const Table& table, const SeriesColumns& columns,
                               const SeriesRead& options) {
  HR_TRY(check_series_columns(table, columns));
  ReadOptions read{.columns = column_names(columns), .predicate = options.predicate};
  if (!options.items.empty() && !columns.id.empty()) {
    Condition items{.column = columns.id, .op = Op::in};
    items.values.assign(options.items.begin(), options.items.end());
    read.predicate.push_back(std::move(items));
  }
  HR_TRY(const auto reader, table.scan(read));
  return read_series(*reader, table.url(), columns);
}

Result<void> check_static_columns(const Schema& schema, const std::string& where,
                                  const StaticColumns& columns) {
  HR_TRY(check_id(schema, where, columns.id));
  return check_covariates(schema, where, columns.categories, columns.reals);
}

Result<StaticRows> read_static(BatchReader& reader, const std::string& where,
                               const StaticColumns& columns) {
  HR_TRY(check_static_columns(reader.schema(), where, columns));
  Codes ids;
  std::vector<int32_t> item;
  Covariates covariates(columns.categories, columns.reals);
  for (;;) {
    HR_TRY(const auto batch, reader.next());
    if (!batch) {
      break;
    }
    ids.append(*batch->find(columns.id), &item);
    covariates.append(*batch);
  }
  StaticRows out{ids.take(), covariates.take_categories(), covariates.take_reals(), reader.stats()};
  HR_TRY(check_one_row_each(item, out, where, columns.id));  // so the rows are in the ids' order
  return out;
}

Result<StaticRows> read_static(const Table& table, const StaticColumns& columns) {
  HR_TRY(check_rows(table));
  HR_TRY(check_static_columns(table.schema(), table.url(), columns));
  ReadOptions read;
  read.columns.push_back(columns.id);
  read.columns.insert(read.columns.end(), columns.categories.begin(), columns.categories.end());
  read.columns.insert(read.columns.end(), columns.reals.begin(), columns.reals.end());
  HR_TRY(const auto reader, table.scan(read));
  return read_static(*reader, table.url(), columns);
}

std::string first_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string out;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    out += (i == 0 ? "" : ", ") + json_quote(names[i]);
  }
  return names.size() > kShown ? fmt::format("{} and {} more", out, names.size() - kShown) : out;
}

Result<Items> list_items(const Table& table, const std::string& id_column) {
  HR_TRY(const auto distinct, table.distinct(id_column));
  Items out;
  out.rows = distinct.counts;
  for (int64_t row = 0; row < distinct.values.rows(); ++row) {
    out.ids.push_back(distinct.values.text(row));
  }
  return out;
}

}  // namespace headrace::lake
