// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/series.h"

#include <fmt/format.h>

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

Result<const Field*> need(const Schema& schema, const std::string& where, const std::string& name) {
  const int64_t index = find_field(schema, name);
  if (index < 0) {
    return missing_column(schema, name, where);
  }
  return &schema[static_cast<size_t>(index)];
}

/// Check names and types before anything is read.
Result<void> check_columns(const Schema& schema, const std::string& where,
                           const SeriesColumns& columns, SeriesRows* out) {
  if (!columns.id.empty()) {
    HR_TRY(const Field* id, need(schema, where, columns.id));
    if (id->type != Type::string && id->type != Type::int64) {
      return wrong_type(where, *id, "item id", "text or whole numbers");
    }
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
  for (const std::string& name : columns.categories) {
    HR_TRY(const Field* field, need(schema, where, name));
    if (field->type == Type::unsupported || field->type == Type::float64) {
      return wrong_type(where, *field, "categorical covariate", "text or whole numbers");
    }
  }
  for (const std::string& name : columns.reals) {
    HR_TRY(const Field* field, need(schema, where, name));
    if (!is_number(field->type)) {
      return wrong_type(where, *field, "numeric covariate", "numbers");
    }
  }
  return {};
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

}  // namespace

Result<SeriesRows> read_series(BatchReader& reader, const std::string& where,
                               const SeriesColumns& columns) {
  SeriesRows out;
  HR_TRY(check_columns(reader.schema(), where, columns, &out));
  Codes ids;
  std::vector<Codes> categories(columns.categories.size());
  for (const std::string& name : columns.categories) {
    out.categories.push_back({name, {}, {}});
  }
  for (const std::string& name : columns.reals) {
    out.reals.push_back({name, {}});
  }
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
    for (size_t i = 0; i < categories.size(); ++i) {
      categories[i].append(*batch->find(columns.categories[i]), &out.categories[i].code);
    }
    for (size_t i = 0; i < columns.reals.size(); ++i) {
      append_reals(*batch->find(columns.reals[i]), &out.reals[i].values);
    }
  }
  out.ids = ids.take();
  for (size_t i = 0; i < categories.size(); ++i) {
    out.categories[i].values = categories[i].take();
  }
  out.stats = reader.stats();
  HR_TRY(check_ids(out, where, columns));
  return out;
}

Result<void> check_series_columns(const Table& table, const SeriesColumns& columns) {
  SeriesRows checked;
  HR_TRY(check_columns(table.schema(), table.url(), columns, &checked));
  if (table.rows() == 0) {
    return Error{Errc::not_found,
                 table.url() + ": the table has no rows; add some, or name another table"};
  }
  return {};
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
