// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "headrace/lake/table.h"
#include "headrace/lake/write.h"

namespace headrace::jobs {

namespace {

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

/// Levels out of the column names "q0.1", ...; others are not quantiles.
std::map<double, const lake::Column*> level_columns(const lake::Batch& batch) {
  std::map<double, const lake::Column*> out;
  for (const lake::Column& column : batch.columns) {
    const std::string& name = column.field.name;
    double level = 0.0;
    const char* end = name.data() + name.size();
    if (name.starts_with("q") && column.field.type == lake::Type::float64 &&
        std::from_chars(name.data() + 1, end, level).ptr == end && level >= 0.0 && level <= 1.0) {
      out.emplace(level, &column);
    }
  }
  return out;
}

struct ForecastColumns {
  const lake::Column* id = nullptr;
  const lake::Column* time = nullptr;
  const lake::Column* mean = nullptr;
  const lake::Column* model = nullptr;
  std::map<double, const lake::Column*> levels;
};

Result<ForecastColumns> find_columns(const lake::Batch& batch, const std::string& where) {
  ForecastColumns columns;
  columns.id = batch.find("item_id");
  columns.time = batch.find("timestamp");
  columns.mean = batch.find("mean");
  columns.model = batch.find("model");
  columns.levels = level_columns(batch);
  for (const auto& [column, name] :
       {std::pair(columns.id, "item_id"), std::pair(columns.time, "timestamp"),
        std::pair(columns.mean, "mean")}) {
    if (column == nullptr) {
      return lake::missing_column(batch.schema(), name, where);
    }
  }
  if (columns.levels.empty()) {
    return lake::missing_column(batch.schema(), "q0.5", where);
  }
  return columns;
}

/// One item's forecast out of its rows, in the order of stamps.
Result<forecast::Forecast> item_of(const std::string& id, std::vector<int64_t> rows,
                                   const ForecastColumns& columns,
                                   const forecast::Frequency& frequency) {
  const auto& stamps = columns.time->integers;
  std::sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
    return stamps[static_cast<size_t>(a)] < stamps[static_cast<size_t>(b)];
  });
  forecast::Forecast out;
  out.id = id;
  out.frequency = frequency;
  out.start_us = stamps[static_cast<size_t>(rows.front())];
  out.horizon = static_cast<int>(rows.size());
  for (const auto& [level, column] : columns.levels) {
    out.levels.push_back(level);
    for (const int64_t row : rows) {
      out.quantiles.push_back(column->reals[static_cast<size_t>(row)]);
    }
  }
  for (const int64_t row : rows) {
    out.mean.push_back(columns.mean->reals[static_cast<size_t>(row)]);
  }
  if (columns.model != nullptr) {
    HR_TRY(out.method, forecast::parse_method(columns.model->text(rows.front())));
  }
  return out;
}

}  // namespace

Result<lake::Batch> forecast_batch(std::span<const forecast::Forecast> forecasts) {
  lake::Column id = make_column("item_id", lake::Type::string);
  lake::Column time = make_column("timestamp", lake::Type::timestamp_us);
  lake::Column step = make_column("step", lake::Type::int64);
  lake::Column mean = make_column("mean", lake::Type::float64);
  lake::Column model = make_column("model", lake::Type::string);
  std::vector<lake::Column> levels;
  lake::Column samples = make_column("samples", lake::Type::floats);
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
    add_text(std::string(forecast::method_name(forecast.method)), forecast.horizon, &model);
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
  batch.columns = {std::move(id), std::move(time), std::move(step), std::move(mean)};
  std::move(levels.begin(), levels.end(), std::back_inserter(batch.columns));
  batch.columns.push_back(std::move(model));
  if (samples.field.width > 0) {
    batch.columns.push_back(std::move(samples));
  }
  return batch;
}

Result<void> write_forecasts(const base::Path& path,
                             std::span<const forecast::Forecast> forecasts) {
  HR_TRY(const lake::Batch batch, forecast_batch(forecasts));
  const std::string name = path.filename().string();
  if (path.extension() == ".parquet") {
    return lake::write_parquet(path, batch);
  }
  if (name.ends_with(".csv") || name.ends_with(".csv.gz")) {
    return lake::write_csv(path, batch);
  }
  return Error{Errc::invalid_argument,
               path.string() + ": forecasts are written as .parquet, .csv or .csv.gz"};
}

Result<std::vector<forecast::Forecast>> read_forecast_table(const base::Path& path) {
  HR_TRY(const lake::Table table, lake::Table::open(path.string()));
  HR_TRY(const lake::Batch batch, table.read());
  return forecasts_of(batch, path.string());
}

Result<std::vector<forecast::Forecast>> forecasts_of(const lake::Batch& batch,
                                                     const std::string& where) {
  HR_TRY(const ForecastColumns columns, find_columns(batch, where));
  std::vector<std::string> order;
  std::map<std::string, std::vector<int64_t>> rows;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    const std::string id = columns.id->text(row);
    auto& list = rows[id];
    if (list.empty()) {
      order.push_back(id);
    }
    list.push_back(row);
  }
  forecast::FrequencyVotes votes;
  for (const auto& [id, list] : rows) {
    std::vector<int64_t> stamps;
    for (const int64_t row : list) {
      stamps.push_back(columns.time->integers[static_cast<size_t>(row)]);
    }
    std::sort(stamps.begin(), stamps.end());
    votes.add(stamps);
  }
  HR_TRY(const auto frequency, votes.winner(), where);
  std::vector<forecast::Forecast> out;
  for (const std::string& id : order) {
    HR_TRY(auto item, item_of(id, std::move(rows[id]), columns, frequency), where);
    out.push_back(std::move(item));
  }
  return out;
}

}  // namespace headrace::jobs
