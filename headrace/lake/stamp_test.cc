// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/stamp.h"

#include <doctest/doctest.h>

#include <vector>

namespace headrace::lake {

TEST_CASE("a period is named by its year, month, quarter or week") {
  struct Case {
    const char* text;
    int year_end_month;
    const char* first;
  };
  // pandas 2.3: pd.Period(text, freq).start_time, freq of the year's end such as Q-JAN, Y-JUN.
  const std::vector<Case> cases = {
      {"2015", 12, "2015-01-01"},   {"2015-07", 12, "2015-07-01"},
      {"2015Q3", 12, "2015-07-01"}, {"2015Q1", 1, "2014-02-01"},
      {"2015Q4", 1, "2014-11-01"},  {"2015Q2", 11, "2015-03-01"},
      {"2015", 6, "2014-07-01"},    {"2015-07", 6, "2015-07-01"},
      {"1969Q4", 12, "1969-10-01"}, {"2015-06-29/2015-07-05", 12, "2015-06-29"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.text);
    CAPTURE(one.year_end_month);
    CHECK(parse_period(one.text, one.year_end_month) == parse_stamp(one.first)->us);
  }
  for (const char* text : {"", "15", "2015-13", "2015-", "2015Q5", "2015Q", "2015-07-01", "0000",
                           "2015Q31", "2015-07-05/2015-06-29", "2015-06-29/", "/"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_period(text).has_value());
  }
}

TEST_CASE("time stamps in the forms that files hold give microseconds since the epoch") {
  struct Case {
    const char* text;
    int64_t us;
    bool zone;
    int offset;
  };
  // Seconds by `date -u -d ... +%s`.
  const std::vector<Case> cases = {
      {"1970-01-01", 0, false, 0},
      {"2015-07-01", 1435708800000000, false, 0},
      {"2015-07-01 10:30", 1435746600000000, false, 0},
      {"2015-07-01T10:30:15", 1435746615000000, false, 0},
      {"2015-07-01T10:30:15Z", 1435746615000000, true, 0},
      {"2015-07-01T12:30:15+02:00", 1435746615000000, true, 120},
      {"2015-07-01T12:30:15 +0200", 1435746615000000, true, 120},
      {"2015-06-30T22:30:15-12", 1435746615000000, true, -720},
      {"2015-07-01 10:30:15.5", 1435746615500000, false, 0},
      {"2015-07-01 10:30:15.123456789", 1435746615123456, false, 0},
      {"1969-12-31T23:59:59.999999", -1, false, 0},
      {"0001-01-01", -62135596800000000, false, 0},
      {"9999-12-31 23:59:59", 253402300799000000, false, 0},
      {"2016-02-29", 1456704000000000, false, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const auto stamp = parse_stamp(c.text);
    REQUIRE(stamp.has_value());
    CHECK(stamp->us == c.us);
    CHECK(stamp->has_zone == c.zone);
    CHECK(stamp->offset_minutes == c.offset);
  }
}

TEST_CASE("what is no time stamp is refused") {
  for (const char* text : {"",
                           "2015",
                           "2015-07",
                           "2015-13-01",
                           "2015-02-29",
                           "2015-07-32",
                           "0000-01-01",
                           "15-07-01",
                           "2015-07-01T",
                           "2015-07-01 25:00",
                           "2015-07-01 10",
                           "2015-07-01 10:60",
                           "2015-07-01 10:30:60",
                           "2015-07-01 10:30:15.",
                           "2015-07-01 10:30:15.1234567890",
                           "2015-07-01T10:30+25:00",
                           "2015-07-01T10:30+2",
                           "2015-07-01T10:30Zx",
                           "2015/07/01",
                           "2015-07-01X10:30",
                           "20150701",
                           "-2015-07-01",
                           " 2015-07-01"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_stamp(text).has_value());
  }
}

TEST_CASE("stamps are written in the form that reads back the same") {
  for (const int64_t us :
       {int64_t{0}, int64_t{-1}, int64_t{1435746615123456}, int64_t{1435746615123000},
        int64_t{-62135596800000000}, int64_t{253402300799999999}}) {
    CAPTURE(us);
    CHECK(parse_stamp(stamp_text(us, false))->us == us);
    CHECK(parse_stamp(stamp_text(us, true))->us == us);
    CHECK(parse_stamp(stamp_text(us, true))->has_zone);
  }
  CHECK(stamp_text(1435746615000000, true) == "2015-07-01T10:30:15Z");
  CHECK(stamp_text(1435746615120000, false) == "2015-07-01T10:30:15.120");
  CHECK(date_text(16617) == "2015-07-01");

  CHECK(zone_text({}).empty());
  CHECK(zone_text({.us = 0, .has_zone = true, .offset_minutes = -90}) == "-01:30");
}

}  // namespace headrace::lake
