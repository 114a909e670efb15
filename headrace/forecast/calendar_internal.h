// SPDX-License-Identifier: Apache-2.0
// Days, months and weekdays of microsecond stamps; shared by frequency.cc and time_features.cc.
#pragma once

#include <chrono>
#include <cstdint>

namespace headrace::forecast::calendar {

inline constexpr int64_t kSecond = 1'000'000;
inline constexpr int64_t kMinute = 60 * kSecond;
inline constexpr int64_t kHour = 60 * kMinute;
inline constexpr int64_t kDay = 24 * kHour;
inline constexpr int64_t kWeek = 7 * kDay;

/// The years 1 to 9999: what std::chrono's calendar and every stamp's text hold.
inline constexpr int64_t kFirst = -719'162 * kDay;
inline constexpr int64_t kLast = 2'932'897 * kDay - 1;

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - static_cast<int64_t>(a % b < 0); }
inline int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest < 0 ? rest + b : rest;
}

/// Days since 1970-01-01.
inline int64_t day_of(int64_t stamp_us) { return floor_div(stamp_us, kDay); }

/// 0 = Monday ... 6 = Sunday; 1970-01-01 was a Thursday.
inline int weekday_of_day(int64_t day) { return static_cast<int>(floor_mod(day + 3, 7)); }

struct Date {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
};

inline Date date_of_day(int64_t day) {
  const std::chrono::year_month_day date{
      std::chrono::sys_days{std::chrono::days{static_cast<int>(day)}}};
  return {static_cast<int>(date.year()), static_cast<int>(static_cast<unsigned>(date.month())),
          static_cast<int>(static_cast<unsigned>(date.day()))};
}

inline int64_t day_of_date(const Date& date) {
  return std::chrono::sys_days{std::chrono::year{date.year} /
                               std::chrono::month{static_cast<unsigned>(date.month)} /
                               std::chrono::day{static_cast<unsigned>(date.day)}}
      .time_since_epoch()
      .count();
}

inline int days_in_month(int year, int month) {
  const std::chrono::year_month_day_last last{std::chrono::year{year} /
                                              std::chrono::month{static_cast<unsigned>(month)} /
                                              std::chrono::last};
  return static_cast<int>(static_cast<unsigned>(last.day()));
}

/// Months since January of year 0.
inline int64_t month_number(const Date& date) { return int64_t{date.year} * 12 + date.month - 1; }

}  // namespace headrace::forecast::calendar
