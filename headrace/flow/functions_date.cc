// SPDX-License-Identifier: Apache-2.0
// Date functions, all in UTC. Conversion between time zones is not here yet.
#include <fmt/format.h>

#include "headrace/flow/date.h"
#include "headrace/flow/function_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

Result<int64_t> date_argument(const Call& call, size_t index) {
  HR_TRY(const auto text, call.text(index));
  const auto ticks = parse_date(text);
  if (!ticks) {
    return call.wrong(index, "a date such as '2018-03-15T13:00:00Z'");
  }
  return *ticks;
}

/// The date in the format that argument `index` may give.
Result<Value> formatted(const Call& call, int64_t ticks, size_t index) {
  if (!ticks_in_range(ticks)) {
    return call.fail("the result is outside the years 1 to 9999");
  }
  std::string_view format = "o";
  if (call.size() > index) {
    HR_TRY(format, call.text(index));
  }
  auto text = format_date(ticks, format);
  if (!text.ok()) {
    return call.fail(text.error().message());
  }
  return Value(Json(*std::move(text)));
}

/// `ticks + count * unit`, -1 when it leaves the calendar.
int64_t shifted(int64_t ticks, int64_t count, int64_t unit) {
  int64_t step = 0;
  int64_t sum = 0;
  if (__builtin_mul_overflow(count, unit, &step) || __builtin_add_overflow(ticks, step, &sum)) {
    return -1;
  }
  return sum;
}

Result<int64_t> whole(const Call& call, size_t index) {
  if (!call[index].is_integer()) {
    return call.wrong(index, "an integer");
  }
  return call[index].integer();
}

template <int64_t kUnit>
Result<Value> add_fixed(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  HR_TRY(const auto count, whole(call, 1));
  return formatted(call, shifted(ticks, count, kUnit), 2);
}

Result<int64_t> add_unit(const Call& call, int64_t ticks, int64_t count, size_t index) {
  HR_TRY(const auto name, call.text(index));
  const std::string unit = lower_text(name);
  constexpr struct {
    std::string_view name;
    int64_t ticks;
    int64_t months;
  } kUnits[] = {{"second", kTicksPerSecond, 0},
                {"minute", 60 * kTicksPerSecond, 0},
                {"hour", 3600 * kTicksPerSecond, 0},
                {"day", kTicksPerDay, 0},
                {"week", 7 * kTicksPerDay, 0},
                {"month", 0, 1},
                {"year", 0, 12}};
  for (const auto& row : kUnits) {
    if (unit == row.name || unit == std::string(row.name) + "s") {
      int64_t months = 0;
      if (row.months > 0) {
        return __builtin_mul_overflow(count, row.months, &months) || months > 200'000 ||
                       months < -200'000
                   ? int64_t{-1}
                   : add_months(ticks, months);
      }
      return shifted(ticks, count, row.ticks);
    }
  }
  return call.wrong(index, "one of Second, Minute, Hour, Day, Week, Month, Year");
}

Result<Value> add_to_time(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  HR_TRY(const auto count, whole(call, 1));
  HR_TRY(const auto sum, add_unit(call, ticks, count, 2));
  return formatted(call, sum, 3);
}

Result<Value> subtract_from_time(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  HR_TRY(const auto count, whole(call, 1));
  if (count == INT64_MIN) {
    return call.fail("the result is outside the years 1 to 9999");
  }
  HR_TRY(const auto sum, add_unit(call, ticks, -count, 2));
  return formatted(call, sum, 3);
}

Result<Value> from_now(Call& call, int64_t sign) {
  HR_TRY(const auto count, whole(call, 0));
  if (count == INT64_MIN) {
    return call.fail("the result is outside the years 1 to 9999");
  }
  HR_TRY(const auto sum, add_unit(call, ticks_of(call.context().now()), sign * count, 1));
  return formatted(call, sum, 2);
}
Result<Value> get_future_time(Call& call) { return from_now(call, 1); }
Result<Value> get_past_time(Call& call) { return from_now(call, -1); }

Result<Value> utc_now(Call& call) { return formatted(call, ticks_of(call.context().now()), 0); }

Result<Value> format_date_time(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  return formatted(call, ticks, 1);
}

Result<Value> day_of_month(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  return Value(Json(date_fields(ticks).day));
}
Result<Value> day_of_week(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  return Value(Json(date_fields(ticks).week_day));
}
Result<Value> day_of_year(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  return Value(Json(date_fields(ticks).year_day));
}

template <int64_t kUnit>
Result<Value> start_of(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  return formatted(call, ticks - ticks % kUnit, 1);
}

Result<Value> start_of_month(Call& call) {
  HR_TRY(const auto ticks, date_argument(call, 0));
  DateFields fields;
  fields.year = date_fields(ticks).year;
  fields.month = date_fields(ticks).month;
  return formatted(call, date_ticks(fields), 1);
}

Result<Value> ticks(Call& call) {
  HR_TRY(const auto value, date_argument(call, 0));
  return Value(Json(value));
}

/// .NET TimeSpan text of b - a: "[-][d.]hh:mm:ss[.fffffff]".
Result<Value> date_difference(Call& call) {
  HR_TRY(const auto begin, date_argument(call, 0));
  HR_TRY(const auto end, date_argument(call, 1));
  const int64_t span = end >= begin ? end - begin : begin - end;
  const int64_t days = span / kTicksPerDay;
  const int64_t seconds = span % kTicksPerDay / kTicksPerSecond;
  const int64_t fraction = span % kTicksPerSecond;
  std::string text = end < begin ? "-" : "";
  text += days > 0 ? fmt::format("{}.", days) : "";
  text += fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  text += fraction > 0 ? fmt::format(".{:07}", fraction) : "";
  return Value(Json(std::move(text)));
}

constexpr int64_t kSecond = kTicksPerSecond;
constexpr Function kFunctions[] = {
    {"addDays", 2, 3, "timestamp, days, format", add_fixed<kTicksPerDay>},
    {"addHours", 2, 3, "timestamp, hours, format", add_fixed<3600 * kSecond>},
    {"addMinutes", 2, 3, "timestamp, minutes, format", add_fixed<60 * kSecond>},
    {"addSeconds", 2, 3, "timestamp, seconds, format", add_fixed<kSecond>},
    {"addToTime", 3, 4, "timestamp, interval, timeUnit, format", add_to_time},
    {"dateDifference", 2, 2, "startDate, endDate", date_difference},
    {"dayOfMonth", 1, 1, "timestamp", day_of_month},
    {"dayOfWeek", 1, 1, "timestamp", day_of_week},
    {"dayOfYear", 1, 1, "timestamp", day_of_year},
    {"formatDateTime", 1, 2, "timestamp, format", format_date_time},
    {"getFutureTime", 2, 3, "interval, timeUnit, format", get_future_time},
    {"getPastTime", 2, 3, "interval, timeUnit, format", get_past_time},
    {"startOfDay", 1, 2, "timestamp, format", start_of<kTicksPerDay>},
    {"startOfHour", 1, 2, "timestamp, format", start_of<3600 * kSecond>},
    {"startOfMonth", 1, 2, "timestamp, format", start_of_month},
    {"subtractFromTime", 3, 4, "timestamp, interval, timeUnit, format", subtract_from_time},
    {"ticks", 1, 1, "timestamp", ticks},
    {"utcNow", 0, 1, "format", utc_now},
};

}  // namespace

std::span<const Function> date_functions() { return kFunctions; }

}  // namespace headrace::flow
