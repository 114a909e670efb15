// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/time_features.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "headrace/forecast/calendar_internal.h"

namespace headrace::forecast {

using namespace calendar;

namespace {

constexpr std::array<std::string_view, 8> kNames = {
    "second_of_minute", "minute_of_hour", "hour_of_day",  "day_of_week",
    "day_of_month",     "day_of_year",    "week_of_year", "month_of_year"};

/// The day whose date stands for the period of a stamp: the last of a week, month, quarter or year.
int64_t dated_day(const Frequency& frequency, int64_t stamp_us) {
  const int64_t day = day_of(stamp_us);
  if (frequency.unit == TimeUnit::week) {
    return day + floor_mod(frequency.anchor - weekday_of_day(day), 7);
  }
  int64_t ahead = 0;
  const Date date = date_of_day(day);
  switch (frequency.unit) {
    case TimeUnit::month: break;
    case TimeUnit::quarter: ahead = floor_mod(frequency.anchor - date.month, 3); break;
    case TimeUnit::year: ahead = floor_mod(frequency.anchor - date.month, 12); break;
    default: return day;
  }
  const int64_t next = month_number(date) + ahead + 1;
  return day_of_date({static_cast<int>(floor_div(next, 12)),
                      static_cast<int>(floor_mod(next, 12)) + 1, 1}) -
         1;
}

int64_t value_of(TimeFeature feature, const Frequency& frequency, int64_t stamp_us) {
  switch (feature) {
    case TimeFeature::second_of_minute: return floor_mod(stamp_us, kMinute) / kSecond;
    case TimeFeature::minute_of_hour: return floor_mod(stamp_us, kHour) / kMinute;
    case TimeFeature::hour_of_day: return floor_mod(stamp_us, kDay) / kHour;
    default: break;
  }
  const int64_t day = dated_day(frequency, stamp_us);
  const Date date = date_of_day(day);
  switch (feature) {
    case TimeFeature::day_of_week: return weekday_of_day(day);
    case TimeFeature::day_of_month: return date.day - 1;
    case TimeFeature::day_of_year: return day - day_of_date({date.year, 1, 1});
    case TimeFeature::week_of_year: return iso_week(day) - 1;
    default: return date.month - 1;
  }
}

double span_of(TimeFeature feature) {
  switch (feature) {
    case TimeFeature::second_of_minute:
    case TimeFeature::minute_of_hour: return 59.0;
    case TimeFeature::hour_of_day: return 23.0;
    case TimeFeature::day_of_week: return 6.0;
    case TimeFeature::day_of_month: return 30.0;
    case TimeFeature::day_of_year: return 365.0;
    case TimeFeature::week_of_year: return 52.0;
    default: return 11.0;
  }
}

}  // namespace

std::string_view time_feature_name(TimeFeature feature) {
  return kNames[static_cast<size_t>(feature)];
}

Result<TimeFeature> parse_time_feature(std::string_view name) {
  std::string known;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<TimeFeature>(i);
    }
    known += fmt::format("{}{}", i == 0 ? "" : ", ", kNames[i]);
  }
  return Error{Errc::invalid_argument,
               fmt::format("forecast: unknown time feature \"{}\"; known: {}", name, known)};
}

std::vector<TimeFeature> default_time_features(const Frequency& frequency) {
  using enum TimeFeature;
  switch (frequency.unit) {
    case TimeUnit::second:
      return {second_of_minute, minute_of_hour, hour_of_day,
              day_of_week,      day_of_month,   day_of_year};
    case TimeUnit::minute:
      return {minute_of_hour, hour_of_day, day_of_week, day_of_month, day_of_year};
    case TimeUnit::hour: return {hour_of_day, day_of_week, day_of_month, day_of_year};
    case TimeUnit::day:
    case TimeUnit::business_day: return {day_of_week, day_of_month, day_of_year};
    case TimeUnit::week: return {day_of_month, week_of_year};
    case TimeUnit::month:
    case TimeUnit::quarter: return {month_of_year};
    default: return {};
  }
}

float time_feature(TimeFeature feature, const Frequency& frequency, int64_t stamp_us) {
  const auto value = static_cast<double>(value_of(feature, frequency, stamp_us));
  return static_cast<float>(value / span_of(feature) - 0.5);
}

int iso_week(int64_t day) {
  // The week belongs to the year of its Thursday; week 1 holds the first Thursday.
  const int64_t thursday = day - weekday_of_day(day) + 3;
  const int64_t new_year = day_of_date({date_of_day(thursday).year, 1, 1});
  return static_cast<int>((thursday - new_year) / 7) + 1;
}

}  // namespace headrace::forecast
