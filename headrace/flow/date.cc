// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/date.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

namespace headrace::flow {

namespace {

namespace chr = std::chrono;

constexpr int64_t kDaysToEpoch = 719'162;  // 0001-01-01 to 1970-01-01
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};

/// Reads fixed-width digits and separators from the front of a text.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool done() const { return text_.empty(); }
  bool accept(char c) {
    if (text_.empty() || text_[0] != c) {
      return false;
    }
    text_.remove_prefix(1);
    return true;
  }
  bool accept_any(std::string_view chars) {
    return !text_.empty() && chars.find(text_[0]) != std::string_view::npos && accept(text_[0]);
  }
  /// `width_min` to `width_max` digits.
  bool number(size_t width_min, size_t width_max, int* out) {
    size_t width = 0;
    while (width < std::min(width_max, text_.size()) && text_[width] >= '0' &&
           text_[width] <= '9') {
      ++width;
    }
    if (width < width_min) {
      return false;
    }
    std::from_chars(text_.data(), text_.data() + width, *out);
    text_.remove_prefix(width);
    return true;
  }
  /// Up to seven digits count, more are dropped.
  bool fraction(int64_t* ticks) {
    int64_t unit = kTicksPerSecond / 10;
    const size_t before = text_.size();
    while (!text_.empty() && text_[0] >= '0' && text_[0] <= '9') {
      *ticks += (text_[0] - '0') * unit;
      unit /= 10;
      text_.remove_prefix(1);
    }
    return text_.size() < before;
  }

 private:
  std::string_view text_;
};

bool read_date(Reader* reader, DateFields* fields, bool slashes) {
  if (slashes) {
    return reader->number(1, 2, &fields->month) && reader->accept('/') &&
           reader->number(1, 2, &fields->day) && reader->accept('/') &&
           reader->number(4, 4, &fields->year);
  }
  return reader->number(4, 4, &fields->year) && reader->accept('-') &&
         reader->number(1, 2, &fields->month) && reader->accept('-') &&
         reader->number(1, 2, &fields->day);
}

bool read_time(Reader* reader, DateFields* fields) {
  if (!reader->number(1, 2, &fields->hour) || !reader->accept(':') ||
      !reader->number(2, 2, &fields->minute)) {
    return false;
  }
  if (!reader->accept(':')) {
    return true;
  }
  return reader->number(2, 2, &fields->second) &&
         (!reader->accept('.') || reader->fraction(&fields->fraction));
}

/// "", "Z", "+02:00", "-0530": minutes east of UTC.
std::optional<int64_t> read_offset(Reader* reader) {
  if (reader->done() || reader->accept_any("Zz")) {
    return 0;
  }
  const bool west = reader->accept('-');
  if (!west && !reader->accept('+')) {
    return std::nullopt;
  }
  int hours = 0;
  int minutes = 0;
  if (!reader->number(2, 2, &hours)) {
    return std::nullopt;
  }
  reader->accept(':');
  if (!reader->done() && !reader->number(2, 2, &minutes)) {
    return std::nullopt;
  }
  const int64_t total = hours * 60 + minutes;
  return west ? -total : total;
}

bool valid(const DateFields& fields) {
  const chr::year_month_day day{chr::year(fields.year),
                                chr::month(static_cast<unsigned>(fields.month)),
                                chr::day(static_cast<unsigned>(fields.day))};
  return day.ok() && fields.year >= 1 && fields.hour < 24 && fields.minute < 60 &&
         fields.second < 60;
}

/// Patterns of culture en-US: the published examples ("Tuesday, January 2, 2018" for 'D') show that
/// the service uses it and not the invariant culture.
std::string_view standard_format(char letter) {
  switch (letter) {
    case 'd': return "M/d/yyyy";
    case 'D': return "dddd, MMMM d, yyyy";
    case 'f': return "dddd, MMMM d, yyyy h:mm tt";
    case 'F':
    case 'U': return "dddd, MMMM d, yyyy h:mm:ss tt";
    case 'g': return "M/d/yyyy h:mm tt";
    case 'G': return "M/d/yyyy h:mm:ss tt";
    case 'm':
    case 'M': return "MMMM d";
    case 'o':
    case 'O': return "yyyy'-'MM'-'dd'T'HH':'mm':'ss'.'fffffffK";
    case 'r':
    case 'R': return "ddd, dd MMM yyyy HH':'mm':'ss 'GMT'";
    case 's': return "yyyy'-'MM'-'dd'T'HH':'mm':'ss";
    case 't': return "h:mm tt";
    case 'T': return "h:mm:ss tt";
    case 'u': return "yyyy'-'MM'-'dd HH':'mm':'ss'Z'";
    case 'y':
    case 'Y': return "MMMM yyyy";
    default: return {};
  }
}

void append_fraction(int64_t fraction, size_t digits, bool trim, std::string* out) {
  std::string text = fmt::format("{:07}", fraction).substr(0, digits);
  if (trim) {
    while (text.ends_with('0')) {
      text.pop_back();
    }
    if (text.empty() && out->ends_with('.')) {
      out->pop_back();  // .NET drops the point together with an empty F fraction
    }
  }
  *out += text;
}

/// One run of `count` equal letters of a custom format; false when the letter is not a specifier.
bool append_specifier(const DateFields& at, char letter, size_t count, std::string* out) {
  const auto padded = [&](int64_t value, size_t width) {
    *out += fmt::format("{:0{}}", value, width);
  };
  const size_t two = std::min<size_t>(count, 2);
  const int hour12 = at.hour % 12 == 0 ? 12 : at.hour % 12;
  switch (letter) {
    case 'd':
      if (count <= 2) {
        padded(at.day, two);
      } else {
        *out += kDays[at.week_day].substr(0, count == 3 ? 3 : std::string_view::npos);
      }
      return true;
    case 'M':
      if (count <= 2) {
        padded(at.month, two);
      } else {
        *out += kMonths[at.month - 1].substr(0, count == 3 ? 3 : std::string_view::npos);
      }
      return true;
    case 'y': padded(count <= 2 ? at.year % 100 : at.year, count); return true;
    case 'h': padded(hour12, two); return true;
    case 'H': padded(at.hour, two); return true;
    case 'm': padded(at.minute, two); return true;
    case 's': padded(at.second, two); return true;
    case 'f':
    case 'F': append_fraction(at.fraction, count, letter == 'F', out); return true;
    case 't': *out += std::string_view(at.hour < 12 ? "AM" : "PM").substr(0, two); return true;
    case 'g': *out += "A.D."; return true;
    case 'K': *out += "Z"; return true;
    case 'z': *out += count == 1 ? "+0" : count == 2 ? "+00" : "+00:00"; return true;
    default: return false;
  }
}

}  // namespace

bool ticks_in_range(int64_t ticks) { return ticks >= 0 && ticks < 3'652'059 * kTicksPerDay; }

int64_t ticks_of(base::Micros since_epoch) {
  return since_epoch.count() * 10 + kDaysToEpoch * kTicksPerDay;
}

DateFields date_fields(int64_t ticks) {
  const int64_t days = ticks / kTicksPerDay;
  const int64_t rest = ticks % kTicksPerDay;
  const chr::sys_days date{chr::days(days - kDaysToEpoch)};
  const chr::year_month_day ymd{date};
  DateFields fields;
  fields.year = static_cast<int>(ymd.year());
  fields.month = static_cast<int>(static_cast<unsigned>(ymd.month()));
  fields.day = static_cast<int>(static_cast<unsigned>(ymd.day()));
  const int64_t seconds = rest / kTicksPerSecond;
  fields.hour = static_cast<int>(seconds / 3600);
  fields.minute = static_cast<int>(seconds / 60 % 60);
  fields.second = static_cast<int>(seconds % 60);
  fields.fraction = rest % kTicksPerSecond;
  fields.week_day = static_cast<int>(chr::weekday(date).c_encoding());
  fields.year_day =
      static_cast<int>((date - chr::sys_days(ymd.year() / chr::January / 1)).count()) + 1;
  return fields;
}

int64_t date_ticks(const DateFields& fields) {
  const chr::sys_days date{chr::year(fields.year) / fields.month / fields.day};
  const int64_t days = date.time_since_epoch().count() + kDaysToEpoch;
  const int64_t seconds = fields.hour * 3600 + fields.minute * 60 + fields.second;
  return days * kTicksPerDay + seconds * kTicksPerSecond + fields.fraction;
}

std::optional<int64_t> parse_date(std::string_view text) {
  while (text.ends_with(' ')) {
    text.remove_suffix(1);
  }
  Reader reader(text);
  DateFields fields;
  if (!read_date(&reader, &fields, text.find('/') != std::string_view::npos)) {
    return std::nullopt;
  }
  if (!reader.done() && (!reader.accept_any("Tt ") || !read_time(&reader, &fields))) {
    return std::nullopt;
  }
  const auto offset = read_offset(&reader);
  if (!offset || !reader.done() || !valid(fields)) {
    return std::nullopt;
  }
  const int64_t ticks = date_ticks(fields) - *offset * 60 * kTicksPerSecond;
  return ticks_in_range(ticks) ? std::optional(ticks) : std::nullopt;
}

Result<std::string> format_date(int64_t ticks, std::string_view format) {
  if (format.empty()) {
    format = "o";
  }
  if (format.size() == 1) {
    const std::string_view whole = standard_format(format[0]);
    if (whole.empty()) {
      return Error{Errc::invalid_argument,
                   fmt::format("'{}' is not a standard date format; a custom format of one letter "
                               "is written '%{}'",
                               format, format)};
    }
    format = whole;
  }
  const DateFields fields = date_fields(ticks);
  std::string out;
  for (size_t at = 0; at < format.size();) {
    const char c = format[at];
    if (c == '\'' || c == '"') {
      const size_t end = format.find(c, at + 1);
      if (end == std::string_view::npos) {
        return Error{Errc::invalid_argument,
                     fmt::format("the quote at position {} of the date format '{}' is never closed",
                                 at, format)};
      }
      out += format.substr(at + 1, end - at - 1);
      at = end + 1;
    } else if (c == '\\' && at + 1 < format.size()) {
      out += format[at + 1];
      at += 2;
    } else if (c == '%') {
      ++at;
    } else {
      size_t count = 1;
      while (at + count < format.size() && format[at + count] == c) {
        ++count;
      }
      if ((c == 'f' || c == 'F') && count > 7) {
        return Error{
            Errc::invalid_argument,
            fmt::format("the date format '{}' asks for more than 7 fraction digits", format)};
      }
      if (!append_specifier(fields, c, count, &out)) {
        out.append(count, c);
      }
      at += count;
    }
  }
  return out;
}

int64_t add_months(int64_t ticks, int64_t months) {
  DateFields fields = date_fields(ticks);
  const int64_t month = int64_t{fields.year} * 12 + fields.month - 1 + months;
  if (month < 12 || month >= 10'000 * 12) {
    return -1;  // out of range, as ticks_in_range says
  }
  fields.year = static_cast<int>(month / 12);
  fields.month = static_cast<int>(month % 12) + 1;
  const chr::year_month_day_last last =
      chr::year(fields.year) / chr::month(static_cast<unsigned>(fields.month)) / chr::last;
  fields.day = std::min(fields.day, static_cast<int>(static_cast<unsigned>(last.day())));
  return date_ticks(fields);
}

}  // namespace headrace::flow
