// SPDX-License-Identifier: Apache-2.0
// GluonTS JSON lines: one series a line, laid out as rows of a long table.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "headrace/base/json.h"
#include "headrace/lake/builder_internal.h"
#include "headrace/lake/json_series_internal.h"
#include "headrace/lake/listing_internal.h"
#include "headrace/lake/stamp.h"
#include "headrace/lake/text_internal.h"

namespace headrace::lake {

namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

/// Python's json writes bare NaN and Infinity. NaN is a missing value: null. In strings it stays.
std::string without_bare_nan(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      quoted = !quoted;
    } else if (quoted && line[i] == '\\' && i + 1 < line.size()) {
      out.push_back(line[i++]);
    } else if (!quoted && line.substr(i, 3) == "NaN") {
      out += "null";
      i += 2;
      continue;
    }
    out.push_back(line[i]);
  }
  return out;
}

/// Reads the members of one line, naming file, line and member in errors.
class Members {
 public:
  Members(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Error error(std::string_view member, const std::string& what) const {
    return Error{Errc::invalid_argument, fmt::format("{}: \"{}\": {}", where_, member, what)};
  }

  Result<double> number(std::string_view member, size_t index, const Json& value) const {
    if (value.is_number()) {
      return value.number();
    }
    if (value.is_null() || (value.is_string() && value.string() == "NaN")) {
      return kMissing;
    }
    return error(member, fmt::format("value {} is {}; expected a number, \"NaN\" or null", index,
                                     value.is_string() ? json_quote(value.string())
                                                       : std::string(value.kind_name())));
  }

  Result<std::vector<double>> numbers(std::string_view member, const Json& values) const {
    if (!values.is_array()) {
      return error(member,
                   fmt::format("expected an array of numbers, found {}", values.kind_name()));
    }
    std::vector<double> out;
    out.reserve(values.items().size());
    for (const Json& value : values.items()) {
      HR_TRY(const double real, number(member, out.size(), value));
      out.push_back(real);
    }
    return out;
  }

  Result<std::vector<double>> numbers(std::string_view member) const {
    const Json* values = object_.find(member);
    return values == nullptr ? Result<std::vector<double>>(std::vector<double>())
                             : numbers(member, *values);
  }

  const Json* find(std::string_view member) const { return object_.find(member); }

 private:
  const Json& object_;
  std::string where_;
};

Result<void> read_start(const Members& members, int year_end_month, JsonSeries* out) {
  const Json* start = members.find("start");
  if (start == nullptr) {
    return members.error("start", "the member is missing; expected a time stamp");
  }
  const auto stamp = start->is_string() ? parse_stamp(start->string()) : std::nullopt;
  if (!stamp) {
    const auto period =
        start->is_string() ? parse_period(start->string(), year_end_month) : std::nullopt;
    if (!period) {
      return members.error(
          "start",
          fmt::format("{} is no time stamp such as \"2015-07-01 00:00:00\"", start->dump()));
    }
    out->start_us = *period;
    return {};
  }
  out->start_us = stamp->us;
  out->zone = zone_text(*stamp);
  return {};
}

Result<void> read_categories(const Members& members, JsonSeries* out) {
  HR_TRY(const auto values, members.numbers("feat_static_cat"));
  for (const double value : values) {
    if (!(value >= 0 && value < 1e15) ||
        value != static_cast<double>(static_cast<int64_t>(value))) {
      return members.error("feat_static_cat",
                           fmt::format("{} is no whole number from 0 on", value));
    }
    out->categories.push_back(static_cast<int64_t>(value));
  }
  return {};
}

Result<void> read_dynamics(const Members& members, JsonSeries* out) {
  const Json* rows = members.find("feat_dynamic_real");
  if (rows == nullptr) {
    return {};
  }
  if (!rows->is_array()) {
    return members.error("feat_dynamic_real", "expected an array of arrays");
  }
  for (const Json& row : rows->items()) {
    HR_TRY(auto values, members.numbers("feat_dynamic_real", row));
    if (values.size() < out->target.size()) {
      return members.error("feat_dynamic_real",
                           fmt::format("row {} has {} values, the target has {}",
                                       out->dynamics.size(), values.size(), out->target.size()));
    }
    if (!out->dynamics.empty() && values.size() != out->dynamics.front().size()) {
      return members.error("feat_dynamic_real",
                           fmt::format("row {} has {} values, row 0 has {}", out->dynamics.size(),
                                       values.size(), out->dynamics.front().size()));
    }
    out->dynamics.push_back(std::move(values));
  }
  return {};
}

}  // namespace

Result<JsonSeries> parse_json_series(std::string_view line, const std::string& where,
                                     int64_t number, int year_end_month) {
  std::string cleaned;
  if (line.find("NaN") != std::string_view::npos) {
    cleaned = without_bare_nan(line);
    line = cleaned;
  }
  HR_TRY(const Json object, parse_json(line, where));
  if (!object.is_object()) {
    return Error{Errc::invalid_argument,
                 fmt::format("{}: expected an object with \"start\" and \"target\", found {}",
                             where, object.kind_name())};
  }
  const Members members(object, where);
  JsonSeries out;
  out.id = std::to_string(number);
  if (const Json* id = members.find("item_id"); id != nullptr) {
    if (!id->is_string() && !id->is_integer()) {
      return members.error("item_id",
                           id->is_null() ? "it is null" : "expected a text or a whole number");
    }
    out.id = id->is_string() ? id->string() : std::to_string(id->integer());
  }
  HR_TRY(read_start(members, year_end_month, &out));
  if (members.find("target") == nullptr) {
    return members.error("target", "the member is missing; expected an array of numbers");
  }
  HR_TRY(out.target, members.numbers("target"));
  HR_TRY(read_categories(members, &out));
  HR_TRY(out.statics, members.numbers("feat_static_real"));
  HR_TRY(read_dynamics(members, &out));
  return out;
}

namespace {

/// Series of one file, counted over all files where ids are given by number.
class SeriesLines {
 public:
  static Result<SeriesLines> open(const scan::Storage& storage, const FileInfo& file,
                                  const scan::ByteCounter& counter, int64_t first,
                                  const TableOptions& options,
                                  base::Xxh3Stream128* hash = nullptr) {
    HR_TRY(auto stream, storage.stream(file.path, is_packed(file.path), counter));
    return SeriesLines(TextLines(std::move(stream), file.path, hash), first,
                       options.year_end_month);
  }

  Result<bool> next(JsonSeries* out) {
    std::string_view line;
    for (;;) {
      HR_TRY(const bool some, lines_.next(&line));
      if (!some) {
        return false;
      }
      if (line.find_first_not_of(" \t") != std::string_view::npos) {
        HR_TRY(*out, parse_json_series(line, lines_.where(), count_, year_end_month_));
        ++count_;
        return true;
      }
    }
  }
  std::string where() const { return lines_.where(); }
  int64_t count() const { return count_; }

 private:
  SeriesLines(TextLines lines, int64_t first, int year_end_month)
      : lines_(std::move(lines)), count_(first), year_end_month_(year_end_month) {}
  TextLines lines_;
  int64_t count_;  // of all files up to here: the id of a series without one
  int year_end_month_;
};

int64_t rows_of(const JsonSeries& series) {
  return std::max(std::ssize(series.target),
                  series.dynamics.empty() ? 0 : std::ssize(series.dynamics.front()));
}

class JsonRows final : public scan::RowGroupRows {
 public:
  JsonRows(SeriesLines lines, const TextRead& read)
      : lines_(std::move(lines)),
        batch_rows_(read.batch_rows),
        options_(*read.options),
        schema_(read.schema),
        builder_(read.schema) {}

  Result<std::optional<Batch>> next() override {
    int64_t count = 0;
    while (count < batch_rows_) {
      if (position_ >= rows_of(series_)) {
        HR_TRY(const bool some, lines_.next(&series_));
        if (!some) {
          series_ = JsonSeries();
          break;
        }
        position_ = 0;
        continue;
      }
      for (size_t i = 0; i < schema_.size(); ++i) {
        add(schema_[i].name, builder_[i]);
      }
      ++position_;
      ++count;
    }
    return count > 0 ? std::optional<Batch>(builder_.take()) : std::optional<Batch>();
  }

 private:
  void add(const std::string& name, ColumnBuilder& column) const {
    const auto at = static_cast<size_t>(position_);
    if (name == "item_id") {
      column.add_text(series_.id);
    } else if (name == "position") {
      column.add_integer(position_);
    } else if (name == "start") {
      column.add_integer(series_.start_us);
    } else if (name == "timestamp") {
      column.add_integer(options_.stamp(series_.start_us, position_));
    } else if (name == "target") {
      add_real(series_.target, at, column);
    } else {
      const size_t index = static_cast<size_t>(std::stoul(name.substr(name.rfind('_') + 1)));
      if (name[5] == 'd') {  // feat_dynamic_real_
        add_real(series_.dynamics[index], at, column);
      } else if (name[12] == 'c') {  // feat_static_cat_
        column.add_integer(series_.categories[index]);
      } else {
        add_real(series_.statics, index, column);
      }
    }
  }

  static void add_real(const std::vector<double>& values, size_t at, ColumnBuilder& column) {
    if (at < values.size() && values[at] == values[at]) {
      column.add_real(values[at]);
    } else {
      column.add_null();
    }
  }

  SeriesLines lines_;
  const int64_t batch_rows_;
  const TableOptions& options_;
  const Schema schema_;
  BatchBuilder builder_;
  JsonSeries series_;
  int64_t position_ = 0;
};

Schema schema_of(const JsonSeries& first, const TableOptions& options) {
  const std::string zone = options.zone.empty() ? first.zone : options.zone;
  Schema out = {{.name = "item_id", .type = Type::string, .file_type = "item_id"}};
  if (options.stamp) {
    out.push_back({.name = "timestamp",
                   .type = Type::timestamp_us,
                   .zone = zone,
                   .file_type = "start and position"});
  }
  out.push_back({.name = "position", .type = Type::int64, .file_type = "index"});
  out.push_back({.name = "start", .type = Type::timestamp_us, .zone = zone, .file_type = "start"});
  out.push_back({.name = "target", .type = Type::float64, .file_type = "target"});
  const auto add = [&out](const char* name, size_t count, Type type) {
    for (size_t i = 0; i < count; ++i) {
      out.push_back({.name = fmt::format("{}_{}", name, i), .type = type, .file_type = name});
    }
  };
  add("feat_static_cat", first.categories.size(), Type::int64);
  add("feat_static_real", first.statics.size(), Type::float64);
  add("feat_dynamic_real", first.dynamics.size(), Type::float64);
  return out;
}

Result<void> check_cardinalities(const JsonSeries& series, const std::vector<int64_t>& limits,
                                 const std::string& where) {
  for (size_t k = 0; k < std::min(series.categories.size(), limits.size()); ++k) {
    if (series.categories[k] >= limits[k]) {
      return Error{Errc::invalid_argument,
                   fmt::format("{}: \"feat_static_cat\": value {} is {}, but its cardinality is {} "
                               "by the metadata; correct one of the two",
                               where, k, series.categories[k], limits[k])};
    }
  }
  return {};
}

/// Every line must have as many covariates as the first, and its zone.
Result<void> check_like_first(const JsonSeries& first, const JsonSeries& series,
                              const std::string& where, bool any_zone) {
  const auto differs = [&](const char* member, size_t count, size_t wanted) -> Result<void> {
    if (count == wanted) {
      return {};
    }
    return Error{Errc::mismatch, fmt::format("{}: \"{}\" has {} values, the first line has {}",
                                             where, member, count, wanted)};
  };
  HR_TRY(differs("feat_static_cat", series.categories.size(), first.categories.size()));
  HR_TRY(differs("feat_static_real", series.statics.size(), first.statics.size()));
  HR_TRY(differs("feat_dynamic_real", series.dynamics.size(), first.dynamics.size()));
  if (series.zone != first.zone && !any_zone) {
    const auto shown = [](const std::string& zone) { return zone.empty() ? "none" : zone; };
    return Error{Errc::mismatch,
                 fmt::format("{}: \"start\": its zone is {}, the first line's is {}; write all in "
                             "one zone, or open the table with zone UTC to take them as instants",
                             where, shown(series.zone), shown(first.zone))};
  }
  return {};
}

}  // namespace

Result<TextShape> inspect_json_lines(const scan::Storage& storage,
                                     const std::vector<FileInfo>& files,
                                     const TableOptions& options) {
  TextShape out;
  std::optional<JsonSeries> first;
  int64_t series_before = 0;
  for (const FileInfo& file : files) {
    base::Xxh3Stream128 hash;
    HR_TRY(auto lines, SeriesLines::open(storage, file, std::make_shared<std::atomic<int64_t>>(0),
                                         series_before, options, &hash));
    int64_t count = 0;
    for (;;) {
      JsonSeries series;
      HR_TRY(const bool some, lines.next(&series));
      if (!some) {
        break;
      }
      count += rows_of(series);
      HR_TRY(check_cardinalities(series, options.cardinalities, lines.where()));
      if (!first) {
        first = std::move(series);
      } else {
        HR_TRY(check_like_first(*first, series, lines.where(), !options.zone.empty()));
      }
    }
    out.rows.push_back(count);
    out.series.push_back(lines.count() - series_before);
    series_before = lines.count();
    out.hashes.push_back(base::hex(hash.finish()));
  }
  out.schema = schema_of(first.value_or(JsonSeries()), options);
  return out;
}

Result<std::unique_ptr<scan::RowGroupRows>> read_json_lines(const TextRead& read) {
  HR_TRY(auto lines, SeriesLines::open(*read.storage, read.file, read.counter, read.first_series,
                                       *read.options));
  return std::unique_ptr<scan::RowGroupRows>(std::make_unique<JsonRows>(std::move(lines), read));
}

}  // namespace headrace::lake
