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

/// How the row of an item goes with its past, where neither has stamps.
struct Likeness {
  bool same = false;     ///< equal as far as both go
  bool telling = false;  ///< so long, and so varied, that chance does not make them equal
};

Likeness compare(const forecast::Series& past, const forecast::Series& came) {
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const int64_t common = std::min(past.length(), came.length());
  const auto end = came.target.begin() + common;
  Likeness out;
  out.same = std::equal(came.target.begin(), end, past.target.begin(), same);
  const bool varied = std::any_of(came.target.begin(), end, [&](double value) {
    return !std::isnan(value) && !same(value, past.target.front());
  });
  // A wave may go on as it began, but hardly for half as long as its whole past.
  out.telling =
      out.same && (came.length() > past.length() || (varied && 2 * common >= past.length()));
  return out;
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
  bool all_same = true;
  bool one_tells = false;
  std::vector<std::pair<forecast::Series*, const forecast::Series*>> pairs;
  for (forecast::Series& came : actuals->series) {
    if (const auto found = by_id.find(came.id); found != by_id.end()) {
      pairs.emplace_back(&came, found->second);
      const Likeness like = compare(*found->second, came);
      all_same = all_same && like.same;
      one_tells = one_tells || like.telling;
    }
  }
  for (const auto& [came, past] : pairs) {
    // What does not tell by itself, such as zeros, is as the other rows are.
    const bool from_start = compare(*past, *came).telling || (all_same && one_tells);
    came->start_us =
        forecast::add_steps(past->frequency, past->start_us, from_start ? 0 : past->length());
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
