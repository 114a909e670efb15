// SPDX-License-Identifier: Apache-2.0
// `headrace lake`: look into tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "headrace/base/json.h"
#include "headrace/cli/command.h"
#include "headrace/cli/terminal.h"
#include "headrace/lake/table.h"

namespace headrace::cli {

namespace {

constexpr size_t kFilesShown = 20;

std::vector<Option> table_options() {
  return {
      {.name = "table", .help = "file, folder, glob or URL of the table", .required = true},
      {.name = "--format",
       .help = "what the files hold; automatic goes by the names' endings",
       .default_text = "automatic",
       .choices = {"automatic", "parquet", "csv", "wide_csv", "json_lines"}},
      {.name = "--zone",
       .help = "UTC: take time stamps of different zones as instants",
       .choices = {"UTC"}},
      {.name = "--allow-missing-columns",
       .help = "read a column that a file lacks as null",
       .kind = OptionKind::flag},
  };
}

Result<lake::Table> open_table(const Arguments& arguments) {
  lake::TableOptions options;
  using lake::Format;
  for (const Format format :
       {Format::automatic, Format::parquet, Format::csv, Format::wide_csv, Format::json_lines}) {
    if (lake::format_name(format) == arguments.text("format")) {
      options.format = format;
    }
  }
  options.zone = arguments.text("zone");
  options.allow_missing_columns = arguments.flag("allow-missing-columns");
  return lake::Table::open(arguments.text("table"), options);
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

int64_t total_bytes(const lake::Table& table) {
  int64_t sum = 0;
  for (const lake::FileInfo& file : table.files()) {
    sum += file.bytes;
  }
  return sum;
}

int64_t total_groups(const lake::Table& table) {
  int64_t sum = 0;
  for (const lake::FileInfo& file : table.files()) {
    sum += file.row_groups;
  }
  return sum;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    out += (out.empty() ? "" : ", ") + word;
  }
  return out;
}

Json inspect_json(const lake::Table& table, const lake::Snapshot& snapshot) {
  Json columns = Json::array();
  for (const lake::Field& field : table.schema()) {
    columns.push_back(Json::object({{"name", field.name},
                                    {"type", lake::type_name(field.type)},
                                    {"zone", field.zone},
                                    {"file_type", field.file_type},
                                    {"partition", field.partition}}));
  }
  Json files = Json::array();
  for (const lake::FileInfo& file : table.files()) {
    files.push_back(Json::object({{"name", file.name},
                                  {"bytes", file.bytes},
                                  {"rows", file.rows},
                                  {"row_groups", file.row_groups},
                                  {"written_by", file.written_by}}));
  }
  Json sorted = Json::array();
  for (const std::string& name : table.sorted_by()) {
    sorted.push_back(name);
  }
  return Json::object({{"table", table.url()},
                       {"format", lake::format_name(table.format())},
                       {"rows", table.rows()},
                       {"bytes", total_bytes(table)},
                       {"row_groups", total_groups(table)},
                       {"columns", std::move(columns)},
                       {"sorted_by", std::move(sorted)},
                       {"snapshot", snapshot.digest},
                       {"files", std::move(files)}});
}

void print_inspection(const lake::Table& table, const lake::Snapshot& snapshot) {
  const bool parquet = table.format() == lake::Format::parquet;
  say(stdout, "{}: {}, {} rows, {} files, {}{}\n", table.url(), lake::format_name(table.format()),
      table.rows(), table.files().size(), bytes_text(total_bytes(table)),
      parquet ? fmt::format(", {} row groups", total_groups(table)) : "");
  const std::vector<std::string> sorted = table.sorted_by();
  if (parquet) {
    say(stdout, "row groups ascend by: {}\n", sorted.empty() ? "no column" : joined(sorted));
  }
  fmt::print("snapshot: {}\n\n", snapshot.digest);
  TextTable columns({"column", "type", "zone", "in the files"});
  for (const lake::Field& field : table.schema()) {
    columns.add(
        {field.name, std::string(lake::type_name(field.type)),
         field.type == lake::Type::timestamp_us && field.zone.empty() ? "local" : field.zone,
         field.file_type});
  }
  fmt::print("{}\n", columns.text());
  TextTable files({"file", "size", "rows", "row groups", "written by"});
  for (size_t i = 0; i < table.files().size() && i < kFilesShown; ++i) {
    const lake::FileInfo& file = table.files()[i];
    files.add({file.name, bytes_text(file.bytes), std::to_string(file.rows),
               parquet ? std::to_string(file.row_groups) : "", file.written_by});
  }
  fmt::print("{}", files.text());
  if (table.files().size() > kFilesShown) {
    fmt::print("and {} more files; --json lists all\n", table.files().size() - kFilesShown);
  }
}

int run_inspect(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  const auto table = open_table(arguments);
  if (!table.ok()) {
    return report_error(table.error(), json);
  }
  const auto snapshot = table->snapshot();
  if (!snapshot.ok()) {
    return report_error(snapshot.error(), json);
  }
  if (json) {
    fmt::print("{}\n", inspect_json(*table, *snapshot).dump());
  } else {
    print_inspection(*table, *snapshot);
  }
  return kExitOk;
}

/// A cell as JSON: what JSON has no number for stays text.
Json cell_json(const lake::Column& column, int64_t row) {
  if (column.is_null(row)) {
    return {};
  }
  switch (column.field.type) {
    case lake::Type::int64: return column.integers[static_cast<size_t>(row)];
    case lake::Type::boolean: return column.integers[static_cast<size_t>(row)] != 0;
    case lake::Type::float64: return column.reals[static_cast<size_t>(row)];
    default: return column.text(row);
  }
}

Json rows_json(const lake::Batch& batch) {
  Json rows = Json::array();
  for (int64_t row = 0; row < batch.rows(); ++row) {
    Json object = Json::object();
    for (const lake::Column& column : batch.columns) {
      object.set(column.field.name, cell_json(column, row));
    }
    rows.push_back(std::move(object));
  }
  return rows;
}

std::string rows_text(const lake::Batch& batch) {
  std::vector<std::string> header;
  for (const lake::Column& column : batch.columns) {
    header.push_back(column.field.name);
  }
  TextTable out(header);
  for (int64_t row = 0; row < batch.rows(); ++row) {
    std::vector<std::string> cells;
    for (const lake::Column& column : batch.columns) {
      cells.push_back(column.is_null(row) ? "null" : column.text(row));
    }
    out.add(std::move(cells));
  }
  return out.text();
}

Result<lake::Batch> read_head(const Arguments& arguments, lake::ReadStats* stats) {
  HR_TRY(const auto table, open_table(arguments));
  lake::ReadOptions options;
  options.columns = arguments.texts("columns");
  options.rows_max = arguments.integer("rows").value_or(10);
  options.batch_rows = std::clamp<int64_t>(options.rows_max, 1, 65536);
  for (const std::string& text : arguments.texts("where")) {
    HR_TRY(auto condition, lake::parse_condition(text));
    options.predicate.push_back(std::move(condition));
  }
  return table.read(options, stats);
}

int run_head(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  lake::ReadStats stats;
  const auto batch = read_head(arguments, &stats);
  if (!batch.ok()) {
    return report_error(batch.error(), json);
  }
  if (json) {
    fmt::print("{}\n", rows_json(*batch).dump());
  } else {
    fmt::print("{}", rows_text(*batch));
    std::fflush(stdout);
    fmt::print(stderr, "{} rows; read {} of {} row groups, {}\n", stats.rows_returned,
               stats.row_groups_read, stats.row_groups_total, bytes_text(stats.bytes_read));
  }
  return batch->rows() == 0 ? kExitFailed : kExitOk;
}

}  // namespace

std::vector<Command> lake_commands() {
  Command inspect;
  inspect.name = "lake inspect";
  inspect.summary = "show a table's columns, files, row groups, order and snapshot";
  inspect.details =
      "Of Parquet only the footers are read, so a large table costs no more than a small one with "
      "as many files. CSV and JSON lines are read through once, to find the columns' types.";
  inspect.examples = {"headrace lake inspect lake/",
                      "headrace lake inspect 'lake/year=*/*.parquet'",
                      "headrace lake inspect train.csv --format wide_csv --json"};
  inspect.options = table_options();
  inspect.run = run_inspect;

  Command head;
  head.name = "lake head";
  head.summary = "print the first rows of a table, or those that fulfil conditions";
  head.details =
      "A condition is COLUMN OP VALUE with OP one of == < <= > >=, or COLUMN in A,B,C; all must "
      "hold. Row groups that cannot hold such a row are not read; the last line on standard error "
      "tells what was. The exit code is 1 when there is no such row.";
  head.examples = {"headrace lake head lake/",
                   "headrace lake head lake/ -n 5 --where 'item_id == H1' --columns target",
                   "headrace lake head lake/ --where 'timestamp >= 2015-08-01' --json"};
  head.options = table_options();
  head.options.push_back({.name = "-n,--rows",
                          .help = "rows to print at most",
                          .kind = OptionKind::integer,
                          .default_text = "10",
                          .at_least = 0});
  head.options.push_back(
      {.name = "--columns", .help = "column to print, in the order wanted", .repeated = true});
  head.options.push_back({.name = "--where", .help = "condition on the rows", .repeated = true});
  head.run = run_head;
  return {inspect, head};
}

}  // namespace headrace::cli
