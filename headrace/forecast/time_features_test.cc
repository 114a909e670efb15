// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/time_features.h"

#include <doctest/doctest.h>

#include <ctime>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/forecast/lags.h"

using namespace headrace;
using namespace headrace::forecast;

namespace {

struct Case {
  const char* frequency;
  int64_t start_s;  // since the epoch
  const char* feature;
  std::vector<double> values;
};

/// "2019-12-28 22:50:30" as microseconds since the epoch, by counting days.
int64_t parse_stamp(const std::string& text) {
  std::tm fields{};
  strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &fields);
  return int64_t{timegm(&fields)} * 1'000'000;
}

}  // namespace

TEST_CASE("time features are the reference's on turns of days, weeks and years") {
  // Written by gluonts 0.17.0 on pandas 2.3.3 period ranges (MS and QS as the periods M and Q).
  const std::vector<Case> cases = {
      {"h",
       1703970000 /* 2023-12-30 21:00:00 */,
       "hour_of_day",
       {0.413043478, 0.456521739, 0.5, -0.5, -0.456521739, -0.413043478}},
      {"h",
       1703970000 /* 2023-12-30 21:00:00 */,
       "day_of_week",
       {0.333333333, 0.333333333, 0.333333333, 0.5, 0.5, 0.5}},
      {"h",
       1703970000 /* 2023-12-30 21:00:00 */,
       "day_of_month",
       {0.466666667, 0.466666667, 0.466666667, 0.5, 0.5, 0.5}},
      {"h",
       1703970000 /* 2023-12-30 21:00:00 */,
       "day_of_year",
       {0.494520548, 0.494520548, 0.494520548, 0.497260274, 0.497260274, 0.497260274}},
      {"2h",
       1709150400 /* 2024-02-28 20:00:00 */,
       "hour_of_day",
       {0.369565217, 0.456521739, -0.5, -0.413043478, -0.326086957}},
      {"2h",
       1709150400 /* 2024-02-28 20:00:00 */,
       "day_of_week",
       {-0.166666667, -0.166666667, 0, 0, 0}},
      {"2h",
       1709150400 /* 2024-02-28 20:00:00 */,
       "day_of_month",
       {0.4, 0.4, 0.433333333, 0.433333333, 0.433333333}},
      {"2h",
       1709150400 /* 2024-02-28 20:00:00 */,
       "day_of_year",
       {-0.34109589, -0.34109589, -0.338356164, -0.338356164, -0.338356164}},
      {"D",
       1735430400 /* 2024-12-29 00:00:00 */,
       "day_of_week",
       {0.5, -0.5, -0.333333333, -0.166666667, 0}},
      {"D",
       1735430400 /* 2024-12-29 00:00:00 */,
       "day_of_month",
       {0.433333333, 0.466666667, 0.5, -0.5, -0.466666667}},
      {"D",
       1735430400 /* 2024-12-29 00:00:00 */,
       "day_of_year",
       {0.494520548, 0.497260274, 0.5, -0.5, -0.497260274}},
      {"B",
       1735516800 /* 2024-12-30 00:00:00 */,
       "day_of_week",
       {-0.5, -0.333333333, -0.166666667, 0, 0.166666667}},
      {"B",
       1735516800 /* 2024-12-30 00:00:00 */,
       "day_of_month",
       {0.466666667, 0.5, -0.5, -0.466666667, -0.433333333}},
      {"B",
       1735516800 /* 2024-12-30 00:00:00 */,
       "day_of_year",
       {0.497260274, 0.5, -0.5, -0.497260274, -0.494520548}},
      {"W",
       1609113600 /* 2020-12-28 00:00:00 */,
       "day_of_month",
       {-0.433333333, -0.2, 0.0333333333, 0.266666667}},
      {"W",
       1609113600 /* 2020-12-28 00:00:00 */,
       "week_of_year",
       {0.5, -0.5, -0.480769231, -0.461538462}},
      {"W-WED",
       1451260800 /* 2015-12-28 00:00:00 */,
       "day_of_month",
       {0.466666667, -0.333333333, -0.1, 0.133333333}},
      {"W-WED",
       1451260800 /* 2015-12-28 00:00:00 */,
       "week_of_year",
       {0.5, -0.5, -0.480769231, -0.461538462}},
      {"MS",
       1443657600 /* 2015-10-01 00:00:00 */,
       "month_of_year",
       {0.318181818, 0.409090909, 0.5, -0.5}},
      {"ME",
       1446249600 /* 2015-10-31 00:00:00 */,
       "month_of_year",
       {0.318181818, 0.409090909, 0.5, -0.5}},
      {"QE",
       1427760000 /* 2015-03-31 00:00:00 */,
       "month_of_year",
       {-0.318181818, -0.0454545455, 0.227272727, 0.5}},
      {"QS",
       1420070400 /* 2015-01-01 00:00:00 */,
       "month_of_year",
       {-0.318181818, -0.0454545455, 0.227272727, 0.5}},
      {"QE-JAN",
       1422662400 /* 2015-01-31 00:00:00 */,
       "month_of_year",
       {-0.5, -0.227272727, 0.0454545455}},
      {"15min",
       1735686900 /* 2024-12-31 23:15:00 */,
       "minute_of_hour",
       {-0.245762712, 0.00847457627, 0.262711864, -0.5}},
      {"15min", 1735686900 /* 2024-12-31 23:15:00 */, "hour_of_day", {0.5, 0.5, 0.5, -0.5}},
      {"15min",
       1735686900 /* 2024-12-31 23:15:00 */,
       "day_of_week",
       {-0.333333333, -0.333333333, -0.333333333, -0.166666667}},
      {"15min", 1735686900 /* 2024-12-31 23:15:00 */, "day_of_month", {0.5, 0.5, 0.5, -0.5}},
      {"15min", 1735686900 /* 2024-12-31 23:15:00 */, "day_of_year", {0.5, 0.5, 0.5, -0.5}},
      {"s",
       1435730398 /* 2015-07-01 05:59:58 */,
       "second_of_minute",
       {0.483050847, 0.5, -0.5, -0.483050847}},
      {"s", 1435730398 /* 2015-07-01 05:59:58 */, "minute_of_hour", {0.5, 0.5, -0.5, -0.5}},
      {"s",
       1435730398 /* 2015-07-01 05:59:58 */,
       "hour_of_day",
       {-0.282608696, -0.282608696, -0.239130435, -0.239130435}},
      {"s",
       1435730398 /* 2015-07-01 05:59:58 */,
       "day_of_week",
       {-0.166666667, -0.166666667, -0.166666667, -0.166666667}},
      {"s", 1435730398 /* 2015-07-01 05:59:58 */, "day_of_month", {-0.5, -0.5, -0.5, -0.5}},
      {"s",
       1435730398 /* 2015-07-01 05:59:58 */,
       "day_of_year",
       {-0.00410958904, -0.00410958904, -0.00410958904, -0.00410958904}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.frequency);
    CAPTURE(c.feature);
    const Frequency frequency = parse_frequency(c.frequency).value();
    const TimeFeature feature = parse_time_feature(c.feature).value();
    CHECK(time_feature_name(feature) == c.feature);
    for (size_t i = 0; i < c.values.size(); ++i) {
      CAPTURE(i);
      const int64_t stamp = add_steps(frequency, c.start_s * 1'000'000, static_cast<int64_t>(i));
      CHECK(time_feature(feature, frequency, stamp) == doctest::Approx(c.values[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("lags, seasons and time features agree with the golden file for every frequency in it") {
  // tests/data/gluonts_frequency.json names the versions that wrote it.
  const std::string path = HEADRACE_SOURCE_DIR "/tests/data/gluonts_frequency.json";
  const Json golden = parse_json(base::read_file(path).value(), path).value();
  for (const Json& c : golden.at("cases").items()) {
    CAPTURE(c.get_string("frequency"));
    const Frequency frequency = parse_frequency(c.get_string("frequency")).value();
    CHECK(season_length(frequency) == c.get_integer("season"));
    std::vector<int> lags;
    for (const Json& lag : c.at("lags").items()) {
      lags.push_back(static_cast<int>(lag.integer()));
    }
    CHECK(default_lags(frequency) == lags);

    const Json::Array& names = c.at("feature_names").items();
    REQUIRE(default_time_features(frequency).size() == names.size());
    // The stamps are every seventh of the grid.
    const Json::Array& moments = c.at("first_moments").items();
    const int64_t start = parse_stamp(moments[0].string());
    for (size_t k = 0; k < names.size(); ++k) {
      CHECK(time_feature_name(default_time_features(frequency)[k]) == names[k].string());
      const Json::Array& values = c.at("features").items()[k].items();
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t stamp = parse_stamp(moments[i].string());
        CHECK(steps_between(frequency, start, stamp) == 7 * static_cast<int64_t>(i));
        CHECK(time_feature(default_time_features(frequency)[k], frequency, stamp) ==
              doctest::Approx(values[i].number()).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("ISO weeks change with the Thursday") {
  // ISO 8601: 2005-01-01 is in week 53 of 2004, 2007-12-31 in week 1 of 2008, 2008-12-28 in
  // week 52.
  const auto week = [](int64_t epoch_s) { return iso_week(epoch_s / 86400); };
  CHECK(week(1104537600) == 53);  // 2005-01-01
  CHECK(week(1199059200) == 1);   // 2007-12-31
  CHECK(week(1230422400) == 52);  // 2008-12-28
  CHECK(week(0) == 1);            // 1970-01-01 was a Thursday
}

TEST_CASE("default time features go with the unit, not with the multiple") {
  const auto names = [](const char* frequency) {
    std::string text;
    for (const TimeFeature feature : default_time_features(parse_frequency(frequency).value())) {
      text += std::string(time_feature_name(feature)) + " ";
    }
    return text;
  };
  CHECK(names("2h") == "hour_of_day day_of_week day_of_month day_of_year ");
  CHECK(names("B") == "day_of_week day_of_month day_of_year ");
  CHECK(names("W") == "day_of_month week_of_year ");
  CHECK(names("QS") == "month_of_year ");
  CHECK(names("YE").empty());
}

TEST_CASE("an unknown time feature is refused with the known ones") {
  const auto result = parse_time_feature("hour");
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message().find("hour_of_day") != std::string::npos);
}
