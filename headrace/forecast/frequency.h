// SPDX-License-Identifier: Apache-2.0
// Frequencies: their names, steps on the calendar, seasons, and the guess from time stamps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::forecast {

enum class TimeUnit : uint8_t {
  second,
  minute,
  hour,
  day,
  business_day,  ///< Monday to Friday
  week,
  month,
  quarter,
  year,
};

/// The step of a regular grid of time stamps. All stamps are microseconds since the epoch, UTC.
struct Frequency {
  TimeUnit unit = TimeUnit::hour;
  int multiple = 1;
  /// Week: the weekday a week ends on, 0 = Monday ... 6 = Sunday. Quarter and year: the month a
  /// year ends with, 1..12. Otherwise 0. Decides calendar features, not steps.
  int anchor = 0;
  /// Month, quarter, year: a grid that begins on the last day of a month stays on last days.
  bool at_end = false;

  bool operator==(const Frequency&) const = default;
  /// The name pandas uses since 2.2: "h", "15min", "D", "B", "W", "W-MON", "ME", "MS", "QE-JAN",
  /// ...
  HR_API std::string name() const;
};

/// Read a name of either generation, with an optional multiple: "H"/"h", "T"/"min", "S"/"s", "D",
/// "B", "W", "W-MON", "M"/"ME", "MS", "Q"/"QE"/"QS", "QE-NOV", "A"/"Y"/"YE"/"AS"/"YS", "2h",
/// "15min"; also "hourly", "daily", "weekly", "monthly", "quarterly", "yearly". `invalid_argument`
/// names what is known.
HR_API Result<Frequency> parse_frequency(std::string_view name);

/// The stamp `count` steps after (before, when negative) `start_us`. Months keep the day of the
/// start, or the last day where a month is shorter or the grid is on last days; business days count
/// from a weekday.
HR_API int64_t add_steps(const Frequency& frequency, int64_t start_us, int64_t count);

/// How many steps `stamp_us` lies after `start_us`; nothing when it is not on the grid.
HR_API std::optional<int64_t> steps_between(const Frequency& frequency, int64_t start_us,
                                            int64_t stamp_us);

/// The number of the last grid point at or before `stamp_us`, for messages about stamps off the
/// grid.
HR_API int64_t steps_floor(const Frequency& frequency, int64_t start_us, int64_t stamp_us);

/// Steps of one season for metrics and naive methods: 24 h, 1 D, 1 W, 12 months, 4 quarters, 1
/// year, 5 B, 1440 min, 3600 s; a multiple divides it, and where it does not divide evenly the
/// season is 1.
HR_API int season_length(const Frequency& frequency);

/// The frequency of one item or of many, guessed from their stamps.
class HR_API FrequencyVotes {
 public:
  /// Count the steps of one item; `sorted_us` ascends, equal neighbours are passed over.
  void add(std::span<const int64_t> sorted_us);
  /// The most common step (of equally common ones the shortest): fixed steps from seconds to weeks;
  /// business days when no stamp falls on a weekend though the days span one; months, quarters and
  /// years when days, or last days, of the month agree. `invalid_argument` when no item has two
  /// stamps, or the step is no whole number of seconds.
  Result<Frequency> winner() const;

 private:
  struct Step {
    bool monthly = false;
    int64_t size = 0;  // months when monthly, else microseconds
    bool operator<(const Step& other) const {
      return monthly != other.monthly ? other.monthly : size < other.size;
    }
  };
  Frequency monthly_frequency(int64_t months) const;

  std::map<Step, int64_t> votes_;
  int64_t weekend_stamps_ = 0;
  int64_t weekend_jumps_ = 0;  // Friday to Monday
  int64_t not_last_days_ = 0;  // stamps on another day than the last of a month
  int64_t sample_us_ = 0;      // some stamp: says weekday and month of anchors
};

/// `stamp_us` as text for messages: "2015-07-01 00:00:00", with the fraction when there is one.
HR_API std::string stamp_text(int64_t stamp_us);

}  // namespace headrace::forecast
