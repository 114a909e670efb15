// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/frequency.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "headrace/forecast/calendar_internal.h"

namespace headrace::forecast {

using namespace calendar;

namespace {

constexpr std::array<std::string_view, 7> kWeekdays = {"MON", "TUE", "WED", "THU",
                                                       "FRI", "SAT", "SUN"};
constexpr std::array<std::string_view, 12> kMonths = {"JAN", "FEB", "MAR", "APR", "MAY", "JUN",
                                                      "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"};
constexpr int kSunday = 6;
constexpr int kDecember = 12;
constexpr int kMultipleMax = 1'000'000;
constexpr int64_t kYearMin = -32'000;  // std::chrono::year holds 16 bits
constexpr int64_t kYearMax = 32'000;

struct UnitName {
  std::string_view name;
  TimeUnit unit;
  bool at_end;
};

// The first name of a unit and side is the one `name` prints.
constexpr UnitName kUnitNames[] = {
    {"s", TimeUnit::second, false},
    {"S", TimeUnit::second, false},
    {"min", TimeUnit::minute, false},
    {"T", TimeUnit::minute, false},
    {"h", TimeUnit::hour, false},
    {"H", TimeUnit::hour, false},
    {"hourly", TimeUnit::hour, false},
    {"D", TimeUnit::day, false},
    {"d", TimeUnit::day, false},
    {"daily", TimeUnit::day, false},
    {"B", TimeUnit::business_day, false},
    {"W", TimeUnit::week, false},
    {"w", TimeUnit::week, false},
    {"weekly", TimeUnit::week, false},
    {"ME", TimeUnit::month, true},
    {"M", TimeUnit::month, true},
    {"monthly", TimeUnit::month, true},
    {"MS", TimeUnit::month, false},
    {"QE", TimeUnit::quarter, true},
    {"Q", TimeUnit::quarter, true},
    {"quarterly", TimeUnit::quarter, true},
    {"QS", TimeUnit::quarter, false},
    {"YE", TimeUnit::year, true},
    {"Y", TimeUnit::year, true},
    {"A", TimeUnit::year, true},
    {"yearly", TimeUnit::year, true},
    {"YS", TimeUnit::year, false},
    {"AS", TimeUnit::year, false},
};

/// Microseconds of one unit, 0 for those whose length is the calendar's.
int64_t fixed_length(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::second: return kSecond;
    case TimeUnit::minute: return kMinute;
    case TimeUnit::hour: return kHour;
    case TimeUnit::day: return kDay;
    case TimeUnit::week: return kWeek;
    default: return 0;
  }
}

int64_t months_of(const Frequency& frequency) {
  switch (frequency.unit) {
    case TimeUnit::month: return frequency.multiple;
    case TimeUnit::quarter: return int64_t{3} * frequency.multiple;
    case TimeUnit::year: return int64_t{12} * frequency.multiple;
    default: return 0;
  }
}

/// Month a grid at the start of periods begins with, from the month its year ends with.
int first_month(int last_month) { return last_month % 12 + 1; }

Error unknown_frequency(std::string_view name) {
  return Error{
      Errc::invalid_argument,
      fmt::format(
          "forecast: unknown frequency \"{}\"; known: s, min, h, D, B, W (W-MON ...), ME, MS, "
          "QE, QS, YE, YS (QE-NOV ...), the older S, T, H, M, Q, A, Y, AS, each with a number "
          "in front (15min, 2h)",
          name)};
}

/// The part after "-": a weekday for weeks, a month for quarters and years.
std::optional<int> parse_anchor(const UnitName& unit, std::string_view text) {
  const auto position = [&](const auto& names) -> std::optional<int> {
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end()) {
      return std::nullopt;
    }
    return static_cast<int>(found - names.begin());
  };
  if (unit.unit == TimeUnit::week) {
    return position(kWeekdays);
  }
  if (unit.unit != TimeUnit::quarter && unit.unit != TimeUnit::year) {
    return std::nullopt;
  }
  const std::optional<int> month = position(kMonths);
  if (!month) {
    return std::nullopt;
  }
  // Named by the last month (QE-DEC) or by the first (QS-JAN); kept as the last, 1..12.
  return unit.at_end ? *month + 1 : (*month + 11) % 12 + 1;
}

int default_anchor(TimeUnit unit) {
  if (unit == TimeUnit::week) {
    return kSunday;
  }
  return unit == TimeUnit::quarter || unit == TimeUnit::year ? kDecember : 0;
}

// Sums and products that stay at the end of the range: no stamp of a table lies there.
int64_t add_within(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? (b < 0 ? INT64_MIN : INT64_MAX) : sum;
}

int64_t multiply_within(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ((a < 0) != (b < 0) ? INT64_MIN : INT64_MAX)
                                                : product;
}

int64_t subtract_within(int64_t a, int64_t b) {
  int64_t difference = 0;
  return __builtin_sub_overflow(a, b, &difference) ? (b > 0 ? INT64_MIN : INT64_MAX) : difference;
}

bool is_last_day(const Date& date) { return date.day == days_in_month(date.year, date.month); }

int64_t add_months(const Frequency& frequency, int64_t start_us, int64_t count) {
  const int64_t start_day = day_of(start_us);
  const Date start = date_of_day(start_day);
  const int64_t month =
      add_within(month_number(start), multiply_within(count, months_of(frequency)));
  if (const int64_t year = floor_div(month, 12); year < kYearMin || year > kYearMax) {
    return year < 0 ? INT64_MIN : INT64_MAX;
  }
  Date date{static_cast<int>(floor_div(month, 12)), static_cast<int>(floor_mod(month, 12)) + 1, 1};
  const int length = days_in_month(date.year, date.month);
  date.day = frequency.at_end && is_last_day(start) ? length : std::min(start.day, length);
  return day_of_date(date) * kDay + floor_mod(start_us, kDay);
}

int64_t add_business_days(int64_t start_us, int64_t count) {
  const int64_t day = day_of(start_us);
  const int weekday = weekday_of_day(day);
  const int64_t total = add_within(std::min(weekday, 4), count);
  const int64_t end =
      add_within(day - weekday + floor_mod(total, 5), multiply_within(floor_div(total, 5), 7));
  return add_within(multiply_within(end, kDay), floor_mod(start_us, kDay));
}

/// Business days since the first Monday of the epoch's week; weekends count as their Friday.
int64_t business_number(int64_t day) {
  const int weekday = weekday_of_day(day);
  return floor_div(day - weekday, 7) * 5 + std::min(weekday, 4);
}

}  // namespace

std::string Frequency::name() const {
  std::string text = multiple == 1 ? std::string() : std::to_string(multiple);
  for (const UnitName& candidate : kUnitNames) {
    if (candidate.unit == unit && candidate.at_end == at_end) {
      text += candidate.name;
      break;
    }
  }
  if (anchor == default_anchor(unit)) {
    return text;
  }
  text += '-';
  if (unit == TimeUnit::week) {
    text += kWeekdays[static_cast<size_t>(anchor)];
  } else {
    text += kMonths[static_cast<size_t>((at_end ? anchor : first_month(anchor)) - 1)];
  }
  return text;
}

Result<Frequency> parse_frequency(std::string_view name) {
  Frequency frequency;
  std::string_view rest = name;
  if (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') {
    const auto [end, code] =
        std::from_chars(rest.data(), rest.data() + rest.size(), frequency.multiple);
    if (code != std::errc() || frequency.multiple < 1 || frequency.multiple > kMultipleMax) {
      return unknown_frequency(name);
    }
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  }
  const size_t dash = rest.find('-');
  const std::string_view base = rest.substr(0, dash);
  for (const UnitName& unit : kUnitNames) {
    if (unit.name != base) {
      continue;
    }
    frequency.unit = unit.unit;
    frequency.at_end = unit.at_end;
    frequency.anchor = default_anchor(unit.unit);
    if (dash != std::string_view::npos) {
      const std::optional<int> anchor = parse_anchor(unit, rest.substr(dash + 1));
      if (!anchor) {
        return unknown_frequency(name);
      }
      frequency.anchor = *anchor;
    }
    return frequency;
  }
  return unknown_frequency(name);
}

int64_t add_steps(const Frequency& frequency, int64_t start_us, int64_t count) {
  if (const int64_t length = fixed_length(frequency.unit); length > 0) {
    return add_within(start_us, multiply_within(count, length * frequency.multiple));
  }
  if (frequency.unit == TimeUnit::business_day) {
    return add_business_days(start_us, multiply_within(count, frequency.multiple));
  }
  return add_months(frequency, start_us, count);
}

int64_t steps_floor(const Frequency& frequency, int64_t start_us, int64_t stamp_us) {
  if (const int64_t length = fixed_length(frequency.unit); length > 0) {
    return floor_div(subtract_within(stamp_us, start_us), length * frequency.multiple);
  }
  int64_t steps = 0;
  if (frequency.unit == TimeUnit::business_day) {
    steps = floor_div(business_number(day_of(stamp_us)) - business_number(day_of(start_us)),
                      frequency.multiple);
  } else {
    steps = floor_div(
        month_number(date_of_day(day_of(stamp_us))) - month_number(date_of_day(day_of(start_us))),
        months_of(frequency));
  }
  return add_steps(frequency, start_us, steps) > stamp_us ? steps - 1 : steps;
}

std::optional<int64_t> steps_between(const Frequency& frequency, int64_t start_us,
                                     int64_t stamp_us) {
  const int64_t steps = steps_floor(frequency, start_us, stamp_us);
  if (add_steps(frequency, start_us, steps) != stamp_us) {
    return std::nullopt;
  }
  return steps;
}

int season_length(const Frequency& frequency) {
  int season = 1;
  switch (frequency.unit) {
    case TimeUnit::second: season = 3600; break;
    case TimeUnit::minute: season = 1440; break;
    case TimeUnit::hour: season = 24; break;
    case TimeUnit::business_day: season = 5; break;
    case TimeUnit::month: season = 12; break;
    case TimeUnit::quarter: season = 4; break;
    default: break;
  }
  return season % frequency.multiple == 0 ? season / frequency.multiple : 1;
}

void FrequencyVotes::add(std::span<const int64_t> sorted_us) {
  for (size_t i = 0; i < sorted_us.size(); ++i) {
    const int64_t day = day_of(sorted_us[i]);
    const Date date = date_of_day(day);
    weekend_stamps_ += static_cast<int64_t>(weekday_of_day(day) > 4);
    not_last_days_ += static_cast<int64_t>(!is_last_day(date));
    sample_us_ = sorted_us[i];
    if (i == 0 || sorted_us[i] == sorted_us[i - 1]) {
      continue;
    }
    const int64_t difference = subtract_within(sorted_us[i], sorted_us[i - 1]);
    const int64_t day_before = day_of(sorted_us[i - 1]);
    const Date before = date_of_day(day_before);
    weekend_jumps_ +=
        static_cast<int64_t>(difference == 3 * kDay && weekday_of_day(day_before) == 4);
    const bool whole_days = difference % kDay == 0;
    const bool same_day = date.day == before.day || (is_last_day(date) && is_last_day(before));
    const int64_t months = month_number(date) - month_number(before);
    if (whole_days && same_day && months > 0) {
      ++votes_[{true, months}];
    } else {
      ++votes_[{false, difference}];
    }
  }
}

Frequency FrequencyVotes::monthly_frequency(int64_t months) const {
  const int month = date_of_day(day_of(sample_us_)).month;
  Frequency frequency;
  frequency.at_end = not_last_days_ == 0;
  if (months % 12 == 0) {
    frequency.unit = TimeUnit::year;
    frequency.multiple = static_cast<int>(months / 12);
    frequency.anchor = frequency.at_end ? month : (month + 10) % 12 + 1;
  } else if (months % 3 == 0) {
    frequency.unit = TimeUnit::quarter;
    frequency.multiple = static_cast<int>(months / 3);
    const int last = frequency.at_end ? month : month + 2;
    frequency.anchor = last % 3 == 0 ? kDecember : last % 3;
  } else {
    frequency.unit = TimeUnit::month;
    frequency.multiple = static_cast<int>(months);
  }
  return frequency;
}

Result<Frequency> FrequencyVotes::winner() const {
  if (votes_.empty()) {
    return Error{
        Errc::invalid_argument,
        "forecast: the frequency cannot be inferred: no item has two different time stamps; "
        "name it, e.g. \"h\" or \"D\""};
  }
  const auto [step, count] =
      *std::max_element(votes_.begin(), votes_.end(),
                        [](const auto& a, const auto& b) { return a.second < b.second; });
  if (step.monthly) {
    return monthly_frequency(step.size);
  }
  Frequency frequency;
  for (const TimeUnit unit :
       {TimeUnit::week, TimeUnit::day, TimeUnit::hour, TimeUnit::minute, TimeUnit::second}) {
    const int64_t length = fixed_length(unit);
    if (step.size % length == 0 && step.size / length <= kMultipleMax) {
      frequency.unit = unit;
      frequency.multiple = static_cast<int>(step.size / length);
      if (unit == TimeUnit::week) {
        frequency.anchor = weekday_of_day(day_of(sample_us_));
      } else if (step.size == kDay && weekend_stamps_ == 0 && weekend_jumps_ > 0) {
        frequency.unit = TimeUnit::business_day;
      }
      return frequency;
    }
  }
  return Error{
      Errc::invalid_argument,
      fmt::format("forecast: the most common step between time stamps is {} microseconds, no "
                  "whole number of seconds; aggregate the table to a regular grid, or name "
                  "the frequency",
                  step.size)};
}

std::string stamp_text(int64_t stamp_us) {
  const int64_t day = day_of(stamp_us);
  const Date date = date_of_day(day);
  const int64_t in_day = stamp_us - day * kDay;
  std::string text =
      fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", date.year, date.month, date.day,
                  in_day / kHour, in_day / kMinute % 60, in_day / kSecond % 60);
  if (in_day % kSecond != 0) {
    text += fmt::format(".{:06}", in_day % kSecond);
  }
  return text;
}

}  // namespace headrace::forecast
