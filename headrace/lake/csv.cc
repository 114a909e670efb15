// SPDX-License-Identifier: Apache-2.0
// CSV tables: long ones, with a type per column, and wide ones (M4), a series per row.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "headrace/base/json.h"
#include "headrace/lake/builder_internal.h"
#include "headrace/lake/listing_internal.h"
#include "headrace/lake/text_internal.h"

namespace headrace::lake {

namespace {

using Cells = std::vector<CsvCell>;

Result<std::unique_ptr<CsvRows>> open_rows(const scan::Storage& storage, const FileInfo& file,
                                           const scan::ByteCounter& counter,
                                           base::Xxh3Stream128* hash = nullptr) {
  HR_TRY(auto stream, storage.stream(file.path, is_packed(file.path), counter));
  return std::make_unique<CsvRows>(std::move(stream), file.path, hash);
}

Result<std::vector<std::string>> read_header(CsvRows& rows, const FileInfo& file) {
  Cells cells;
  HR_TRY(const bool some, rows.next(&cells));
  if (!some) {
    return Error{Errc::corrupt, file.path + ": the file is empty; a header row is needed"};
  }
  std::vector<std::string> names;
  for (const CsvCell& cell : cells) {
    if (std::find(names.begin(), names.end(), cell.text) != names.end()) {
      return rows.error(fmt::format("two columns are called {}", json_quote(cell.text)),
                        Errc::invalid_argument);
    }
    names.emplace_back(cell.text);
  }
  return names;
}

Error wrong_count(const CsvRows& rows, size_t cells, size_t names) {
  return rows.error(fmt::format("{} cells, but the header names {} columns", cells, names));
}

struct CsvGuesses {
  std::vector<std::string> names;  // in the order of the first file
  std::vector<TypeGuess> guesses;
};

/// One pass over a file: header against the first file's, then every cell.
Result<int64_t> inspect_file(CsvRows& rows, const FileInfo& file, const FileInfo& first_file,
                             bool allow_missing, CsvGuesses* out) {
  HR_TRY(const auto names, read_header(rows, file));
  std::vector<size_t> where;
  for (const std::string& name : names) {
    const auto known = std::find(out->names.begin(), out->names.end(), name);
    where.push_back(static_cast<size_t>(known - out->names.begin()));
    if (known == out->names.end()) {
      if (!out->names.empty() && file.path != first_file.path && !allow_missing) {
        return Error{Errc::mismatch, fmt::format("{}: there is a column {} that {} has not",
                                                 file.path, json_quote(name), first_file.path)};
      }
      out->names.push_back(name);
      out->guesses.emplace_back();
    }
  }
  if (names.size() < out->names.size() && !allow_missing) {
    for (const std::string& name : out->names) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        return Error{Errc::mismatch,
                     fmt::format("{}: there is no column {}, which {} has; open with "
                                 "allow_missing_columns to read it as null",
                                 file.path, json_quote(name), first_file.path)};
      }
    }
  }
  Cells cells;
  int64_t count = 0;
  for (;;) {
    HR_TRY(const bool some, rows.next(&cells));
    if (!some) {
      return count;
    }
    if (cells.size() != names.size()) {
      return wrong_count(rows, cells.size(), names.size());
    }
    const std::string place = fmt::format("{}:{}", file.path, rows.line());
    for (size_t i = 0; i < cells.size(); ++i) {
      out->guesses[where[i]].see(cells[i], place);
    }
    ++count;
  }
}

Result<TextShape> shape_of(const CsvGuesses& found, const TableOptions& options) {
  TextShape out;
  for (size_t i = 0; i < found.names.size(); ++i) {
    const TypeGuess& guess = found.guesses[i];
    Field field;
    field.name = found.names[i];
    const auto told = options.types.find(field.name);
    field.type = told == options.types.end() ? guess.type() : told->second;
    field.file_type = field.type == Type::string && !guess.first_text().empty()
                          ? "text, because of " + guess.first_text()
                          : std::string(type_name(field.type));
    if (field.type == Type::timestamp_us || field.type == Type::date) {
      field.zone = guess.zone();
      if (!guess.zone_conflict().empty() && options.zone.empty()) {
        return Error{
            Errc::mismatch,
            fmt::format("column {}: time stamps of different zones: {}; write all in one "
                        "zone, or take them as instants with --zone UTC (in Python zone=\"UTC\")",
                        json_quote(field.name), guess.zone_conflict())};
      }
      if (!options.zone.empty()) {
        field.zone = options.zone;
      }
    }
    out.schema.push_back(std::move(field));
  }
  return out;
}

/// Rows of a long CSV file.
class LongRows final : public scan::RowGroupRows {
 public:
  LongRows(std::unique_ptr<CsvRows> rows, const TextRead& read,
           const std::vector<std::string>& header)
      : rows_(std::move(rows)),
        batch_rows_(read.batch_rows),
        cells_in_row_(header.size()),
        schema_(read.schema),
        builder_(read.schema) {
    for (const Field& field : schema_) {
      const auto at = std::find(header.begin(), header.end(), field.name);
      where_.push_back(at == header.end() ? -1 : at - header.begin());
    }
  }

  Result<std::optional<Batch>> next() override {
    Cells cells;
    int64_t count = 0;
    while (count < batch_rows_) {
      HR_TRY(const bool some, rows_->next(&cells));
      if (!some) {
        break;
      }
      if (cells.size() != cells_in_row_) {
        return wrong_count(*rows_, cells.size(), cells_in_row_);
      }
      HR_TRY(add(cells));
      ++count;
    }
    return count > 0 ? std::optional<Batch>(builder_.take()) : std::optional<Batch>();
  }

 private:
  Result<void> add(const Cells& cells) {
    Value value;
    for (size_t i = 0; i < schema_.size(); ++i) {
      if (where_[i] < 0) {
        builder_[i].add_null();
        continue;
      }
      const CsvCell& cell = cells[static_cast<size_t>(where_[i])];
      if (!cell_value(cell, schema_[i].type, &value)) {
        return rows_->error(
            fmt::format("column {}: {} is no {}", json_quote(schema_[i].name),
                        json_quote(cell.text.substr(0, 40)), type_name(schema_[i].type)),
            Errc::invalid_argument);
      }
      builder_[i].add_value(value);
    }
    return {};
  }

  std::unique_ptr<CsvRows> rows_;
  const int64_t batch_rows_;
  const size_t cells_in_row_;
  const Schema schema_;
  std::vector<int64_t> where_;  // cell of each column; -1: not in this file
  BatchBuilder builder_;
};

/// Cells with a value: trailing empty ones are a shorter series, not missing values.
size_t series_cells(const Cells& cells) {
  size_t count = cells.size();
  while (count > 1 && cells[count - 1].text.empty()) {
    --count;
  }
  return count;
}

/// Value of a cell of a wide file; NaN and null markers are missing values.
Result<Value> wide_value(const CsvRows& rows, const Cells& cells, size_t index) {
  Value value;
  if (!cell_value(cells[index], Type::float64, &value)) {
    return rows.error(fmt::format("series {}, value {}: {} is no number", json_quote(cells[0].text),
                                  index, json_quote(cells[index].text.substr(0, 40))),
                      Errc::invalid_argument);
  }
  return value;
}

class WideRows final : public scan::RowGroupRows {
 public:
  WideRows(std::unique_ptr<CsvRows> rows, const TextRead& read)
      : rows_(std::move(rows)),
        batch_rows_(read.batch_rows),
        options_(*read.options),
        schema_(read.schema),
        builder_(read.schema) {}

  Result<std::optional<Batch>> next() override {
    int64_t count = 0;
    while (count < batch_rows_) {
      if (index_ >= length_) {
        HR_TRY(const bool some, rows_->next(&cells_));
        if (!some) {
          break;
        }
        index_ = 1;
        length_ = series_cells(cells_);
        continue;
      }
      HR_TRY(const Value value, wide_value(*rows_, cells_, index_));
      add(value);
      ++index_;
      ++count;
    }
    return count > 0 ? std::optional<Batch>(builder_.take()) : std::optional<Batch>();
  }

 private:
  void add(const Value& value) {
    const auto position = static_cast<int64_t>(index_) - 1;
    for (size_t i = 0; i < schema_.size(); ++i) {
      const std::string& name = schema_[i].name;
      if (name == "item_id") {
        builder_[i].add_text(cells_[0].text);
      } else if (name == "position") {
        builder_[i].add_integer(position);
      } else if (name == "start") {
        builder_[i].add_integer(options_.wide_start_us);
      } else if (name == "timestamp") {
        builder_[i].add_integer(options_.stamp(options_.wide_start_us, position));
      } else {
        builder_[i].add_value(value);
      }
    }
  }

  std::unique_ptr<CsvRows> rows_;
  const int64_t batch_rows_;
  const TableOptions& options_;
  const Schema schema_;
  BatchBuilder builder_;
  Cells cells_;
  size_t index_ = 0;
  size_t length_ = 0;
};

Result<int64_t> inspect_wide_file(CsvRows& rows, const FileInfo& file) {
  Cells cells;
  HR_TRY(const bool header, rows.next(&cells));
  if (!header) {
    return Error{Errc::corrupt, file.path + ": the file is empty; a header row is needed"};
  }
  int64_t count = 0;
  for (;;) {
    HR_TRY(const bool some, rows.next(&cells));
    if (!some) {
      return count;
    }
    const size_t length = series_cells(cells);
    if (cells[0].text.empty()) {
      return rows.error("the first cell of the row, the series' id, is empty",
                        Errc::invalid_argument);
    }
    for (size_t i = 1; i < length; ++i) {
      HR_TRY(wide_value(rows, cells, i));
    }
    count += static_cast<int64_t>(length) - 1;
  }
}

}  // namespace

Result<TextShape> inspect_csv(const scan::Storage& storage, const std::vector<FileInfo>& files,
                              const TableOptions& options) {
  CsvGuesses found;
  std::vector<int64_t> counts;
  std::vector<std::string> hashes;
  for (const FileInfo& file : files) {
    base::Xxh3Stream128 hash;
    HR_TRY(auto rows, open_rows(storage, file, std::make_shared<std::atomic<int64_t>>(0), &hash));
    HR_TRY(const int64_t count,
           inspect_file(*rows, file, files.front(), options.allow_missing_columns, &found));
    counts.push_back(count);
    hashes.push_back(base::hex(hash.finish()));
  }
  HR_TRY(auto out, shape_of(found, options));
  out.rows = std::move(counts);
  out.hashes = std::move(hashes);
  return out;
}

Result<std::unique_ptr<scan::RowGroupRows>> read_csv(const TextRead& read) {
  HR_TRY(auto rows, open_rows(*read.storage, read.file, read.counter));
  HR_TRY(const auto header, read_header(*rows, read.file));
  return std::unique_ptr<scan::RowGroupRows>(
      std::make_unique<LongRows>(std::move(rows), read, header));
}

Result<TextShape> inspect_wide_csv(const scan::Storage& storage, const std::vector<FileInfo>& files,
                                   const TableOptions& options) {
  TextShape out;
  out.schema = {
      {.name = "item_id", .type = Type::string, .file_type = "cell 1"},
      {.name = "position", .type = Type::int64, .file_type = "column"},
      {.name = "start", .type = Type::timestamp_us, .zone = options.zone, .file_type = "option"},
      {.name = "target", .type = Type::float64, .file_type = "cells"}};
  if (options.stamp) {
    out.schema.insert(out.schema.begin() + 1, {.name = "timestamp",
                                               .type = Type::timestamp_us,
                                               .zone = options.zone,
                                               .file_type = "start and position"});
  }
  for (const FileInfo& file : files) {
    base::Xxh3Stream128 hash;
    HR_TRY(auto rows, open_rows(storage, file, std::make_shared<std::atomic<int64_t>>(0), &hash));
    HR_TRY(const int64_t count, inspect_wide_file(*rows, file));
    out.rows.push_back(count);
    out.hashes.push_back(base::hex(hash.finish()));
  }
  return out;
}

Result<std::unique_ptr<scan::RowGroupRows>> read_wide_csv(const TextRead& read) {
  HR_TRY(auto rows, open_rows(*read.storage, read.file, read.counter));
  Cells header;
  HR_TRY(rows->next(&header));
  return std::unique_ptr<scan::RowGroupRows>(std::make_unique<WideRows>(std::move(rows), read));
}

}  // namespace headrace::lake
