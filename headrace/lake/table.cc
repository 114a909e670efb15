// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>
#include <unordered_map>

#include "headrace/base/checksum.h"
#include "headrace/base/json.h"
#include "headrace/lake/builder_internal.h"
#include "headrace/lake/stamp.h"
#include "headrace/lake/table_internal.h"

namespace headrace::lake {

std::string_view format_name(Format format) {
  switch (format) {
    case Format::automatic: return "automatic";
    case Format::parquet: return "parquet";
    case Format::csv: return "csv";
    case Format::wide_csv: return "wide_csv";
    case Format::json_lines: return "json_lines";
  }
  return "automatic";
}

const Value* Table::State::partition_value(size_t file, size_t field) const {
  const auto at = std::find(partition_fields.begin(), partition_fields.end(), field);
  return at == partition_fields.end()
             ? nullptr
             : &partitions[file][static_cast<size_t>(at - partition_fields.begin())];
}

int Table::State::file_column(size_t file, size_t field) const {
  return static_cast<int>(find_field(parquet[file]->schema(), schema[field].name));
}

int Table::State::row_groups(size_t file) const {
  return is_parquet() ? parquet[file]->row_groups() : 1;
}

Range Table::State::range(size_t file, int row_group, size_t field, int64_t* nulls) const {
  *nulls = -1;
  if (const Value* value = partition_value(file, field); value != nullptr) {
    const bool null = value->index() == 0;
    *nulls = 0;
    return {.min = null ? std::nullopt : std::optional<Value>(*value),
            .max = null ? std::nullopt : std::optional<Value>(*value),
            .all_null = null};
  }
  if (!is_parquet()) {
    return {};
  }
  const int column = file_column(file, field);
  if (column < 0 || parquet[file]->schema()[static_cast<size_t>(column)].type == Type::null) {
    return {.min = {}, .max = {}, .all_null = true};
  }
  return parquet[file]->range(row_group, column, nulls);
}

namespace {

std::string zone_shown(const std::string& zone) {
  return zone.empty() ? "no time zone" : "time zone " + zone;
}

/// Take `field` of `file` into the table's field, which `before` (a file) has given.
Result<void> unify_field(const Field& field, const std::string& file, const std::string& before,
                         const TableOptions& options, Field* common) {
  if (common->type == Type::null) {
    *common = field;
    return {};
  }
  if (field.type == Type::null) {
    return {};
  }
  if (field.type != common->type) {
    return Error{Errc::mismatch,
                 fmt::format("{}: column {} is {}, but {} in {}; rewrite one of the files", file,
                             json_quote(field.name), field.file_type, common->file_type, before)};
  }
  if (field.zone != common->zone && options.zone.empty()) {
    return Error{Errc::mismatch,
                 fmt::format("{}: column {} has {}, but {} in {}; write all in one zone, or take "
                             "them as instants with --zone UTC (in Python zone=\"UTC\")",
                             file, json_quote(field.name), zone_shown(field.zone),
                             zone_shown(common->zone), before)};
  }
  return {};
}

Result<void> unify_schema(const Schema& own, const std::string& file, const std::string& first,
                          const TableOptions& options, Schema* common) {
  for (const Field& field : own) {
    const int64_t index = find_field(*common, field.name);
    if (index >= 0) {
      HR_TRY(unify_field(field, file, first, options, &(*common)[static_cast<size_t>(index)]));
    } else if (options.allow_missing_columns) {
      common->push_back(field);
    } else {
      return Error{Errc::mismatch,
                   fmt::format("{}: there is a column {} that {} has not; open with "
                               "allow_missing_columns to read it as null there",
                               file, json_quote(field.name), first)};
    }
  }
  for (const Field& field : *common) {
    if (find_field(own, field.name) < 0 && !options.allow_missing_columns) {
      return Error{Errc::mismatch, fmt::format("{}: there is no column {}, which {} has; open with "
                                               "allow_missing_columns to read it as null",
                                               file, json_quote(field.name), first)};
    }
  }
  return {};
}

Result<void> open_parquet(Table::State* table) {
  const auto counter = std::make_shared<std::atomic<int64_t>>(0);
  for (FileInfo& file : table->files) {
    HR_TRY(auto opened, scan::ParquetFile::open(table->storage, file.path, file.bytes, counter));
    file.rows = opened->rows();
    file.row_groups = opened->row_groups();
    file.written_by = opened->written_by();
    if (table->parquet.empty()) {
      table->schema = opened->schema();
    } else {
      HR_TRY(unify_schema(opened->schema(), file.path, table->files.front().path, table->options,
                          &table->schema));
    }
    table->parquet.push_back(std::move(opened));
  }
  for (Field& field : table->schema) {
    if (field.type == Type::timestamp_us && !table->options.zone.empty()) {
      field.zone = table->options.zone;
    }
  }
  return {};
}

Result<void> open_text(Table::State* table) {
  const auto inspect = table->format == Format::csv        ? inspect_csv
                       : table->format == Format::wide_csv ? inspect_wide_csv
                                                           : inspect_json_lines;
  HR_TRY(table->text, inspect(table->storage, table->files, table->options));
  table->schema = table->text.schema;
  for (size_t i = 0; i < table->files.size(); ++i) {
    table->files[i].rows = table->text.rows[i];
  }
  return {};
}

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() ? std::optional<int64_t>(value)
                                                                 : std::nullopt;
}

/// Type of partition values: as told, else int64 when all are whole numbers, else string.
Type partition_type(const std::string& key, size_t index, const std::vector<Partition>& partitions,
                    const TableOptions& options) {
  const auto told = options.types.find(key);
  if (told != options.types.end()) {
    return told->second;
  }
  const bool whole =
      std::all_of(partitions.begin(), partitions.end(), [index](const Partition& partition) {
        const auto* text = std::get_if<std::string>(&partition[index].second);
        return text == nullptr || whole_number(*text).has_value();
      });
  return whole ? Type::int64 : Type::string;
}

/// Add the columns of the folders' names; where a file holds the column too, the folder wins.
Result<void> add_partitions(const std::vector<Partition>& partitions, Table::State* table) {
  table->partitions.resize(partitions.size());
  for (size_t index = 0; index < partitions.front().size(); ++index) {
    Field field;
    field.name = partitions.front()[index].first;
    field.type = partition_type(field.name, index, partitions, table->options);
    field.file_type = "folder name";
    field.partition = true;
    const int64_t known = find_field(table->schema, field.name);
    const size_t place = known >= 0 ? static_cast<size_t>(known) : table->schema.size();
    if (known >= 0) {
      table->schema[place] = field;
    } else {
      table->schema.push_back(field);
    }
    table->partition_fields.push_back(place);
    for (size_t file = 0; file < partitions.size(); ++file) {
      const Value& text = partitions[file][index].second;
      Value value;
      if (text.index() != 0 &&
          !cell_value({std::get<std::string>(text), true}, field.type, &value)) {
        const auto whole = whole_number(std::get<std::string>(text));  // "07" is a month here
        if (field.type != Type::int64 || !whole) {
          return Error{Errc::invalid_argument,
                       fmt::format("{}: {} in the folder's name is no {}", table->files[file].name,
                                   json_quote(std::get<std::string>(text)), type_name(field.type))};
        }
        value = *whole;
      }
      table->partitions[file].push_back(std::move(value));
    }
  }
  return {};
}

Result<void> check_options(const TableOptions& options) {
  if (!options.zone.empty() && options.zone != "UTC") {
    return Error{
        Errc::invalid_argument,
        fmt::format("zone {}: expected nothing, or UTC to take all time stamps as instants",
                    json_quote(options.zone))};
  }
  return {};
}

/// A name that is misspelt must not be passed over in silence.
Result<void> check_told_types(const Table::State& table) {
  for (const auto& [name, type] : table.options.types) {
    const int64_t index = find_field(table.schema, name);
    if (index < 0) {
      return missing_column(table.schema, name, table.url + ": types");
    }
    if (table.format != Format::csv && !table.schema[static_cast<size_t>(index)].partition) {
      return Error{Errc::invalid_argument,
                   fmt::format("{}: the type of column {} stands in the files; types are told for "
                               "CSV and for folder names only",
                               table.url, json_quote(name))};
    }
  }
  return {};
}

}  // namespace

Table::Table(std::shared_ptr<const State> state) : state_(std::move(state)) {}
Table::Table(Table&&) noexcept = default;
Table& Table::operator=(Table&&) noexcept = default;
Table::~Table() = default;

Result<Table> Table::open(const std::string& url, const TableOptions& options) {
  HR_TRY(check_options(options));
  HR_TRY(auto storage, scan::Storage::open(url));
  HR_TRY(auto listing, list_table(storage, url, options.format));
  auto state = std::make_shared<State>(State{.url = url,
                                             .options = options,
                                             .storage = std::move(storage),
                                             .format = listing.format,
                                             .schema = {},
                                             .files = std::move(listing.files),
                                             .parquet = {},
                                             .text = {},
                                             .partitions = {},
                                             .partition_fields = {}});
  HR_TRY(state->is_parquet() ? open_parquet(state.get()) : open_text(state.get()));
  HR_TRY(add_partitions(listing.partitions, state.get()));
  HR_TRY(check_told_types(*state));
  return Table(std::move(state));
}

Result<TableFiles> list_table_files(const std::string& url, Format format) {
  HR_TRY(const auto storage, scan::Storage::open(url));
  HR_TRY(auto listing, list_table(storage, url, format));
  return TableFiles{listing.format, std::move(listing.files)};
}

const std::string& Table::url() const { return state_->url; }
Format Table::format() const { return state_->format; }
const Schema& Table::schema() const { return state_->schema; }
const std::vector<FileInfo>& Table::files() const { return state_->files; }

int64_t Table::rows() const {
  return std::accumulate(
      state_->files.begin(), state_->files.end(), int64_t{0},
      [](int64_t sum, const FileInfo& file) { return sum + std::max<int64_t>(0, file.rows); });
}

Result<std::unique_ptr<BatchReader>> Table::scan(const ReadOptions& options) const {
  return make_reader(state_, options);
}

Result<Batch> read_all(BatchReader& reader) {
  BatchBuilder builder(reader.schema());
  for (;;) {
    HR_TRY(const auto batch, reader.next());
    if (!batch) {
      return builder.take();
    }
    HR_TRY(builder.append(*batch));
  }
}

Result<Batch> Table::read(const ReadOptions& options, ReadStats* stats) const {
  HR_TRY(const auto reader, scan(options));
  HR_TRY(auto out, read_all(*reader));
  if (stats != nullptr) {
    *stats = reader->stats();
  }
  return out;
}

namespace {

/// Counts values of one column.
class Tally {
 public:
  explicit Tally(const Field& field) : values_(field) {}

  void add(const Value& value, int64_t count) {
    if (value.index() == 0) {
      nulls_ += count;
      return;
    }
    counts_[index_of(value)] += count;
  }

  void add(const Column& column) {
    if (column.field.type != Type::string) {
      for (int64_t row = 0; row < column.rows(); ++row) {
        add(column.value(row), 1);
      }
      return;
    }
    std::vector<int64_t> per_code(column.dictionary.size(), 0);
    for (const int32_t code : column.codes) {
      if (code < 0) {
        ++nulls_;
      } else if (++per_code[static_cast<size_t>(code)] == 1) {
        index_of(column.dictionary[static_cast<size_t>(code)]);  // keeps the order of appearance
      }
    }
    for (size_t code = 0; code < per_code.size(); ++code) {
      if (per_code[code] > 0) {
        counts_[index_of(column.dictionary[code])] += per_code[code];
      }
    }
  }

  Distinct take() {
    Distinct out;
    out.values = values_.take();
    out.counts = std::move(counts_);
    out.nulls = nulls_;
    return out;
  }

 private:
  size_t index_of(const Value& value) {
    const std::string key = key_of(value);
    const auto [at, added] = known_.try_emplace(key, counts_.size());
    if (added) {
      values_.add_value(value);
      counts_.push_back(0);
    }
    return at->second;
  }

  static std::string key_of(const Value& value) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      return *text;
    }
    uint64_t bits = 0;
    if (const auto* real = std::get_if<double>(&value)) {
      bits = *real == 0.0 ? 0 : *real != *real ? ~uint64_t{0} : std::bit_cast<uint64_t>(*real);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      bits = *flag ? 1 : 0;
    } else {
      bits = static_cast<uint64_t>(std::get<int64_t>(value));
    }
    return std::string(reinterpret_cast<const char*>(&bits), sizeof bits);
  }

  ColumnBuilder values_;
  std::vector<int64_t> counts_;
  std::unordered_map<std::string, size_t> known_;
  int64_t nulls_ = 0;
};

/// The one value of a row group, when its statistics say that there is no other.
std::optional<Value> single_value(const Range& range, int64_t nulls) {
  if (range.all_null) {
    return Value();
  }
  const bool exact = range.min && range.max && nulls == 0 && *range.min == *range.max &&
                     !std::holds_alternative<double>(*range.min);  // NaN is not in statistics
  return exact ? std::optional<Value>(*range.min) : std::nullopt;
}

}  // namespace

Result<Distinct> Table::distinct(const std::string& column) const {
  const State& table = *state_;
  const int64_t found = find_field(table.schema, column);
  if (found < 0) {
    return missing_column(table.schema, column, table.url);
  }
  const auto field = static_cast<size_t>(found);
  HR_TRY(plan_read(table, {.columns = {column}}));  // refuses unreadable columns
  Tally tally(table.schema[field]);
  ReadStats stats;
  const auto counter = std::make_shared<std::atomic<int64_t>>(0);
  for (size_t file = 0; file < table.files.size(); ++file) {
    bool file_read = false;
    for (int group = 0; group < table.row_groups(file); ++group) {
      ++stats.row_groups_total;
      int64_t nulls = -1;
      const Range range = table.range(file, group, field, &nulls);
      const auto single = single_value(range, nulls);
      if (single) {
        tally.add(*single, table.is_parquet() ? table.parquet[file]->row_group_rows(group)
                                              : table.files[file].rows);
        continue;
      }
      HR_TRY(auto rows, UnitRows::open(table, {file, group}, {field}, 65536, counter));
      for (;;) {
        HR_TRY(const auto batch, rows.next());
        if (!batch) {
          break;
        }
        stats.rows_read += batch->rows();
        tally.add(batch->columns.front());
      }
      ++stats.row_groups_read;
      file_read = true;
    }
    stats.files_read += file_read ? 1 : 0;
  }
  Distinct out = tally.take();
  stats.files_total = std::ssize(table.files);
  stats.bytes_read = *counter;
  stats.rows_returned = out.values.rows();
  out.stats = stats;
  return out;
}

Result<Snapshot> Table::snapshot() const {
  Snapshot out;
  out.files = state_->files;
  base::Blake2b256 digest;
  const auto add = [&digest](const std::string& text) {
    digest.update(std::as_bytes(std::span(text)));
  };
  add("headrace lake snapshot 1\n");
  const auto counter = std::make_shared<std::atomic<int64_t>>(0);
  for (size_t i = 0; i < out.files.size(); ++i) {
    std::string hash;
    if (state_->is_parquet()) {
      HR_TRY(hash, state_->parquet[i]->footer_hash(counter));
    } else {
      hash = state_->text.hashes[i];
    }
    add(fmt::format("{} {} {}\n", json_quote(out.files[i].name), out.files[i].bytes, hash));
  }
  out.digest = base::hex(digest.finish());
  return out;
}

std::vector<std::string> Table::sorted_by() const {
  std::vector<std::string> out;
  for (size_t field = 0; field < state_->schema.size(); ++field) {
    std::optional<Value> last;
    int64_t groups = 0;
    bool ascending = true;
    for (size_t file = 0; file < state_->files.size() && ascending; ++file) {
      for (int group = 0; group < state_->row_groups(file) && ascending; ++group) {
        int64_t nulls = -1;
        const Range range = state_->range(file, group, field, &nulls);
        ascending =
            range.min && range.max && (!last || compare_values(*last, *range.min).value_or(1) <= 0);
        last = range.max;
        ++groups;
      }
    }
    if (ascending && groups > 1) {
      out.push_back(state_->schema[field].name);
    }
  }
  return out;
}

}  // namespace headrace::lake
