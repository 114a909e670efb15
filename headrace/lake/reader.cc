// SPDX-License-Identifier: Apache-2.0
// Reading a table: which row groups, in what order, with bounded memory.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/json.h"
#include "headrace/lake/builder_internal.h"
#include "headrace/lake/table_internal.h"

namespace headrace::lake {

namespace {

/// A column of `rows` times `value`.
Column constant_column(const Field& field, const Value& value, int64_t rows) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    Column out;
    out.field = field;
    out.dictionary.push_back(*text);
    out.codes.assign(static_cast<size_t>(rows), 0);
    return out;
  }
  ColumnBuilder builder(field);
  builder.add_value(value, rows);
  return builder.take();
}

/// `column` under the table's field: its name, zone and, for a column of nulls, its type.
Result<Column> as_field(const Field& field, Column column) {
  if (column.field.type == field.type) {
    column.field = field;
    return column;
  }
  ColumnBuilder builder(field);
  HR_TRY(builder.append(column));
  return builder.take();
}

}  // namespace

Result<UnitRows> UnitRows::open(const Table::State& table, const Unit& unit,
                                const std::vector<size_t>& fields, int64_t batch_rows,
                                const scan::ByteCounter& counter) {
  UnitRows out;
  out.table_ = &table;
  out.unit_ = unit;
  out.fields_ = fields;
  out.batch_rows_ = std::max<int64_t>(1, batch_rows);
  std::vector<int> file_columns;
  Schema text_columns;
  for (const size_t field : fields) {
    const bool from_folder = table.partition_value(unit.file, field) != nullptr;
    const int column = from_folder          ? -1
                       : table.is_parquet() ? table.file_column(unit.file, field)
                                            : static_cast<int>(field);
    if (column < 0) {
      out.place_.push_back(-1);
      continue;
    }
    out.place_.push_back(std::ssize(out.place_) -
                         std::count(out.place_.begin(), out.place_.end(), -1));
    file_columns.push_back(column);
    text_columns.push_back(table.schema[field]);
  }
  if (file_columns.empty()) {
    out.rows_left_ = table.is_parquet() ? table.parquet[unit.file]->row_group_rows(unit.row_group)
                                        : table.files[unit.file].rows;
    return out;
  }
  if (table.is_parquet()) {
    HR_TRY(out.rows_,
           table.parquet[unit.file]->read(unit.row_group, file_columns, out.batch_rows_, counter));
    return out;
  }
  TextRead read{.storage = &table.storage,
                .file = table.files[unit.file],
                .schema = std::move(text_columns),
                .batch_rows = out.batch_rows_,
                .first_series = 0,
                .counter = counter,
                .options = &table.options};
  for (size_t before = 0; before < unit.file && !table.text.series.empty(); ++before) {
    read.first_series += table.text.series[before];
  }
  const auto open_rows = table.format == Format::csv        ? read_csv
                         : table.format == Format::wide_csv ? read_wide_csv
                                                            : read_json_lines;
  HR_TRY(out.rows_, open_rows(read));
  return out;
}

Result<std::optional<Batch>> UnitRows::next() {
  std::optional<Batch> from_file;
  int64_t rows = std::min(rows_left_, batch_rows_);
  if (rows_ != nullptr) {
    HR_TRY(from_file, rows_->next());
    rows = from_file ? from_file->rows() : 0;
  }
  rows_left_ -= std::min(rows, rows_left_);
  if (rows == 0) {
    return std::optional<Batch>();
  }
  Batch out;
  out.columns.reserve(fields_.size());
  for (size_t i = 0; i < fields_.size(); ++i) {
    const Field& field = table_->schema[fields_[i]];
    if (place_[i] >= 0) {
      HR_TRY(auto column,
             as_field(field, std::move(from_file->columns[static_cast<size_t>(place_[i])])),
             table_->files[unit_.file].path);
      out.columns.push_back(std::move(column));
    } else {
      const Value* value = table_->partition_value(unit_.file, fields_[i]);
      out.columns.push_back(constant_column(field, value == nullptr ? Value() : *value, rows));
    }
  }
  return std::optional<Batch>(std::move(out));
}

Result<ReadPlan> plan_read(const Table::State& table, const ReadOptions& options) {
  ReadPlan plan;
  const auto need = [&plan](size_t field) {
    const auto at = std::find(plan.fields.begin(), plan.fields.end(), field);
    if (at == plan.fields.end()) {
      plan.fields.push_back(field);
      return plan.fields.size() - 1;
    }
    return static_cast<size_t>(at - plan.fields.begin());
  };
  const auto find_readable = [&table](const std::string& name) -> Result<size_t> {
    const int64_t index = find_field(table.schema, name);
    if (index < 0) {
      return missing_column(table.schema, name, table.url);
    }
    const Field& field = table.schema[static_cast<size_t>(index)];
    if (field.type == Type::unsupported) {
      return Error{Errc::unsupported,
                   fmt::format("{}: column {} has type {}, which cannot be read as plain values",
                               table.url, json_quote(name), field.file_type)};
    }
    return static_cast<size_t>(index);
  };
  for (const std::string& name : options.columns) {
    HR_TRY(const size_t field, find_readable(name));
    plan.order.push_back(need(field));
  }
  if (options.columns.empty()) {
    for (size_t field = 0; field < table.schema.size(); ++field) {
      if (table.schema[field].type != Type::unsupported) {
        plan.order.push_back(need(field));
      }
    }
  }
  HR_TRY(plan.predicate, bind_predicate(options.predicate, table.schema), table.url);
  for (const Condition& condition : plan.predicate) {
    HR_TRY(const size_t field, find_readable(condition.column));
    need(field);
  }
  return plan;
}

namespace {

class TableReader final : public BatchReader {
 public:
  TableReader(std::shared_ptr<const Table::State> table, ReadPlan plan, const ReadOptions& options)
      : table_(std::move(table)),
        plan_(std::move(plan)),
        batch_rows_(options.batch_rows),
        rows_left_(options.rows_max < 0 ? INT64_MAX : options.rows_max),
        counter_(std::make_shared<std::atomic<int64_t>>(0)) {
    for (const size_t column : plan_.order) {
      schema_.push_back(table_->schema[plan_.fields[column]]);
    }
    choose_units();
  }

  const Schema& schema() const override { return schema_; }
  const ReadStats& stats() const override {
    stats_.bytes_read = counter_->load(std::memory_order_relaxed);
    return stats_;
  }

  Result<std::optional<Batch>> next() override {
    while (rows_left_ > 0) {
      if (!rows_) {
        if (next_unit_ == units_.size()) {
          break;
        }
        HR_TRY(open_unit());
      }
      HR_TRY(auto batch, rows_->next());
      if (!batch) {
        rows_.reset();
        continue;
      }
      stats_.rows_read += batch->rows();
      Batch chosen = choose_rows(*std::move(batch));
      if (chosen.rows() > 0) {
        rows_left_ -= chosen.rows();
        stats_.rows_returned += chosen.rows();
        return std::optional<Batch>(std::move(chosen));
      }
    }
    return std::optional<Batch>();
  }

 private:
  void choose_units() {
    stats_.files_total = std::ssize(table_->files);
    for (size_t file = 0; file < table_->files.size(); ++file) {
      for (int group = 0; group < table_->row_groups(file); ++group) {
        ++stats_.row_groups_total;
        const bool wanted = std::all_of(
            plan_.predicate.begin(), plan_.predicate.end(), [&](const Condition& condition) {
              int64_t nulls = -1;
              const auto field = static_cast<size_t>(find_field(table_->schema, condition.column));
              return may_match(condition, table_->range(file, group, field, &nulls));
            });
        if (wanted) {
          units_.push_back({file, group});
        }
      }
    }
  }

  Result<void> open_unit() {
    const Unit unit = units_[next_unit_];
    ++stats_.row_groups_read;
    if (next_unit_ == 0 || units_[next_unit_ - 1].file != unit.file) {
      ++stats_.files_read;
    }
    HR_TRY(rows_, UnitRows::open(*table_, unit, plan_.fields, batch_rows_, counter_));
    ++next_unit_;
    return {};
  }

  Batch choose_rows(Batch batch) {
    const int64_t all = batch.rows();
    if (!plan_.predicate.empty() || all > rows_left_) {
      std::vector<int64_t> rows = matching_rows(plan_.predicate, batch);
      if (std::ssize(rows) > rows_left_) {
        rows.resize(static_cast<size_t>(rows_left_));
      }
      if (std::ssize(rows) < all) {
        batch = take_rows(batch, rows);
      }
    }
    Batch out;
    for (const size_t column : plan_.order) {
      // A column asked for twice is copied; the last time it is moved would be a needless rule.
      out.columns.push_back(batch.columns[column]);
    }
    return out;
  }

  const std::shared_ptr<const Table::State> table_;
  const ReadPlan plan_;
  const int64_t batch_rows_;
  int64_t rows_left_;
  const scan::ByteCounter counter_;
  Schema schema_;
  std::vector<Unit> units_;
  size_t next_unit_ = 0;
  std::optional<UnitRows> rows_;
  mutable ReadStats stats_;
};

}  // namespace

Result<std::unique_ptr<BatchReader>> make_reader(std::shared_ptr<const Table::State> table,
                                                 const ReadOptions& options) {
  HR_TRY(auto plan, plan_read(*table, options));
  return std::unique_ptr<BatchReader>(
      std::make_unique<TableReader>(std::move(table), std::move(plan), options));
}

}  // namespace headrace::lake
