// SPDX-License-Identifier: Apache-2.0
// Calendar features of a grid of stamps, each scaled to [-0.5, 0.5].
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/frequency.h"

namespace headrace::forecast {

/// Each is value / (number of values - 1) - 0.5, counted from 0, as in GluonTS.
enum class TimeFeature : uint8_t {
  second_of_minute,  ///< / 59
  minute_of_hour,    ///< / 59
  hour_of_day,       ///< / 23
  day_of_week,       ///< / 6, Monday = 0
  day_of_month,      ///< / 30
  day_of_year,       ///< / 365
  week_of_year,      ///< / 52, ISO 8601 week
  month_of_year,     ///< / 11
};

HR_API std::string_view time_feature_name(TimeFeature feature);  ///< "hour_of_day", ...
HR_API Result<TimeFeature> parse_time_feature(std::string_view name);

/// What GluonTS takes for a frequency: hours: hour of day, day of week, of month, of year; and so
/// on.
HR_API std::vector<TimeFeature> default_time_features(const Frequency& frequency);

/// The feature of the period that begins at or holds `stamp_us`. As in pandas, the date of a week,
/// quarter or year is that of its last day.
HR_API float time_feature(TimeFeature feature, const Frequency& frequency, int64_t stamp_us);

/// ISO 8601 week, 1..53, of a day counted from 1970-01-01.
HR_API int iso_week(int64_t day);

}  // namespace headrace::forecast
