// SPDX-License-Identifier: Apache-2.0
// Rows of a long table to series on a grid.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "headrace/forecast/calendar_internal.h"
#include "headrace/forecast/notes.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

namespace {

// A series is mostly gaps long before it has this many steps; then one of its stamps is mistyped.
constexpr int64_t kStepsPerRowMax = 1000;
constexpr int64_t kStepsFree = 100'000;
constexpr double kFewObserved = 0.05;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Error item_error(const std::string& id, const std::string& message) {
  return Error{Errc::invalid_argument, fmt::format("forecast: item \"{}\": {}", id, message)};
}

/// The rows of one item in the order of their stamps.
struct ItemRows {
  const std::string* id = nullptr;
  std::span<const int64_t> rows;
};

/// Rows by item, each item's by stamp, then by position in the table.
struct RowOrder {
  std::vector<int64_t> rows;
  std::vector<size_t> begin;  // per item, and the end
};

Result<void> check_columns(const LongRows& rows) {
  const size_t count = rows.stamp_us.size();
  const auto check = [&](size_t size, const std::string& name) -> Result<void> {
    if (size == count) {
      return {};
    }
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: column \"{}\" has {} rows, the time stamps have {}", name,
                             size, count)};
  };
  HR_TRY(check(rows.target.size(), "target"));
  if (!rows.item.empty()) {
    HR_TRY(check(rows.item.size(), "item id"));
  }
  for (const LongRows::Category& category : rows.categories) {
    HR_TRY(check(category.code.size(), category.name));
    for (const int32_t code : category.code) {
      if (code < -1 || code >= static_cast<int64_t>(category.values.size())) {
        return Error{Errc::invalid_argument,
                     fmt::format("forecast: column \"{}\" has code {}, its dictionary {} values",
                                 category.name, code, category.values.size())};
      }
    }
  }
  for (const auto* reals : {&rows.static_reals, &rows.dynamic_reals}) {
    for (const LongRows::Real& real : *reals) {
      HR_TRY(check(real.values.size(), real.name));
    }
  }
  if (rows.ids.empty() && count > 0) {
    return Error{Errc::invalid_argument, "forecast: rows without an item id"};
  }
  return {};
}

Result<RowOrder> order_rows(const LongRows& rows) {
  const size_t items = rows.ids.size();
  RowOrder order;
  order.begin.assign(items + 1, 0);
  const auto item_of = [&](size_t row) { return rows.item.empty() ? int32_t{0} : rows.item[row]; };
  for (size_t row = 0; row < rows.stamp_us.size(); ++row) {
    const int32_t item = item_of(row);
    if (item < 0 || static_cast<size_t>(item) >= items) {
      return Error{
          Errc::invalid_argument,
          fmt::format("forecast: row {} has no item id (index {}, {} ids)", row, item, items)};
    }
    ++order.begin[static_cast<size_t>(item) + 1];
  }
  std::partial_sum(order.begin.begin(), order.begin.end(), order.begin.begin());
  order.rows.resize(rows.stamp_us.size());
  std::vector<size_t> next(order.begin.begin(), order.begin.end() - 1);
  for (size_t row = 0; row < rows.stamp_us.size(); ++row) {
    order.rows[next[static_cast<size_t>(item_of(row))]++] = static_cast<int64_t>(row);
  }
  for (size_t item = 0; item < items; ++item) {
    const auto first = order.rows.begin() + static_cast<int64_t>(order.begin[item]);
    const auto last = order.rows.begin() + static_cast<int64_t>(order.begin[item + 1]);
    std::stable_sort(first, last, [&](int64_t a, int64_t b) {
      return rows.stamp_us[static_cast<size_t>(a)] < rows.stamp_us[static_cast<size_t>(b)];
    });
  }
  return order;
}

/// Lays the rows of one item on the grid.
class ItemBuilder {
 public:
  ItemBuilder(const LongRows& rows, const BuildOptions& options, const Frequency& frequency,
              const ItemRows& item)
      : rows_(rows), options_(options), frequency_(frequency), item_(item) {}

  Result<Series> build() {
    HR_TRY(check_stamps());
    HR_TRY(place_rows());
    series_.id = *item_.id;
    series_.frequency = frequency_;
    series_.start_us = stamp(0);
    HR_TRY(series_.target, lay_out(rows_.target, options_.duplicates, "target"));
    for (const LongRows::Real& real : rows_.dynamic_reals) {
      const Duplicates rule =
          options_.duplicates == Duplicates::sum ? Duplicates::mean : options_.duplicates;
      HR_TRY(std::vector<double> values, lay_out(real.values, rule, real.name));
      HR_TRY(fill_covariate(&values, real.name));
      series_.dynamic_reals.push_back(std::move(values));
    }
    HR_TRY(read_static());
    cut_future();
    HR_TRY(check_series(series_));
    return std::move(series_);
  }

  int64_t gaps() const { return gaps_; }
  int64_t future() const { return future_; }
  int64_t filled() const { return filled_; }

 private:
  int64_t stamp(size_t i) const { return rows_.stamp_us[static_cast<size_t>(item_.rows[i])]; }
  Error error(const std::string& message) const { return item_error(*item_.id, message); }

  Result<void> check_stamps() const {
    if (item_.rows.empty()) {
      return error("there are no rows");
    }
    if (stamp(0) == kNoStamp) {  // sorts first
      return error(fmt::format("row {} of the table has no time stamp", item_.rows[0]));
    }
    for (const int64_t at : {stamp(0), stamp(item_.rows.size() - 1)}) {
      if (at < calendar::kFirst || at > calendar::kLast) {
        return error(fmt::format(
            "the time stamp of {} microseconds since 1970 is outside the years 1 to 9999; "
            "look at its unit (seconds, milliseconds, nanoseconds)",
            at));
      }
    }
    return {};
  }

  /// The grid index of each row; refuse stamps between grid points and, unless told how to resolve
  /// them, equal ones.
  Result<void> place_rows() {
    const int64_t start = stamp(0);
    const int64_t length_max =
        kStepsFree + kStepsPerRowMax * static_cast<int64_t>(item_.rows.size());
    for (size_t i = 0; i < item_.rows.size(); ++i) {
      const std::optional<int64_t> index = steps_between(frequency_, start, stamp(i));
      if (!index) {
        return off_grid(start, stamp(i));
      }
      if (*index < 0 || *index > length_max) {
        return error(fmt::format(
            "{} is {} steps of {} after the start {}, where {} rows may span {} at most; one of "
            "the two stamps is mistyped, or the frequency is too fine",
            stamp_text(stamp(i)), *index, frequency_.name(), stamp_text(start), item_.rows.size(),
            length_max));
      }
      if (i > 0 && *index == index_.back() && options_.duplicates == Duplicates::error) {
        return error(fmt::format(
            "two rows have the time stamp {} (rows {} and {} of those read); resolve them with "
            "--aggregate sum, mean or last (in Python aggregate=\"sum\"); local times repeat an "
            "hour when daylight saving ends: convert them to UTC",
            stamp_text(stamp(i)), item_.rows[i - 1], item_.rows[i]));
      }
      gaps_ += i > 0 ? std::max<int64_t>(0, *index - index_.back() - 1) : 0;
      index_.push_back(*index);
    }
    length_ = index_.back() + 1;
    return {};
  }

  Error off_grid(int64_t start, int64_t bad) const {
    const int64_t floor = steps_floor(frequency_, start, bad);
    const int64_t before = add_steps(frequency_, start, floor);
    const int64_t after = add_steps(frequency_, start, floor + 1);
    std::string message =
        fmt::format("{} is off the grid: steps of {} from {} have {} and {}", stamp_text(bad),
                    frequency_.name(), stamp_text(start), stamp_text(before), stamp_text(after));
    const bool is_daily = frequency_.unit != TimeUnit::second &&
                          frequency_.unit != TimeUnit::minute && frequency_.unit != TimeUnit::hour;
    if (is_daily && (bad - before == calendar::kHour || after - bad == calendar::kHour)) {
      message +=
          "; an hour's shift looks like daylight saving: convert local times to UTC, or cut "
          "them to dates";
    } else {
      message += "; round the stamps, or name the frequency";
    }
    return error(message);
  }

  /// Values of a column by grid index; steps without a row, or of null rows only, are NaN.
  Result<std::vector<double>> lay_out(std::span<const double> column, Duplicates rule,
                                      const std::string& name) {
    std::vector<double> values(static_cast<size_t>(length_), kNaN);
    std::vector<int32_t> counts;
    if (rule == Duplicates::mean) {
      counts.assign(static_cast<size_t>(length_), 0);
    }
    for (size_t i = 0; i < item_.rows.size(); ++i) {
      const double value = column[static_cast<size_t>(item_.rows[i])];
      if (std::isinf(value)) {
        return error(fmt::format(
            "\"{}\" is infinite at {} (row {} of those read); replace the value, or leave it empty "
            "to count as missing",
            name, stamp_text(stamp(i)), item_.rows[i]));
      }
      if (std::isnan(value)) {
        continue;
      }
      double& cell = values[static_cast<size_t>(index_[i])];
      const bool first = std::isnan(cell);
      if (rule == Duplicates::mean) {
        const int32_t count = ++counts[static_cast<size_t>(index_[i])];
        cell = first ? value : cell + (value - cell) / count;
      } else {
        cell = first || rule == Duplicates::last ? value : cell + value;
      }
    }
    return values;
  }

  /// Covariates have no mask: a missing value is the one before it, at the start the first one.
  Result<void> fill_covariate(std::vector<double>* values, const std::string& name) {
    const auto known = std::find_if(values->begin(), values->end(),
                                    [](double value) { return !std::isnan(value); });
    if (known == values->end()) {
      return error(fmt::format("the covariate \"{}\" has no value", name));
    }
    double last = *known;
    for (double& value : *values) {
      if (std::isnan(value)) {
        value = last;
        ++filled_;
      }
      last = value;
    }
    return {};
  }

  Result<void> read_static() {
    for (const LongRows::Category& category : rows_.categories) {
      int32_t code = -1;
      for (const int64_t row : item_.rows) {
        const int32_t here = category.code[static_cast<size_t>(row)];
        if (here >= 0 && code >= 0 && here != code) {
          return error(
              fmt::format("the category \"{}\" changes from \"{}\" to \"{}\"; it must be the "
                          "same in all rows of an item",
                          category.name, category.values[static_cast<size_t>(code)],
                          category.values[static_cast<size_t>(here)]));
        }
        code = std::max(code, here);
      }
      series_.categories.push_back(code < 0 ? std::string()
                                            : category.values[static_cast<size_t>(code)]);
    }
    for (const LongRows::Real& real : rows_.static_reals) {
      double value = kNaN;
      for (const int64_t row : item_.rows) {
        const double here = real.values[static_cast<size_t>(row)];
        if (!std::isnan(here) && !std::isnan(value) && here != value) {
          return error(
              fmt::format("the static covariate \"{}\" changes from {} to {}; name it under "
                          "dynamic_reals if it may",
                          real.name, value, here));
        }
        value = std::isnan(here) ? value : here;
      }
      if (!std::isfinite(value)) {
        return error(fmt::format("the static covariate \"{}\" has no finite value", real.name));
      }
      series_.static_reals.push_back(value);
    }
    return {};
  }

  /// The series ends with its last observed value: rows without a target after it are the future,
  /// however many there are. (A target without any value is left for `check_series` to name.)
  void cut_future() {
    std::vector<double>& target = series_.target;
    const auto last = std::find_if(target.rbegin(), target.rend(),
                                   [](double value) { return !std::isnan(value); });
    if (last != target.rend()) {
      future_ = last - target.rbegin();
      target.erase(last.base(), target.end());
    }
  }

  const LongRows& rows_;
  const BuildOptions& options_;
  const Frequency frequency_;
  const ItemRows item_;
  std::vector<int64_t> index_;
  int64_t length_ = 0;
  int64_t gaps_ = 0;
  int64_t future_ = 0;
  int64_t filled_ = 0;
  Series series_;
};

Result<Frequency> vote_frequency(const LongRows& rows, const RowOrder& order) {
  FrequencyVotes votes;
  std::vector<int64_t> stamps;
  for (size_t item = 0; item + 1 < order.begin.size(); ++item) {
    stamps.clear();
    for (size_t i = order.begin[item]; i < order.begin[item + 1]; ++i) {
      const int64_t stamp = rows.stamp_us[static_cast<size_t>(order.rows[i])];
      if (stamp != kNoStamp) {
        stamps.push_back(stamp);
      }
    }
    votes.add(stamps);
  }
  return votes.winner();
}

double observed_share(const Series& series) {
  const auto observed = std::count_if(series.target.begin(), series.target.end(),
                                      [](double value) { return !std::isnan(value); });
  return static_cast<double>(observed) / static_cast<double>(series.target.size());
}

/// What the rows of one item were taken for, the first of it that few values are observed.
std::vector<std::string> notes_of(const ItemBuilder& builder, const Series& series,
                                  bool has_dynamic) {
  std::vector<std::string> notes;
  if (const double share = observed_share(series); share < kFewObserved) {
    notes.push_back(fmt::format("only {:.1f} % of {} values are observed", 100.0 * share,
                                series.target.size()));
  }
  if (builder.gaps() > 0) {
    notes.push_back(fmt::format("{} steps have no row and count as missing", builder.gaps()));
  }
  if (builder.future() > 0 && !has_dynamic) {
    notes.push_back(
        fmt::format("{} rows without a target after the last value count as future, not as missing",
                    builder.future()));
  }
  if (builder.filled() > 0) {
    notes.push_back(
        fmt::format("{} missing values of dynamic covariates were filled with the value before",
                    builder.filled()));
  }
  return notes;
}

}  // namespace

Result<Frequency> infer_frequency(const LongRows& rows) {
  HR_TRY(check_columns(rows));
  HR_TRY(const RowOrder order, order_rows(rows));
  return vote_frequency(rows, order);
}

Result<SeriesSet> build_series(const LongRows& rows, const BuildOptions& options) {
  HR_TRY(check_columns(rows));
  HR_TRY(const RowOrder order, order_rows(rows));
  SeriesSet set;
  if (options.frequency) {
    set.frequency = *options.frequency;
  } else {
    HR_TRY(set.frequency, vote_frequency(rows, order));
    set.notes.push_back(
        fmt::format("the frequency is {}, the most common step", set.frequency.name()));
  }
  int64_t gaps = 0;
  int64_t gap_items = 0;
  int64_t future = 0;
  int64_t filled = 0;
  std::vector<Note> few;
  for (size_t item = 0; item < rows.ids.size(); ++item) {
    const std::span<const int64_t> item_rows =
        std::span(order.rows).subspan(order.begin[item], order.begin[item + 1] - order.begin[item]);
    ItemBuilder builder(rows, options, set.frequency, {&rows.ids[item], item_rows});
    auto series = builder.build();
    if (!series.ok()) {
      set.errors.push_back({rows.ids[item], std::move(series).error()});
      continue;
    }
    series->notes = notes_of(builder, *series, !rows.dynamic_reals.empty());
    gaps += builder.gaps();
    gap_items += static_cast<int64_t>(builder.gaps() > 0);
    future += builder.future();
    filled += builder.filled();
    if (observed_share(*series) < kFewObserved) {
      few.push_back({series->id, series->notes.front()});
    }
    set.series.push_back(*std::move(series));
  }
  for (std::string& note : group_notes(few)) {
    set.notes.push_back(std::move(note));
  }
  if (gaps > 0) {
    set.notes.push_back(
        fmt::format("{} steps of {} items have no row and count as missing", gaps, gap_items));
  }
  if (future > 0 && rows.dynamic_reals.empty()) {
    set.notes.push_back(fmt::format(
        "{} rows without a target after an item's last value count as future, not as missing",
        future));
  }
  if (filled > 0) {
    set.notes.push_back(fmt::format(
        "{} missing values of dynamic covariates were filled with the value before", filled));
  }
  return set;
}

}  // namespace headrace::forecast
