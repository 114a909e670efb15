// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/frequency.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "headrace/base/random.h"

using namespace headrace;
using namespace headrace::forecast;

namespace {

constexpr int64_t kHour = 3'600'000'000;
constexpr int64_t kDay = 24 * kHour;

/// Stamp of a date at midnight, by counting days: independent of the code under test.
int64_t date(int year, int month, int day) {
  constexpr int kLengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const auto leap = [](int y) { return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0; };
  int64_t days = 0;
  for (int y = 1970; y < year; ++y) {
    days += leap(y) ? 366 : 365;
  }
  for (int m = 1; m < month; ++m) {
    days += kLengths[m - 1] + (m == 2 && leap(year) ? 1 : 0);
  }
  return (days + day - 1) * kDay;
}

Frequency frequency(const char* name) { return parse_frequency(name).value(); }

std::vector<std::string> walk(const char* name, int64_t start, int count) {
  std::vector<std::string> stamps;
  for (int i = 0; i < count; ++i) {
    stamps.push_back(stamp_text(add_steps(frequency(name), start, i)).substr(0, 10));
  }
  return stamps;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("names of both generations give the modern name") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"H", "h"},           {"h", "h"},           {"2h", "2h"},      {"T", "min"},
      {"15T", "15min"},     {"15min", "15min"},   {"S", "s"},        {"D", "D"},
      {"B", "B"},           {"W", "W"},           {"W-SUN", "W"},    {"W-MON", "W-MON"},
      {"M", "ME"},          {"ME", "ME"},         {"MS", "MS"},      {"Q", "QE"},
      {"Q-DEC", "QE"},      {"QE-NOV", "QE-NOV"}, {"QS", "QS"},      {"QS-JAN", "QS"},
      {"QS-FEB", "QS-FEB"}, {"A", "YE"},          {"Y", "YE"},       {"YE-JUN", "YE-JUN"},
      {"YS", "YS"},         {"AS-APR", "YS-APR"}, {"monthly", "ME"}, {"hourly", "h"},
      {"1D", "D"},          {"3MS", "3MS"},       {"weekly", "W"},
  };
  for (const auto& [given, expected] : cases) {
    CAPTURE(given);
    REQUIRE(parse_frequency(given).ok());
    CHECK(frequency(given).name() == expected);
    CHECK(frequency(expected) == frequency(given));
  }
}

TEST_CASE("unknown frequency names are refused with the known ones") {
  for (const char* name :
       {"", "x", "0h", "-1h", "h2", "W-XYZ", "D-MON", "QE-13", "9999999999h", "m"}) {
    CAPTURE(name);
    const auto result = parse_frequency(name);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code() == Errc::invalid_argument);
    CHECK(result.error().message().find("15min") != std::string::npos);
  }
}

TEST_CASE("steps of months keep the day, or the last day of the month") {
  CHECK(walk("ME", date(2015, 1, 31), 4) ==
        Texts{"2015-01-31", "2015-02-28", "2015-03-31", "2015-04-30"});
  CHECK(walk("MS", date(2015, 1, 31), 3) == Texts{"2015-01-31", "2015-02-28", "2015-03-31"});
  CHECK(walk("M", date(2016, 1, 1), 3) == Texts{"2016-01-01", "2016-02-01", "2016-03-01"});
  CHECK(walk("QE", date(2015, 12, 31), 3) == Texts{"2015-12-31", "2016-03-31", "2016-06-30"});
  CHECK(walk("YE", date(2015, 2, 28), 3) == Texts{"2015-02-28", "2016-02-29", "2017-02-28"});
  CHECK(walk("2QS", date(2015, 1, 1), 3) == Texts{"2015-01-01", "2015-07-01", "2016-01-01"});
}

TEST_CASE("business days step over weekends, forward and backward") {
  // 2015-07-01 was a Wednesday.
  CHECK(walk("B", date(2015, 7, 1), 5) ==
        Texts{"2015-07-01", "2015-07-02", "2015-07-03", "2015-07-06", "2015-07-07"});
  CHECK(stamp_text(add_steps(frequency("B"), date(2015, 7, 6), -1)).substr(0, 10) == "2015-07-03");
  CHECK_FALSE(steps_between(frequency("B"), date(2015, 7, 4), date(2015, 7, 4)).has_value());
}

TEST_CASE("a count of steps and the stamp it leads to are inverse for every frequency") {
  base::Rng rng(3);
  for (const char* name : {"s", "7min", "h", "5h", "D", "B", "3B", "W", "W-WED", "ME", "MS", "2MS",
                           "QE", "QS", "YE", "YS", "2YE"}) {
    CAPTURE(name);
    const Frequency f = frequency(name);
    for (int round = 0; round < 300; ++round) {
      int64_t start = date(1960 + 10, 1, 1) + static_cast<int64_t>(rng.below(20000)) * kDay +
                      static_cast<int64_t>(rng.below(24)) * kHour;
      if (f.unit == TimeUnit::business_day) {
        start = add_steps(f, start, 0);
      }
      const int64_t count = static_cast<int64_t>(rng.below(400)) - 200;
      const int64_t stamp = add_steps(f, start, count);
      CAPTURE(stamp_text(start));
      CAPTURE(count);
      CHECK(steps_between(f, start, stamp) == count);
      CHECK(steps_floor(f, start, stamp + 1) == count);
      CHECK(steps_floor(f, start, stamp - 1) == count - 1);
      CHECK_FALSE(steps_between(f, start, stamp + 1).has_value());
    }
  }
}

TEST_CASE("seasons are those of the M4 competition and of multiples") {
  const std::vector<std::pair<const char*, int>> cases = {
      {"h", 24}, {"2h", 12}, {"5h", 1}, {"D", 1},      {"W", 1},      {"ME", 12},  {"MS", 12},
      {"QE", 4}, {"YE", 1},  {"B", 5},  {"min", 1440}, {"15min", 96}, {"s", 3600}, {"7min", 1}};
  for (const auto& [name, season] : cases) {
    CAPTURE(name);
    CHECK(season_length(frequency(name)) == season);
  }
}

TEST_CASE("the frequency is the most common step") {
  const auto guess = [](const char* name, int64_t start, int count) {
    std::vector<int64_t> stamps;
    for (int i = 0; i < count; ++i) {
      if (i != 5) {  // a gap
        stamps.push_back(add_steps(frequency(name), start, i));
      }
    }
    FrequencyVotes votes;
    votes.add(stamps);
    return votes.winner().value().name();
  };
  const int64_t start = date(2015, 7, 1) + 6 * kHour;
  for (const char* name : {"s", "15min", "h", "2h", "D", "MS", "QS", "YS-JUL"}) {
    CAPTURE(name);
    CHECK(guess(name, start, 40) == std::string(name));
  }
  CHECK(guess("B", start, 40) == "B");
  CHECK(guess("W", start, 40) == "W-WED");  // 2015-07-01 was a Wednesday
  CHECK(guess("ME", date(2015, 1, 31), 40) == "ME");
  CHECK(guess("QE", date(2015, 3, 31), 40) == "QE");
  CHECK(guess("QE-JAN", date(2015, 4, 30), 40) == "QE-JAN");
  CHECK(guess("YE", date(2015, 12, 31), 20) == "YE");
  CHECK(guess("2MS", date(2015, 12, 15), 20) == "2MS");
  CHECK(guess("D", date(2015, 7, 6), 5) == "D");  // Monday to Friday: no weekend in it, so not B
}

TEST_CASE("without two stamps, or below a second, there is no frequency to infer") {
  FrequencyVotes none;
  none.add(std::vector<int64_t>{5, 5});
  CHECK(none.winner().error().message().find("two different time stamps") != std::string::npos);

  FrequencyVotes fine;
  fine.add(std::vector<int64_t>{0, 1000, 2000});
  CHECK(fine.winner().error().message().find("1000 microseconds") != std::string::npos);
}

TEST_CASE("steps beyond what 64 bits hold stay far away, on the right side") {
  for (const char* name : {"s", "1000000h", "D", "B", "1000000B", "W", "ME", "QS", "1000000YE"}) {
    CAPTURE(name);
    const Frequency step = frequency(name);
    CHECK(add_steps(step, date(2015, 7, 1), int64_t{1} << 60) > date(2500, 1, 1));
    CHECK(add_steps(step, date(2015, 7, 1), -(int64_t{1} << 60)) < -date(2500, 1, 1));
    CHECK_FALSE(steps_between(step, INT64_MIN + 1, INT64_MAX - 1).has_value());
  }
}
