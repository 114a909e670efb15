// SPDX-License-Identifier: Apache-2.0
// Points in time as .NET has them: ticks of 100 ns since 0001-01-01 UTC, read from ISO text,
// written by .NET format strings with invariant names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/clock.h"
#include "headrace/base/result.h"

namespace headrace::flow {

inline constexpr int64_t kTicksPerSecond = 10'000'000;
inline constexpr int64_t kTicksPerDay = 86'400 * kTicksPerSecond;

/// Calendar fields of a point in time.
struct DateFields {
  int year = 1;
  int month = 1;
  int day = 1;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int64_t fraction = 0;  ///< ticks within the second
  int week_day = 0;      ///< Sunday = 0
  int year_day = 1;
};

/// Ticks of 0001-01-01 to 9999-12-31.
bool ticks_in_range(int64_t ticks);
DateFields date_fields(int64_t ticks);
int64_t date_ticks(const DateFields& fields);  ///< week_day and year_day are not read
int64_t ticks_of(base::Micros since_epoch);

/// Read "2018-03-15", "2018-03-15T13:00:00.1234567Z", "...+02:00", "03/15/2018 13:00:00". Without
/// an offset the text is UTC. nullopt when it is none of these.
std::optional<int64_t> parse_date(std::string_view text);

/// Write in a .NET standard ("o", "yyyy" is not one) or custom format. Always UTC. The error names
/// what is not understood.
Result<std::string> format_date(int64_t ticks, std::string_view format);

/// Add calendar months; the day is clamped to the month's last (Jan 31 + 1 = Feb 28 or 29).
int64_t add_months(int64_t ticks, int64_t months);

}  // namespace headrace::flow
