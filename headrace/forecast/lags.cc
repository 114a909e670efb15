// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/lags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace headrace::forecast {

namespace {

constexpr int kAlways = 7;  // lags 1..7 belong to every list
constexpr int kLongest = 1200;

/// Python's `a // b` for positive floats. The reference divides whole seasons by rounded fractions
/// (4 // (1 / 5) is 19), and its lists are the ones users compare with.
double floor_quotient(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b;
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1.0 : floor;
}

class LagSet {
 public:
  /// `cycles` seasons of `season` units, each +- `delta` steps, for steps of `multiple` units.
  void seasons(int season, int cycles, double multiple, int delta) {
    for (int k = 1; k <= cycles; ++k) {
      around(floor_quotient(static_cast<double>(k) * season, multiple), delta);
    }
  }
  void around(double middle, int delta) {
    for (int d = -delta; d <= delta; ++d) {
      const double lag = middle + d;
      if (lag > kAlways && lag <= kLongest) {
        lags_.insert(static_cast<int>(lag));
      }
    }
  }
  void minutes(double multiple) { seasons(60, 3, multiple, 2); }
  void hours(double multiple) { seasons(24, 7, multiple, 1); }
  void days(double multiple, int week, int month) {
    seasons(week, 4, multiple, 1);
    around(floor_quotient(month, multiple), 1);
  }
  void weeks(double multiple) {
    seasons(52, 3, multiple, 1);
    for (const int count : {4, 8, 12}) {
      around(floor_quotient(count, multiple), 0);
    }
  }
  void months(double multiple) { seasons(12, 3, multiple, 1); }

  std::vector<int> sorted() const {
    std::vector<int> lags;
    for (int lag = 1; lag <= kAlways; ++lag) {
      lags.push_back(lag);
    }
    lags.insert(lags.end(), lags_.begin(), lags_.end());
    return lags;
  }

 private:
  std::set<int> lags_;
};

std::string lag_list(const std::vector<int>& lags) {
  std::string text;
  for (size_t i = 0; i < lags.size(); ++i) {
    size_t last = i;
    while (last + 1 < lags.size() && lags[last + 1] == lags[last] + 1) {
      ++last;
    }
    text += text.empty() ? "" : ", ";
    text += last == i ? std::to_string(lags[i]) : fmt::format("{}-{}", lags[i], lags[last]);
    i = last;
  }
  return text;
}

/// Lags up to `lag_max`; the others go to `dropped`.
LagChoice split(const std::vector<int>& lags, int64_t lag_max, std::vector<int>* dropped) {
  LagChoice choice;
  for (const int lag : lags) {
    (lag <= lag_max || choice.lags.empty() ? choice.lags : *dropped).push_back(lag);
  }
  return choice;
}

std::string count_text(const std::vector<int>& lags) {
  return fmt::format("{} lag{} left out", lags.size(), lags.size() == 1 ? "" : "s");
}

}  // namespace

std::vector<int> default_lags(const Frequency& frequency) {
  const double n = frequency.multiple;
  LagSet set;
  switch (frequency.unit) {
    case TimeUnit::second:
      set.minutes(n);
      set.minutes(n / 60.0);
      set.hours(n / 3600.0);
      break;
    case TimeUnit::minute:
      set.minutes(n);
      set.hours(n / 60.0);
      set.days(n / (60.0 * 24.0), 7, 30);
      set.weeks(n / (60.0 * 24.0 * 7.0));
      break;
    case TimeUnit::hour:
      set.hours(n);
      set.days(n / 24.0, 7, 30);
      set.weeks(n / (24.0 * 7.0));
      break;
    case TimeUnit::day:
      set.days(n, 7, 30);
      set.weeks(n / 7.0);
      break;
    case TimeUnit::business_day:
      set.days(n, 5, 22);
      set.weeks(n / 5.0);
      break;
    case TimeUnit::week: set.weeks(n); break;
    case TimeUnit::month: set.months(n); break;
    case TimeUnit::quarter: set.months(3.0 * n); break;
    case TimeUnit::year: break;
  }
  return set.sorted();
}

LagChoice usable_lags(const std::vector<int>& lags, int64_t length) {
  std::vector<int> dropped;
  LagChoice choice = split(lags, length / 2, &dropped);
  if (!dropped.empty()) {
    choice.note = fmt::format(
        "the history is too short to look back {} steps ({}): over half of the {} steps to train "
        "on have no value that long before; max_lag \"all\" keeps them",
        lag_list(dropped), count_text(dropped), length);
  }
  return choice;
}

LagChoice lags_up_to(const std::vector<int>& lags, int lag_max) {
  std::vector<int> dropped;
  LagChoice choice = split(lags, lag_max, &dropped);
  if (!dropped.empty()) {
    choice.note =
        fmt::format("{} ({}): max_lag is {}", count_text(dropped), lag_list(dropped), lag_max);
  }
  return choice;
}

}  // namespace headrace::forecast
