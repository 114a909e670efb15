// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/actuals.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "headrace/forecast/frequency.h"
#include "headrace/lake/dataset.h"

namespace headrace::jobs {

namespace {

bool repeats(const forecast::Series& past, const forecast::Series& came) {
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  return came.length() > past.length() &&
         std::equal(past.target.begin(), past.target.end(), came.target.begin(), same);
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

void continue_history(const forecast::SeriesSet& history, forecast::SeriesSet* actuals) {
  std::map<std::string_view, const forecast::Series*> by_id;
  for (const forecast::Series& past : history.series) {
    by_id.emplace(past.id, &past);
  }
  for (forecast::Series& came : actuals->series) {
    const auto found = by_id.find(came.id);
    if (found == by_id.end()) {
      continue;
    }
    const forecast::Series& past = *found->second;
    const int64_t steps = repeats(past, came) ? 0 : past.length();
    came.start_us = forecast::add_steps(past.frequency, past.start_us, steps);
  }
}

Result<SeriesTable> load_actuals(TableSpec spec, const forecast::SeriesSet& history,
                                 const std::vector<std::string>& items) {
  HR_TRY(spec.url, actuals_url(spec.url, spec.metadata), "actuals");
  if (spec.frequency.empty()) {
    spec.frequency = history.frequency.name();  // few rows of actuals may not tell it
  }
  HR_TRY(SeriesTable table, load_series(spec, items), "actuals");
  if (table.without_start) {
    continue_history(history, &table.set);
  }
  return table;
}

}  // namespace headrace::jobs
