// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/stamp.h"

#include <fmt/format.h>

#include <chrono>

namespace headrace::lake {

namespace {

/// Reads fixed fields from the front of a text.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool empty() const { return rest_.empty(); }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }
  bool digits(size_t count, int* out) {
    if (rest_.size() < count) {
      return false;
    }
    int value = 0;
    for (size_t i = 0; i < count; ++i) {
      if (rest_[i] < '0' || rest_[i] > '9') {
        return false;
      }
      value = value * 10 + (rest_[i] - '0');
    }
    rest_.remove_prefix(count);
    *out = value;
    return true;
  }
  /// 1 to 9 digits behind a decimal point, as microseconds.
  bool fraction(int64_t* us) {
    int64_t value = 0;
    int count = 0;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      if (count < 6) {
        value = value * 10 + (rest_.front() - '0');
      }
      ++count;
      rest_.remove_prefix(1);
    }
    for (int i = count; i < 6; ++i) {
      value *= 10;
    }
    *us = value;
    return count >= 1 && count <= 9;
  }

 private:
  std::string_view rest_;
};

bool parse_time(Reader& in, int64_t* us) {
  int hour = 0;
  int minute = 0;
  int second = 0;
  int64_t fraction = 0;
  if (!in.digits(2, &hour) || !in.take(':') || !in.digits(2, &minute)) {
    return false;
  }
  if (in.take(':')) {
    if (!in.digits(2, &second) || ((in.take('.') || in.take(',')) && !in.fraction(&fraction))) {
      return false;
    }
  }
  *us = ((int64_t{hour} * 60 + minute) * 60 + second) * 1000000 + fraction;
  return hour < 24 && minute < 60 && second < 60;
}

bool parse_zone(Reader& in, ParsedStamp* out) {
  if (in.take('Z') || in.take('z')) {
    out->has_zone = true;
    return true;
  }
  const bool east = in.take('+');
  if (!east && !in.take('-')) {
    return true;
  }
  int hours = 0;
  int minutes = 0;
  if (!in.digits(2, &hours)) {
    return false;
  }
  if (!in.empty()) {
    in.take(':');
    if (!in.digits(2, &minutes)) {
      return false;
    }
  }
  out->has_zone = true;
  out->offset_minutes = (hours * 60 + minutes) * (east ? 1 : -1);
  return hours < 24 && minutes < 60;
}

}  // namespace

std::optional<ParsedStamp> parse_stamp(std::string_view text) {
  Reader in(text);
  int year = 0;
  int month = 0;
  int day = 0;
  if (!in.digits(4, &year) || !in.take('-') || !in.digits(2, &month) || !in.take('-') ||
      !in.digits(2, &day) || year < 1) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) {
    return std::nullopt;
  }
  ParsedStamp out;
  int64_t time_us = 0;
  if (in.empty()) {
    out.date_only = true;
  } else {
    if (!(in.take('T') || in.take(' ') || in.take('t')) || !parse_time(in, &time_us)) {
      return std::nullopt;
    }
    in.take(' ');
    if (!parse_zone(in, &out) || !in.empty()) {
      return std::nullopt;
    }
  }
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  out.us = days * kMicrosPerDay + time_us - int64_t{out.offset_minutes} * 60 * 1000000;
  return out;
}

std::optional<int64_t> parse_period(std::string_view text, int year_end_month) {
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    const auto first = parse_stamp(text.substr(0, slash));
    const auto last = parse_stamp(text.substr(slash + 1));
    const bool is_week = first && last && first->date_only && last->us >= first->us;
    return is_week ? std::optional(first->us) : std::nullopt;
  }
  Reader in(text);
  int year = 0;
  int month = year_end_month % 12 + 1;  // the first of the year of a report
  if (!in.digits(4, &year) || year < 1) {
    return std::nullopt;
  }
  const int begin = year_end_month < 12 ? year - 1 : year;
  int months = begin * 12 + month - 1;
  if (in.take('-')) {
    if (!in.digits(2, &month) || month < 1 || month > 12) {
      return std::nullopt;
    }
    months = year * 12 + month - 1;
  } else if (in.take('Q')) {
    int quarter = 0;
    if (!in.digits(1, &quarter) || quarter < 1 || quarter > 4) {
      return std::nullopt;
    }
    months += 3 * (quarter - 1);
  }
  if (!in.empty()) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date(std::chrono::year(months / 12),
                                         std::chrono::month(static_cast<unsigned>(months % 12) + 1),
                                         std::chrono::day(1));
  return std::chrono::sys_days(date).time_since_epoch().count() * kMicrosPerDay;
}

std::string date_text(int64_t days) {
  constexpr int64_t kYears = int64_t{365} * 30000;  // what year_month_day can hold
  if (days < -kYears || days > kYears) {
    return fmt::format("day {}", days);
  }
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(static_cast<int>(days)))};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

std::string stamp_text(int64_t us, bool instant) {
  int64_t days = us / kMicrosPerDay;
  int64_t rest = us % kMicrosPerDay;
  if (rest < 0) {
    rest += kMicrosPerDay;
    --days;
  }
  std::string out = date_text(days);
  const int64_t seconds = rest / 1000000;
  out += fmt::format("T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  if (rest % 1000000 != 0) {
    out += rest % 1000 == 0 ? fmt::format(".{:03}", rest % 1000000 / 1000)
                            : fmt::format(".{:06}", rest % 1000000);
  }
  return instant ? out + "Z" : out;
}

std::string zone_text(const ParsedStamp& stamp) {
  if (!stamp.has_zone) {
    return "";
  }
  if (stamp.offset_minutes == 0) {
    return "UTC";
  }
  const int minutes = std::abs(stamp.offset_minutes);
  return fmt::format("{}{:02}:{:02}", stamp.offset_minutes < 0 ? '-' : '+', minutes / 60,
                     minutes % 60);
}

}  // namespace headrace::lake
