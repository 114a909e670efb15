// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "headrace/lake/series.h"
#include "headrace/lake/table.h"
#include "headrace/lake/write.h"

namespace headrace::jobs {

namespace {

constexpr const char* kSamples = "samples";

lake::Column make_column(std::string name, lake::Type type, std::string zone = {}) {
  lake::Column column;
  column.field.name = std::move(name);
  column.field.type = type;
  column.field.zone = std::move(zone);
  return column;
}

void add_text(const std::string& text, int64_t rows, lake::Column* column) {
  const auto known = std::find(column->dictionary.begin(), column->dictionary.end(), text);
  const auto code = static_cast<int32_t>(known - column->dictionary.begin());
  if (known == column->dictionary.end()) {
    column->dictionary.push_back(text);
  }
  column->codes.insert(column->codes.end(), static_cast<size_t>(rows), code);
}

int32_t sample_count(const forecast::Forecast& forecast) {
  const auto horizon = static_cast<size_t>(std::max(1, forecast.horizon));
  return static_cast<int32_t>(forecast.samples.size() / horizon);
}

/// A row per step: the values of all paths there.
Result<void> add_samples(const forecast::Forecast& forecast, lake::Column* column) {
  const auto count = static_cast<size_t>(sample_count(forecast));
  if (static_cast<int32_t>(count) != column->field.width) {
    return Error{Errc::invalid_argument, "forecast: item \"" + forecast.id + "\" has " +
                                             std::to_string(count) + " samples, others have " +
                                             std::to_string(column->field.width)};
  }
  const auto horizon = static_cast<size_t>(forecast.horizon);
  for (size_t k = 0; k < horizon; ++k) {
    for (size_t path = 0; path < count; ++path) {
      column->lists.push_back(forecast.samples[path * horizon + k]);
    }
  }
  return {};
}

std::string level_name(double level) { return "q" + number_text(level); }

/// Levels out of the column names "q0.1", ..., ascending; others are not quantiles.
std::map<double, std::string> level_columns(const lake::Schema& schema) {
  std::map<double, std::string> out;
  for (const lake::Field& field : schema) {
    double level = 0.0;
    const char* end = field.name.data() + field.name.size();
    if (field.name.starts_with("q") &&
        std::from_chars(field.name.data() + 1, end, level).ptr == end && level >= 0.0 &&
        level <= 1.0) {
      out.emplace(level, field.name);
    }
  }
  return out;
}

/// Rows of a forecast table, read and checked as those of any long table: the mean is its target,
/// the quantiles are its numeric covariates, the model is a category.
struct ForecastRows {
  lake::SeriesRows rows;
  std::vector<double> levels;
};

/// A column that says what was forecast, not of which item or when.
bool is_result(const std::string& name) {
  const std::array<std::string_view, 4> results = {"step", "mean", "model", "samples"};
  return std::ranges::find(results, name) != results.end() ||
         !level_columns({lake::Field{.name = name}}).empty();
}

/// The column at `position`, 0 for ids and 1 for stamps: by the layout that `forecast_batch` gives,
/// the told name, or the usual ones. The table of the items may call its own "model" or "mean".
std::string find_column(const lake::Schema& schema, size_t position, const std::string& told) {
  const std::array<std::array<std::string, 2>, 2> usual = {
      {{"item_id", "unique_id"}, {"timestamp", "ds"}}};
  if (schema.size() > 2 && schema[2].name == "step") {
    return schema[position].name;
  }
  for (const std::string& name : {told, usual[position][0], usual[position][1]}) {
    if (!name.empty() && !is_result(name) && lake::find_field(schema, name) >= 0) {
      return name;
    }
  }
  return usual[position][0];
}

forecast::ColumnNames find_columns(const lake::Schema& schema, const forecast::ColumnNames& told) {
  return {find_column(schema, 0, told.id), find_column(schema, 1, told.time), ""};
}

/// A name that no other column of the table has.
std::string free_name(const std::string& wanted, const std::string& usual,
                      const std::vector<lake::Column>& others) {
  const bool taken = std::ranges::any_of(
      others, [&](const lake::Column& other) { return other.field.name == wanted; });
  return wanted.empty() || taken ? usual : wanted;
}

Result<ForecastRows> read_rows(lake::BatchReader& reader, const std::string& where,
                               const forecast::ColumnNames& told) {
  const auto levels = level_columns(reader.schema());
  if (levels.empty()) {
    return lake::missing_column(reader.schema(), "q0.5", where);
  }
  lake::SeriesColumns columns;
  const forecast::ColumnNames names = find_columns(reader.schema(), told);
  columns.id = names.id;
  columns.time = names.time;
  columns.target = "mean";
  if (lake::find_field(reader.schema(), "model") >= 0) {
    columns.categories = {"model"};
  }
  const int64_t samples = lake::find_field(reader.schema(), kSamples);
  const bool others = columns.id == kSamples || columns.time == kSamples;  // the table's own name
  if (samples >= 0 && !others &&
      reader.schema()[static_cast<size_t>(samples)].type != lake::Type::unsupported) {
    columns.lists = kSamples;
  }
  ForecastRows out;
  for (const auto& [level, name] : levels) {
    out.levels.push_back(level);
    columns.reals.push_back(name);
  }
  HR_TRY(out.rows, lake::read_series(reader, where, columns));
  const auto missing = [](double value) { return std::isnan(value); };
  for (size_t row = 0; row < out.rows.stamp_us.size(); ++row) {
    bool complete = out.rows.stamp_us[row] != forecast::kNoStamp && !missing(out.rows.target[row]);
    for (const auto& level : out.rows.reals) {
      complete = complete && !missing(level.values[row]);
    }
    if (!complete) {
      return Error{Errc::invalid_argument,
                   where + ": row " + std::to_string(row) + ", item \"" +
                       out.rows.ids[static_cast<size_t>(out.rows.item[row])] +
                       "\", lacks its timestamp, mean or a quantile; leave the row out"};
    }
  }
  return out;
}

/// The paths of an item: as many at each step, or none at all.
Result<void> read_samples(std::span<const size_t> order, const lake::SeriesRows& rows,
                          forecast::Forecast* out) {
  const auto list_of = [&](size_t row) {
    const int64_t begin = row == 0 ? 0 : rows.list_ends[row - 1];
    return std::span(rows.lists)
        .subspan(static_cast<size_t>(begin), static_cast<size_t>(rows.list_ends[row] - begin));
  };
  const size_t horizon = order.size();
  const size_t paths = list_of(order.front()).size();
  out->samples.resize(paths * horizon);
  const auto refuse = [&](size_t k, const std::string& what) {
    return Error{Errc::invalid_argument,
                 fmt::format("item \"{}\": step {}{}", out->id, k + 1, what)};
  };
  for (size_t k = 0; k < horizon; ++k) {
    const std::span<const float> list = list_of(order[k]);
    if (list.size() != paths) {
      return refuse(k, fmt::format(" has {} samples, step 1 has {}; a forecast has as many at "
                                   "each step",
                                   list.size(), paths));
    }
    for (size_t path = 0; path < paths; ++path) {
      if (!std::isfinite(list[path])) {
        return refuse(k, fmt::format(": sample {} has no value", path + 1));
      }
      out->samples[path * horizon + k] = list[path];
    }
  }
  return {};
}

/// One item's forecast out of its rows, which are in the order of stamps.
Result<forecast::Forecast> item_of(const std::string& id, std::span<const size_t> order,
                                   const ForecastRows& table,
                                   const forecast::Frequency& frequency) {
  const lake::SeriesRows& rows = table.rows;
  forecast::Forecast out;
  out.id = id;
  out.frequency = frequency;
  out.start_us = rows.stamp_us[order.front()];
  out.horizon = static_cast<int>(order.size());
  out.levels = table.levels;
  for (size_t k = 0; k < order.size(); ++k) {
    const int64_t expected = forecast::add_steps(frequency, out.start_us, static_cast<int64_t>(k));
    if (rows.stamp_us[order[k]] != expected) {
      return Error{Errc::invalid_argument,
                   "item \"" + id + "\": step " + std::to_string(k + 1) + " is to be " +
                       forecast::stamp_text(expected) + ", but the row is of " +
                       forecast::stamp_text(rows.stamp_us[order[k]]) +
                       "; a forecast has one row per step of " + frequency.name()};
    }
    out.mean.push_back(rows.target[order[k]]);
  }
  for (const auto& level : rows.reals) {
    for (const size_t row : order) {
      out.quantiles.push_back(level.values[row]);
    }
  }
  if (!rows.list_ends.empty()) {
    HR_TRY(read_samples(order, rows, &out));
  }
  out.unnamed = rows.categories.empty();
  if (!rows.categories.empty()) {
    const int32_t code = rows.categories.front().code[order.front()];
    HR_TRY(forecast::set_made_by(
        code < 0 ? "" : rows.categories.front().values[static_cast<size_t>(code)], &out));
  }
  return out;
}

/// Rows by item, each item's by stamp.
std::vector<std::vector<size_t>> rows_by_item(const lake::SeriesRows& rows) {
  std::vector<std::vector<size_t>> out(rows.ids.size());
  for (size_t row = 0; row < rows.item.size(); ++row) {
    out[static_cast<size_t>(rows.item[row])].push_back(row);
  }
  for (std::vector<size_t>& list : out) {
    std::stable_sort(list.begin(), list.end(),
                     [&](size_t a, size_t b) { return rows.stamp_us[a] < rows.stamp_us[b]; });
  }
  return out;
}

forecast::FrequencyVotes votes_of(const lake::SeriesRows& rows,
                                  const std::vector<std::vector<size_t>>& items) {
  forecast::FrequencyVotes votes;
  for (const std::vector<size_t>& list : items) {
    std::vector<int64_t> stamps;
    for (const size_t row : list) {
      stamps.push_back(rows.stamp_us[row]);
    }
    votes.add(stamps);
  }
  return votes;
}

}  // namespace

Result<lake::Batch> forecast_batch(std::span<const forecast::Forecast> forecasts,
                                   const forecast::ColumnNames& names) {
  lake::Column id = make_column("item_id", lake::Type::string);
  lake::Column time = make_column("timestamp", lake::Type::timestamp_us, names.zone);
  lake::Column step = make_column("step", lake::Type::int64);
  lake::Column mean = make_column("mean", lake::Type::float64);
  lake::Column model = make_column("model", lake::Type::string);
  std::vector<lake::Column> levels;
  lake::Column samples = make_column(kSamples, lake::Type::floats);
  if (!forecasts.empty()) {
    samples.field.width = sample_count(forecasts.front());
    for (const double level : forecasts.front().levels) {
      levels.push_back(make_column(level_name(level), lake::Type::float64));
    }
  }
  for (const forecast::Forecast& forecast : forecasts) {
    if (forecast.levels != forecasts.front().levels) {
      return Error{Errc::invalid_argument, "forecast: item \"" + forecast.id +
                                               "\" has other quantile levels than \"" +
                                               forecasts.front().id + "\""};
    }
    HR_TRY(add_samples(forecast, &samples));
    const auto horizon = static_cast<size_t>(forecast.horizon);
    // Ids are distinct, so their dictionary needs no search.
    id.codes.insert(id.codes.end(), horizon, static_cast<int32_t>(id.dictionary.size()));
    id.dictionary.push_back(forecast.id);
    add_text(forecast::made_by(forecast), forecast.horizon, &model);
    for (size_t k = 0; k < horizon; ++k) {
      time.integers.push_back(
          forecast::add_steps(forecast.frequency, forecast.start_us, static_cast<int64_t>(k)));
      step.integers.push_back(static_cast<int64_t>(k) + 1);
      mean.reals.push_back(forecast.mean[k]);
      for (size_t level = 0; level < levels.size(); ++level) {
        levels[level].reals.push_back(forecast.quantiles[level * horizon + k]);
      }
    }
  }
  lake::Batch batch;
  batch.columns = {std::move(step), std::move(mean)};
  std::move(levels.begin(), levels.end(), std::back_inserter(batch.columns));
  batch.columns.push_back(std::move(model));
  if (samples.field.width > 0) {
    batch.columns.push_back(std::move(samples));
  }
  if (names.integer_ids) {
    id = integer_column(id);
  }
  id.field.name = free_name(names.id, "item_id", batch.columns);
  time.field.name = free_name(names.time, "timestamp", batch.columns);
  if (id.field.name == time.field.name) {
    id.field.name = "item_id";
    time.field.name = "timestamp";
  }
  batch.columns.insert(batch.columns.begin(), {std::move(id), std::move(time)});
  return batch;
}

lake::Column integer_column(const lake::Column& texts) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts.dictionary) {
    int64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end != text.data() + text.size()) {
      return texts;
    }
    numbers.push_back(number);
  }
  lake::Column out = make_column(texts.field.name, lake::Type::int64);
  for (const int32_t code : texts.codes) {
    out.integers.push_back(numbers[static_cast<size_t>(code)]);
  }
  return out;
}

Result<void> check_ending(const base::Path& path, const std::string& what) {
  const std::string name = path.filename().string();
  if (name.ends_with(".parquet") || name.ends_with(".csv") || name.ends_with(".csv.gz")) {
    return {};
  }
  return Error{Errc::invalid_argument,
               path.string() + ": " + what + " are written as .parquet, .csv or .csv.gz"};
}

Result<void> write_by_ending(const base::Path& path, const lake::Batch& batch) {
  return path.extension() == ".parquet" ? lake::write_parquet(path, batch)
                                        : lake::write_csv(path, batch);
}

Result<void> write_forecasts(const base::Path& path, std::span<const forecast::Forecast> forecasts,
                             const forecast::ColumnNames& names) {
  HR_TRY(check_ending(path, "forecasts"));
  HR_TRY(const lake::Batch batch, forecast_batch(forecasts, names));
  return write_by_ending(path, batch);
}

Result<std::vector<forecast::Forecast>> read_forecast_table(
    const base::Path& path, const std::optional<forecast::Frequency>& frequency,
    const forecast::ColumnNames& names) {
  HR_TRY(const lake::Table table, lake::Table::open(path.string()));
  HR_TRY(const auto reader, table.scan({}));
  return forecasts_of(*reader, path.string(), frequency, names);
}

Result<std::vector<forecast::Forecast>> forecasts_of(
    lake::BatchReader& reader, const std::string& where,
    const std::optional<forecast::Frequency>& frequency, const forecast::ColumnNames& names) {
  HR_TRY(const ForecastRows table, read_rows(reader, where, names));
  const auto items = rows_by_item(table.rows);
  forecast::Frequency step;
  if (frequency) {
    step = *frequency;
  } else {
    HR_TRY(step, votes_of(table.rows, items).winner(), where);
  }
  std::vector<forecast::Forecast> out;
  for (size_t item = 0; item < items.size(); ++item) {
    HR_TRY(auto one, item_of(table.rows.ids[item], items[item], table, step), where);
    out.push_back(std::move(one));
  }
  return out;
}

Result<forecast::ColumnNames> forecast_columns(const base::Path& path,
                                               const forecast::ColumnNames& names) {
  HR_TRY(const lake::Table table, lake::Table::open(path.string()));
  return find_columns(table.schema(), names);
}

}  // namespace headrace::jobs
