// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/actuals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "headrace/forecast/frequency.h"
#include "headrace/lake/dataset.h"
#include "headrace/lake/series.h"

namespace headrace::jobs {

namespace {

/// What the row of an item says of where it begins, since neither it nor its past has stamps.
enum class Begins : uint8_t {
  anywhere,   ///< constant, or alike for so few values that chance may make it so
  after,      ///< it is not what its past begins with
  with_past,  ///< the past again, or half of it and more
  either,     ///< that, or the pattern of the past that goes on
};

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Whether `past` repeats itself twice at least, and `came` is how it goes on.
bool goes_on(std::vector<double> past, const std::vector<double>& came) {
  const size_t half = past.size() / 2;
  past.insert(past.end(), came.begin(), came.end());
  // Knuth, Morris, Pratt 1977: the smallest period from the longest border of each beginning.
  std::vector<size_t> border(past.size(), 0);
  for (size_t i = 1; i < past.size(); ++i) {
    size_t length = border[i - 1];
    while (length > 0 && !same(past[i], past[length])) {
      length = border[length - 1];
    }
    border[i] = length + (same(past[i], past[length]) ? 1 : 0);
  }
  return past.size() - border.back() <= half;
}

Begins begins(const forecast::Series& past, const forecast::Series& came) {
  const int64_t common = std::min(past.length(), came.length());
  const auto end = came.target.begin() + common;
  if (!std::equal(came.target.begin(), end, past.target.begin(), same)) {
    return Begins::after;
  }
  const bool varied = std::any_of(came.target.begin(), end, [&](double value) {
    return !std::isnan(value) && !same(value, past.target.front());
  });
  if (!varied || 2 * common < past.length()) {
    return Begins::anywhere;
  }
  return goes_on(past.target, came.target) ? Begins::either : Begins::with_past;
}

Error unclear(const std::string& what) {
  return Error{Errc::invalid_argument,
               "actuals: " + what +
                   "; a wide table has no stamps: say that of its first values with "
                   "--actuals-start (in Python start= of its Table)"};
}

}  // namespace

Result<std::string> actuals_url(const std::string& url, const std::string& metadata) {
  if (url.empty()) {
    return url;
  }
  HR_TRY(const auto dataset, lake::find_dataset(url, metadata));
  if (!dataset || !dataset->at_root) {
    return url;
  }
  if (dataset->test.empty()) {
    return Error{Errc::invalid_argument, url + " has no test/; name the table of actuals"};
  }
  return dataset->test;
}

TableSpec actuals_spec(TableSpec table, const ActualsPlace& place) {
  table.url = place.url;
  table.start = place.start;
  table.learned.start.clear();
  if (!place.format.empty()) {
    table.format = place.format;
    return table;
  }
  const auto told = parse_format(table.format);
  if (place.url.empty() || !told.ok() || *told == lake::Format::automatic) {
    return table;
  }
  std::error_code code;
  const bool one_file = std::filesystem::is_regular_file(place.url, code);
  if (!one_file && lake::list_table_files(place.url, *told).ok()) {
    return table;  // a folder may hold files of several formats: it has such as are told
  }
  const auto named = lake::list_table_files(place.url);
  const bool both_csv = named.ok() && named->format == lake::Format::csv &&
                        (*told == lake::Format::csv || *told == lake::Format::wide_csv);
  if (named.ok() && !both_csv) {
    table.format.clear();
  }
  return table;
}

Result<void> continue_history(const forecast::SeriesSet& history, forecast::SeriesSet* actuals) {
  std::map<std::string_view, const forecast::Series*> by_id;
  for (const forecast::Series& past : history.series) {
    by_id.emplace(past.id, &past);
  }
  std::map<Begins, std::vector<std::string>> ids;
  std::vector<std::pair<forecast::Series*, const forecast::Series*>> pairs;
  for (forecast::Series& came : actuals->series) {
    if (const auto found = by_id.find(came.id); found != by_id.end()) {
      pairs.emplace_back(&came, found->second);
      ids[begins(*found->second, came)].push_back(came.id);
    }
  }
  // A table is of one kind: rows that tell it tell it of the others.
  const bool with_past = ids.contains(Begins::with_past);
  const bool after = ids.contains(Begins::after);
  if (with_past && after) {
    return unclear(fmt::format("some rows begin with their item's past ({}), others do not ({})",
                               lake::first_names(ids[Begins::with_past]),
                               lake::first_names(ids[Begins::after])));
  }
  if (!with_past && !after && ids.contains(Begins::either)) {
    return unclear(
        fmt::format("the rows of {} may be the past again, or what came after it in "
                    "the same pattern",
                    lake::first_names(ids[Begins::either])));
  }
  for (const auto& [came, past] : pairs) {
    came->start_us =
        forecast::add_steps(past->frequency, past->start_us, with_past ? 0 : past->length());
  }
  return {};
}

Result<SeriesTable> load_actuals(TableSpec spec, const forecast::SeriesSet& history,
                                 const std::vector<std::string>& items) {
  HR_TRY(spec.url, actuals_url(spec.url, spec.metadata), "actuals");
  if (spec.frequency.empty()) {
    spec.frequency = history.frequency.name();  // few rows of actuals may not tell it
  }
  HR_TRY(SeriesTable table, load_series(spec, items), "actuals");
  if (table.without_start) {
    HR_TRY(continue_history(history, &table.set));
  }
  return table;
}

Result<void> check_actuals(const TableSpec& actuals, const TableSpec& past) {
  auto checked = check_table(actuals);
  if (!checked.ok()) {
    return std::move(std::move(checked).error().add_context("actuals"));
  }
  HR_TRY(const OpenedTable opened, open_series_table(actuals), "actuals");
  if (opened.table.format() != lake::Format::wide_csv || !opened.spec.start.empty()) {
    return {};
  }
  const auto history = load_series(past);
  if (!history.ok()) {
    return {};  // told as what it is, not of the actuals
  }
  HR_TRY([[maybe_unused]] const auto came, load_actuals(actuals, history->set));
  return {};
}

}  // namespace headrace::jobs
