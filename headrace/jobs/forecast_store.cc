// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_store.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "headrace/base/clock.h"
#include "headrace/base/json.h"

namespace headrace::jobs {

namespace {

constexpr uint8_t kItemRecord = 1;

Json numbers_json(const std::vector<double>& values) {
  Json::Array items(values.begin(), values.end());
  return Json(std::move(items));
}

/// Numbers of an array; non-finite ones stand in JSON as "NaN", "Infinity", "-Infinity".
double number_of(const Json& value) {
  if (value.is_number()) {
    return value.number();
  }
  const std::string text = value.is_string() ? value.string() : "NaN";
  if (text == "Infinity") {
    return std::numeric_limits<double>::infinity();
  }
  return text == "-Infinity" ? -std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> numbers_of(const Json* array) {
  std::vector<double> out;
  if (array != nullptr && array->is_array()) {
    for (const Json& value : array->items()) {
      out.push_back(number_of(value));
    }
  }
  return out;
}

Json scores_json(const ItemForecast& item) {
  Json out = Json::object();
  for (const auto& [candidate, metrics] : item.scores) {
    Json one = Json::object();
    for (const auto& [name, value] : metrics) {
      one.set(name, value);
    }
    out.set(candidate, std::move(one));
  }
  return out;
}

Json to_json(const ItemForecast& item, base::Micros now) {
  Json notes = Json::array();
  for (const std::string& note : item.notes) {
    notes.push_back(note);
  }
  const forecast::Forecast& f = item.forecast;
  return Json::object({{"item", f.id},
                       {"at_us", now.count()},
                       {"winner", item.winner},
                       {"model", item.model},
                       {"season", item.season},
                       {"id_column", item.columns.id},
                       {"time_column", item.columns.time},
                       {"integer_ids", item.columns.integer_ids},
                       {"zone", item.columns.zone},
                       {"seconds", item.seconds},
                       {"method", forecast::made_by(f)},
                       {"frequency", f.frequency.name()},
                       {"start_us", f.start_us},
                       {"horizon", f.horizon},
                       {"levels", numbers_json(f.levels)},
                       {"quantiles", numbers_json(f.quantiles)},
                       {"mean", numbers_json(f.mean)},
                       {"limited_values", f.limited_values},
                       {"scores", scores_json(item)},
                       {"notes", std::move(notes)}});
}

Result<ItemForecast> from_json(const Json& json) {
  ItemForecast item;
  forecast::Forecast& f = item.forecast;
  f.id = json.get_string("item");
  HR_TRY(f.frequency, forecast::parse_frequency(json.get_string("frequency")));
  HR_TRY(forecast::set_made_by(json.get_string("method"), &f));
  f.start_us = json.get_integer("start_us");
  f.horizon = static_cast<int>(json.get_integer("horizon"));
  f.levels = numbers_of(json.find("levels"));
  f.quantiles = numbers_of(json.find("quantiles"));
  f.mean = numbers_of(json.find("mean"));
  f.limited_values = json.get_integer("limited_values");
  const auto horizon = static_cast<size_t>(f.horizon);
  if (f.mean.size() != horizon || f.quantiles.size() != horizon * f.levels.size()) {
    return Error{Errc::corrupt, "forecast of item \"" + f.id +
                                    "\": " + std::to_string(f.quantiles.size()) +
                                    " quantile values for " + std::to_string(f.levels.size()) +
                                    " levels and horizon " + std::to_string(f.horizon)};
  }
  item.winner = json.get_string("winner");
  item.model = json.get_string("model");
  item.season = static_cast<int>(json.get_integer("season"));
  item.columns = {json.get_string("id_column"), json.get_string("time_column"), "",
                  json.get_bool("integer_ids"), json.get_string("zone")};
  item.seconds = json.get_number("seconds");
  if (const Json* scores = json.find("scores"); scores != nullptr && scores->is_object()) {
    for (const auto& [candidate, metrics] : scores->members()) {
      for (const auto& [name, value] : metrics.members()) {
        item.scores[candidate][name] = number_of(value);
      }
    }
  }
  if (const Json* notes = json.find("notes"); notes != nullptr && notes->is_array()) {
    for (const Json& note : notes->items()) {
      item.notes.push_back(note.string());
    }
  }
  return item;
}

base::Path forecasts_folder(const base::Path& run_folder) { return run_folder / "forecasts"; }

}  // namespace

Result<ForecastWriter> ForecastWriter::open(const base::Path& run_folder) {
  const base::Path folder = forecasts_folder(run_folder);
  HR_TRY(base::make_folders(folder));
  // The first log nobody holds: a fresh one, or one that a worker which has ended left behind.
  constexpr int kWritersMax = 4096;
  for (int number = 0; number < kWritersMax; ++number) {
    const base::Path path = folder / ("worker-" + std::to_string(number) + ".log");
    auto log = base::AppendLog::open(path, {},
                                     [](uint8_t, std::string_view) -> Result<void> { return {}; });
    if (log.ok()) {
      return ForecastWriter(std::move(*log));
    }
    if (log.error().code() != Errc::busy) {
      return std::move(log).error();
    }
  }
  return Error{Errc::busy, folder.string() + ": " + std::to_string(kWritersMax) +
                               " workers write forecasts here already"};
}

Result<void> ForecastWriter::append(const ItemForecast& item) {
  HR_TRY(const uint64_t sequence,
         log_.append(kItemRecord, to_json(item, base::system_clock().wall()).dump()));
  return log_.wait_committed(sequence);
}

Result<std::map<std::string, ItemForecast>> read_forecasts(const base::Path& run_folder) {
  std::map<std::string, std::pair<int64_t, ItemForecast>> found;
  const base::Path folder = forecasts_folder(run_folder);
  std::error_code code;
  std::vector<base::Path> logs;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    if (entry.path().extension() == ".log") {
      logs.push_back(entry.path());
    }
  }
  std::sort(logs.begin(), logs.end());
  for (const base::Path& log : logs) {
    HR_TRY(base::AppendLog::read(log, [&](uint8_t type, std::string_view payload) -> Result<void> {
      if (type != kItemRecord) {
        return {};
      }
      HR_TRY(const Json json, parse_json(payload, log.string()));
      HR_TRY(ItemForecast item, from_json(json), log.string());
      const int64_t at = json.get_integer("at_us");
      const auto known = found.find(item.forecast.id);
      if (known == found.end() || known->second.first <= at) {
        const std::string id = item.forecast.id;
        found.insert_or_assign(id, std::pair(at, std::move(item)));
      }
      return {};
    }));
  }
  std::map<std::string, ItemForecast> out;
  for (auto& [id, entry] : found) {
    out.emplace(id, std::move(entry.second));
  }
  return out;
}

}  // namespace headrace::jobs
