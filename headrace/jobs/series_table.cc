// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/series_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "headrace/jobs/static_table.h"
#include "headrace/lake/dataset.h"
#include "headrace/lake/series.h"
#include "headrace/lake/stamp.h"
#include "headrace/lake/table.h"

namespace headrace::jobs {

namespace {

Result<lake::Format> parse_format(const std::string& name) {
  for (const lake::Format format : {lake::Format::parquet, lake::Format::csv,
                                    lake::Format::wide_csv, lake::Format::json_lines}) {
    if (name == lake::format_name(format) ||
        (format == lake::Format::json_lines && name == "jsonl")) {
      return format;
    }
  }
  if (name.empty()) {
    return lake::Format::automatic;
  }
  return Error{Errc::invalid_argument,
               "format is \"" + name + "\"; parquet, csv, wide_csv or jsonl is needed"};
}

/// One of the three columns of a long table.
struct ColumnRole {
  const char* option;  // "target"
  const char* holds;   // "values"
  std::initializer_list<const char*> usual;
  std::string TableSpec::* named;
  std::string forecast::ColumnNames::* learned;
};
constexpr ColumnRole kId = {
    "id", "item ids", {"item_id", "unique_id"}, &TableSpec::id, &forecast::ColumnNames::id};
constexpr ColumnRole kTime = {
    "time", "time stamps", {"timestamp", "ds"}, &TableSpec::time, &forecast::ColumnNames::time};
constexpr ColumnRole kTarget = {
    "target", "values", {"target", "y"}, &TableSpec::target, &forecast::ColumnNames::target};

bool has_field(const lake::Schema& schema, const std::string& name) {
  return !name.empty() && lake::find_field(schema, name) >= 0;
}

/// Whether the table is one like the model's: a single name in common may mean another thing.
bool has_learned(const TableSpec& spec, const lake::Schema& schema) {
  return std::ranges::all_of(std::array{kId, kTime, kTarget}, [&](const ColumnRole& role) {
    const std::string& learned = spec.learned.*role.learned;
    return !(spec.*role.named).empty() || learned.empty() || has_field(schema, learned);
  });
}

/// What else may help where no usual column is there.
std::string hint_for(const lake::Schema& schema, const ColumnRole& role) {
  constexpr ptrdiff_t kWide =
      20;  // numeric columns; tables of series and their covariates have few
  const auto numbers = std::ranges::count_if(
      schema, [](const lake::Field& field) { return field.type == lake::Type::float64; });
  if (numbers >= kWide) {
    return fmt::format(
        "; with {} columns of numbers it may be wide, a series per row: then "
        "format wide_csv (--format wide_csv)",
        numbers);
  }
  return &role == &kId ? "; a table of one series needs a column with the same name in every row"
                       : "";
}

/// The named column; else the model's, or the first of the usual names that is there.
Result<std::string> column_name(const TableSpec& spec, const lake::Schema& schema,
                                const ColumnRole& role, const std::string& url) {
  const std::string& named = spec.*role.named;
  const std::string& learned = spec.learned.*role.learned;
  std::vector<std::string> names = {named};
  if (named.empty()) {
    names.assign(role.usual.begin(), role.usual.end());
    names.insert(has_learned(spec, schema) ? names.begin() : names.end(), learned);
  }
  for (const std::string& name : names) {
    if (has_field(schema, name)) {
      return name;
    }
  }
  const std::string wanted = !named.empty()     ? named
                             : !learned.empty() ? learned
                                                : *role.usual.begin();
  const Error missing = lake::missing_column(schema, wanted, url);
  return Error{missing.code(), missing.message() + "; say which one holds the " + role.holds +
                                   " with " + role.option + " (--" + role.option + ")" +
                                   (named.empty() ? hint_for(schema, role) : "")};
}

}  // namespace

Result<OpenedTable> open_series_table(const TableSpec& given) {
  HR_TRY(SettledTable settled, settle_table(given));
  if (settled.spec.start.empty()) {
    settled.spec.start = settled.spec.learned.start;
  }
  const TableSpec& spec = settled.spec;
  lake::TableOptions options;
  options.cardinalities = settled.cardinalities;
  HR_TRY(options.format, parse_format(spec.format));
  options.zone = spec.zone;
  options.allow_missing_columns = spec.allow_missing_columns;
  if (!spec.frequency.empty()) {
    HR_TRY(const auto frequency, forecast::parse_frequency(spec.frequency));
    const bool has_year =
        frequency.unit == forecast::TimeUnit::quarter || frequency.unit == forecast::TimeUnit::year;
    options.year_end_month = has_year ? frequency.anchor : 12;
    options.stamp = [frequency](int64_t start_us, int64_t index) {
      return forecast::add_steps(frequency, start_us, index);
    };
  }
  if (!spec.start.empty()) {
    const auto start = lake::parse_stamp(spec.start);
    if (!start) {
      return Error{Errc::invalid_argument,
                   "start is \"" + spec.start + "\"; a stamp like 2015-07-01T00:00:00 is needed"};
    }
    options.wide_start_us = start->us;
  }
  HR_TRY(lake::Table table, lake::Table::open(spec.url, options));
  const bool implicit_stamps =
      table.format() == lake::Format::wide_csv || table.format() == lake::Format::json_lines;
  if (implicit_stamps && spec.frequency.empty()) {
    return Error{Errc::invalid_argument,
                 spec.url +
                     " holds no time stamp per value; say its frequency (h, D, MS, ...), or "
                     "name the metadata file of its data set"};
  }
  return OpenedTable{std::move(table), std::move(settled.spec), nullptr, {}};
}

Result<std::string> id_column(const TableSpec& spec, const lake::Schema& schema,
                              const std::string& url) {
  return column_name(spec, schema, kId, url);
}

namespace {

Result<lake::SeriesColumns> columns_of(const TableSpec& spec, const lake::Schema& schema) {
  lake::SeriesColumns columns;
  HR_TRY(columns.id, id_column(spec, schema, spec.url));
  HR_TRY(columns.time, column_name(spec, schema, kTime, spec.url));
  HR_TRY(columns.target, column_name(spec, schema, kTarget, spec.url));
  columns.categories = spec.categories;
  columns.reals = spec.static_reals;
  columns.reals.insert(columns.reals.end(), spec.dynamic_reals.begin(), spec.dynamic_reals.end());
  return columns;
}

/// The second table, where one is told; null without one. Not read yet.
Result<std::shared_ptr<StaticTable>> open_static(const TableSpec& spec, const lake::Schema& schema,
                                                 lake::BatchReader* stream) {
  if (spec.static_table.empty() && stream == nullptr) {
    return std::shared_ptr<StaticTable>();
  }
  HR_TRY(auto table, StaticTable::open(spec, schema, stream));
  return std::make_shared<StaticTable>(std::move(table));
}

forecast::LongRows borrow_rows(const lake::SeriesRows& rows, const TableSpec& spec) {
  forecast::LongRows out;
  out.ids = rows.ids;
  out.item = rows.item;
  out.stamp_us = rows.stamp_us;
  out.target = rows.target;
  for (const auto& category : rows.categories) {
    out.categories.push_back({category.name, category.values, category.code});
  }
  for (size_t i = 0; i < rows.reals.size(); ++i) {
    auto& list = i < spec.static_reals.size() ? out.static_reals : out.dynamic_reals;
    list.push_back({rows.reals[i].name, rows.reals[i].values});
  }
  return out;
}

Result<void> check_zone(const std::string& zone, const TableSpec& spec) {
  const std::set<std::string> utc = {"", "UTC", "Etc/UTC", "Z", "+00:00"};
  if (utc.contains(zone)) {
    return {};
  }
  // Instants are clear, but a local day or hour is not a fixed number of seconds.
  return Error{Errc::invalid_argument,
               spec.url + ": time stamps are in the zone " + zone +
                   "; convert the column to UTC (days with a clock change are no regular grid)"};
}

Result<registry::TableSnapshot> snapshot_of(const lake::Table& table) {
  HR_TRY(const lake::Snapshot snapshot, table.snapshot());
  registry::TableSnapshot out;
  out.url = table.url();
  out.format = std::string(lake::format_name(table.format()));
  out.digest = snapshot.digest;
  out.rows = table.rows();
  return out;
}

Result<void> check_items(const std::vector<std::string>& wanted, const lake::SeriesRows& rows,
                         const TableSpec& spec) {
  const std::set<std::string> found(rows.ids.begin(), rows.ids.end());
  for (const std::string& item : wanted) {
    if (!found.contains(item)) {
      return Error{Errc::not_found, spec.url + " has no item \"" + item + "\""};
    }
  }
  return {};
}

Result<forecast::SeriesSet> build_set(const lake::SeriesRows& rows, const TableSpec& spec) {
  if (rows.ids.empty()) {
    return Error{Errc::not_found, spec.url + " has no rows; nothing to forecast"};
  }
  forecast::BuildOptions build;
  if (!spec.frequency.empty()) {
    HR_TRY(build.frequency, forecast::parse_frequency(spec.frequency));
  }
  HR_TRY(build.duplicates, forecast::parse_duplicates(spec.aggregate));
  HR_TRY(forecast::SeriesSet set, forecast::build_series(borrow_rows(rows, spec), build), spec.url);
  return set;
}

}  // namespace

Result<SettledTable> settle_table(const TableSpec& spec) {
  SettledTable out;
  out.spec = spec;
  HR_TRY(auto dataset, lake::find_dataset(spec.url, spec.metadata));
  if (!dataset) {
    return out;
  }
  if (dataset->at_root) {
    out.spec.url = dataset->train;
  }
  out.spec.metadata = dataset->metadata;
  if (out.spec.frequency.empty()) {
    out.spec.frequency = dataset->frequency;
    HR_TRY([[maybe_unused]] const auto known, forecast::parse_frequency(dataset->frequency),
           dataset->metadata);
  }
  out.horizon = dataset->horizon;
  out.cardinalities = std::move(dataset->cardinalities);
  return out;
}

Result<forecast::SeriesSet> series_of(lake::BatchReader& reader, const TableSpec& given,
                                      lake::BatchReader* static_rows) {
  TableSpec spec = given;
  if (!spec.metadata.empty() && spec.frequency.empty()) {
    HR_TRY(const auto dataset, lake::read_dataset(spec.metadata));
    spec.frequency = dataset.frequency;
  }
  HR_TRY(auto columns, columns_of(spec, reader.schema()));
  HR_TRY(const auto second, open_static(spec, reader.schema(), static_rows));
  if (second) {
    second->leave_out(&columns);
  }
  HR_TRY(lake::SeriesRows rows, lake::read_series(reader, spec.url, columns));
  if (second) {
    HR_TRY(second->read());
    HR_TRY(second->join(spec, &rows));
  }
  HR_TRY(check_zone(rows.zone, spec));
  HR_TRY(forecast::SeriesSet set, build_set(rows, spec));
  set.columns = {columns.id, columns.time, columns.target, rows.integer_ids, rows.zone};
  return set;
}

Result<SeriesTable> load_series(const TableSpec& given, const std::vector<std::string>& items,
                                lake::BatchReader* static_rows) {
  HR_TRY(const OpenedTable opened, open_series_table(given));
  return load_series(opened, items, static_rows);
}

Result<SeriesTable> load_series(const OpenedTable& opened, const std::vector<std::string>& items,
                                lake::BatchReader* static_rows) {
  const auto& [table, spec, kept, told] = opened;
  HR_TRY(auto columns, columns_of(spec, table.schema()));
  std::shared_ptr<StaticTable> own;
  if (kept == nullptr || static_rows != nullptr) {
    HR_TRY(own, open_static(spec, table.schema(), static_rows));
  }
  const StaticTable* second = own != nullptr ? own.get() : kept.get();
  if (second != nullptr) {
    second->leave_out(&columns);
  }
  lake::SeriesRead read;
  read.items = items;
  HR_TRY(lake::SeriesRows rows, lake::read_series(table, columns, read));
  HR_TRY(check_zone(rows.zone, spec));
  HR_TRY(check_items(items, rows, spec));
  if (own != nullptr) {
    HR_TRY(own->read());
  }
  if (second != nullptr) {
    HR_TRY(second->join(spec, &rows));
  }
  SeriesTable out;
  HR_TRY(out.set, build_set(rows, spec));
  out.set.columns = {columns.id, columns.time, columns.target, rows.integer_ids, rows.zone};
  if (table.format() == lake::Format::wide_csv) {
    out.without_start = spec.start.empty();
    out.set.columns.start = out.without_start ? forecast::stamp_text(0) : spec.start;
  }
  if (told) {
    out.snapshot = *told;
  } else {
    HR_TRY(out.snapshot, snapshot_of(table));
  }
  out.bytes_read = rows.stats.bytes_read + (own != nullptr ? own->bytes_read() : 0);
  out.row_groups_read = rows.stats.row_groups_read;
  out.row_groups_total = rows.stats.row_groups_total;
  return out;
}

Result<int64_t> keep_static(OpenedTable* opened, int64_t bytes_max) {
  HR_TRY(auto second, open_static(opened->spec, opened->table.schema(), nullptr));
  if (second == nullptr) {
    return 0;
  }
  HR_TRY(second->read());
  const int64_t read = second->bytes_read();
  if (second->bytes() <= bytes_max) {
    opened->second = std::move(second);
  }
  return read;
}

Result<void> keep_snapshot(OpenedTable* opened) {
  HR_TRY(opened->snapshot, snapshot_of(opened->table));
  return {};
}

Result<lake::TableFiles> table_files(const TableSpec& spec) {
  HR_TRY(const lake::Format format, parse_format(spec.format));
  HR_TRY(const SettledTable settled, settle_table(spec));
  HR_TRY(auto out, lake::list_table_files(settled.spec.url, format));
  if (!spec.static_table.empty()) {
    HR_TRY(const auto second, lake::list_table_files(spec.static_table), "static table");
    out.files.insert(out.files.end(), second.files.begin(), second.files.end());
  }
  if (const std::string& metadata = settled.spec.metadata; !metadata.empty()) {
    HR_TRY(const auto file, lake::list_table_files(metadata, lake::Format::json_lines));
    out.files.insert(out.files.end(), file.files.begin(), file.files.end());
  }
  return out;
}

Result<forecast::ColumnNames> table_columns(const TableSpec& spec) {
  HR_TRY(const OpenedTable opened, open_series_table(spec));
  HR_TRY(const auto columns, columns_of(opened.spec, opened.table.schema()));
  return forecast::ColumnNames{columns.id, columns.time, columns.target};
}

Result<forecast::Frequency> table_frequency(const TableSpec& given) {
  HR_TRY(const SettledTable settled, settle_table(given));
  if (!settled.spec.frequency.empty()) {
    return forecast::parse_frequency(settled.spec.frequency);
  }
  HR_TRY(const OpenedTable opened, open_series_table(settled.spec));
  return table_frequency(opened);
}

Result<forecast::Frequency> table_frequency(const OpenedTable& opened) {
  const auto& [table, spec, kept, told] = opened;
  if (!spec.frequency.empty()) {
    return forecast::parse_frequency(spec.frequency);
  }
  HR_TRY(auto columns, columns_of(spec, table.schema()));
  columns.target.clear();
  columns.categories.clear();
  columns.reals.clear();
  HR_TRY(const lake::SeriesRows rows, lake::read_series(table, columns, {}));
  HR_TRY(const auto frequency, forecast::infer_frequency(borrow_rows(rows, TableSpec())), spec.url);
  return frequency;
}

Result<std::vector<std::string>> list_items(const TableSpec& given) {
  HR_TRY(const OpenedTable opened, open_series_table(given));
  const auto& [table, spec, kept, told] = opened;
  HR_TRY(const auto id, id_column(spec, table.schema(), spec.url));
  HR_TRY(auto items, lake::list_items(table, id));
  if (items.ids.empty()) {
    return Error{Errc::not_found,
                 spec.url + " holds no items: it has no rows; add some, or name another table"};
  }
  std::vector<size_t> order(items.ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return items.rows[a] > items.rows[b]; });
  std::vector<std::string> ids;
  ids.reserve(order.size());
  for (const size_t index : order) {
    ids.push_back(std::move(items.ids[index]));
  }
  return ids;
}

Result<void> check_table(const TableSpec& given) {
  HR_TRY(const OpenedTable opened, open_series_table(given));
  const auto& [table, spec, kept, told] = opened;
  HR_TRY(auto columns, columns_of(spec, table.schema()));
  HR_TRY(const auto second, open_static(spec, table.schema(), nullptr));
  if (second) {
    second->leave_out(&columns);
  }
  HR_TRY(lake::check_series_columns(table, columns));
  const int64_t time = lake::find_field(table.schema(), columns.time);
  return check_zone(table.schema()[static_cast<size_t>(time)].zone, spec);
}

}  // namespace headrace::jobs
