// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/series.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "headrace/base/random.h"

using namespace headrace;
using namespace headrace::forecast;

namespace {

constexpr int64_t kHour = 3'600'000'000;
constexpr int64_t kStart = 1'435'708'800'000'000;  // 2015-07-01 00:00:00
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A long table that owns its columns.
struct Table {
  std::vector<std::string> ids;
  std::vector<int32_t> item;
  std::vector<int64_t> stamp_us;
  std::vector<double> target;
  std::vector<std::string> stores = {"north", "south"};
  std::vector<int32_t> store;
  std::vector<double> price;
  bool with_store = false;
  bool with_price = false;

  void add(int32_t which, int64_t stamp, double value, double price_value = 1.0, int32_t code = 0) {
    item.push_back(which);
    stamp_us.push_back(stamp);
    target.push_back(value);
    price.push_back(price_value);
    store.push_back(code);
  }
  LongRows rows() const {
    LongRows rows{ids, item, stamp_us, target, {}, {}, {}};
    if (with_store) {
      rows.categories.push_back({"store", stores, store});
    }
    if (with_price) {
      rows.dynamic_reals.push_back({"price", price});
    }
    return rows;
  }
};

Table hourly(int count) {
  Table table;
  table.ids = {"A"};
  for (int i = 0; i < count; ++i) {
    table.add(0, kStart + i * kHour, i + 1.0);
  }
  return table;
}

std::string first_error(const Table& table, const BuildOptions& options = {}) {
  const auto set = build_series(table.rows(), options);
  REQUIRE(set.ok());
  REQUIRE(set->errors.size() == 1);
  CHECK(set->errors[0].error.code() == Errc::invalid_argument);
  return set->errors[0].error.message();
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("rows in any order give the same series") {
  Table table = hourly(100);
  table.ids.push_back("B");
  for (int i = 0; i < 50; ++i) {
    table.add(1, kStart + (i + 7) * kHour, -i);
  }
  base::Rng rng(11);
  Table mixed = table;
  for (size_t i = mixed.item.size() - 1; i > 0; --i) {
    const size_t j = rng.below(i + 1);
    std::swap(mixed.item[i], mixed.item[j]);
    std::swap(mixed.stamp_us[i], mixed.stamp_us[j]);
    std::swap(mixed.target[i], mixed.target[j]);
  }
  const SeriesSet sorted = build_series(table.rows(), {}).value();
  const SeriesSet shuffled = build_series(mixed.rows(), {}).value();
  REQUIRE(sorted.series.size() == 2);
  CHECK(sorted.frequency.name() == "h");
  CHECK(sorted.series[1].start_us == kStart + 7 * kHour);
  CHECK(sorted.series[1].target[49] == -49.0);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(shuffled.series[i].id == sorted.series[i].id);
    CHECK(shuffled.series[i].start_us == sorted.series[i].start_us);
    CHECK(shuffled.series[i].target == sorted.series[i].target);
  }
  CHECK(mentions(sorted.notes.at(0), "frequency is h"));
}

TEST_CASE("gaps become missing values and are counted") {
  Table table = hourly(10);
  table.stamp_us.back() += 3 * kHour;
  table.target[4] = kNaN;
  const SeriesSet set = build_series(table.rows(), {}).value();
  const std::vector<double>& target = set.series.at(0).target;
  REQUIRE(target.size() == 13);
  CHECK(target[8] == 9.0);
  CHECK(std::isnan(target[4]));
  CHECK(std::isnan(target[9]));
  CHECK(std::isnan(target[11]));
  CHECK(target[12] == 10.0);
  CHECK(mentions(set.notes.back(), "3 steps of 1 items have no row"));
}

TEST_CASE("duplicate stamps are an error that names item and stamp, or are resolved on request") {
  Table table = hourly(10);
  table.add(0, kStart + 4 * kHour, 15.0);
  const std::string message = first_error(table);
  CHECK(mentions(message, "item \"A\""));
  CHECK(mentions(message, "2015-07-01 04:00:00"));
  CHECK(mentions(message, "rows 4 and 10"));
  CHECK(mentions(message, "UTC"));

  BuildOptions options;
  const auto resolved = [&](Duplicates rule) {
    options.duplicates = rule;
    return build_series(table.rows(), options).value().series.at(0).target.at(4);
  };
  CHECK(resolved(Duplicates::sum) == 20.0);
  CHECK(resolved(Duplicates::mean) == 10.0);
  CHECK(resolved(Duplicates::last) == 15.0);
  table.target.back() = kNaN;  // a null beside a value does not count
  CHECK(resolved(Duplicates::sum) == 5.0);
  CHECK(resolved(Duplicates::mean) == 5.0);
  CHECK(resolved(Duplicates::last) == 5.0);
}

TEST_CASE("a stamp off the grid is an error with the grid around it") {
  Table table = hourly(10);
  table.stamp_us[6] += kHour / 4;
  const std::string message = first_error(table);
  CHECK(mentions(message, "2015-07-01 06:15:00 is off the grid"));
  CHECK(mentions(message, "2015-07-01 06:00:00 and 2015-07-01 07:00:00"));

  Table daily;
  daily.ids = {"A"};
  for (int i = 0; i < 10; ++i) {
    daily.add(0, kStart + i * 24 * kHour + (i == 9 ? kHour : 0), 1.0);
  }
  CHECK(mentions(first_error(daily), "daylight saving"));
}

TEST_CASE("one bad item does not stop the others") {
  Table table = hourly(10);
  table.ids = {"A", "nulls", "infinite", "no stamp", "empty", "C"};
  for (int i = 0; i < 10; ++i) {
    table.add(1, kStart + i * kHour, kNaN);
    table.add(2, kStart + i * kHour, i == 3 ? -kInfinity : 1.0);
    table.add(3, i == 5 ? kNoStamp : kStart + i * kHour, 1.0);
    table.add(5, kStart + i * kHour, 2.0);
  }
  const SeriesSet set = build_series(table.rows(), {}).value();
  REQUIRE(set.series.size() == 2);
  CHECK(set.series[0].id == "A");
  CHECK(set.series[1].id == "C");
  REQUIRE(set.errors.size() == 4);
  CHECK(mentions(set.errors[0].error.message(), "none of 10 target values is observed"));
  SeriesSet left = set;
  CHECK(need_series(SeriesSet{}, "t").ok());
  left.series.clear();
  const auto needed = need_series(left, "t.csv");
  REQUIRE(!needed.ok());
  CHECK(mentions(needed.error().message(), "t.csv: none of " + std::to_string(set.errors.size()) +
                                               " items can be used; the first"));
  CHECK(mentions(needed.error().message(), "none of 10 target values is observed"));
  CHECK(mentions(set.errors[1].error.message(), "infinite at 2015-07-01 03:00:00"));
  CHECK(mentions(set.errors[2].error.message(), "has no time stamp"));
  CHECK(mentions(set.errors[3].error.message(), "there are no rows"));
}

TEST_CASE("an item with few observed values is noted") {
  Table table = hourly(10);
  table.stamp_us.back() = kStart + 300 * kHour;
  const SeriesSet set = build_series(table.rows(), {}).value();
  CHECK(mentions(set.notes.back(), "have no row"));
  CHECK(mentions(set.notes.at(1), "item \"A\": only 3.3 % of 301"));
  REQUIRE(set.series.at(0).notes.size() == 2);
  CHECK(mentions(set.series[0].notes[0], "only 3.3 % of 301"));
  CHECK(mentions(set.series[0].notes[1], "291 steps have no row"));
}

TEST_CASE("rows without a target after the last value are the future, however many there are") {
  Table table = hourly(10);
  table.with_price = true;
  for (int i = 10; i < 40; ++i) {
    table.add(0, kStart + i * kHour, kNaN, i);
  }
  SeriesSet set = build_series(table.rows(), {}).value();
  CHECK(set.series.at(0).length() == 10);
  REQUIRE(set.series[0].dynamic_reals.at(0).size() == 40);
  CHECK(set.series[0].dynamic_reals[0][39] == 39.0);

  table.with_price = false;
  set = build_series(table.rows(), {}).value();
  CHECK(set.series.at(0).length() == 10);
  CHECK(mentions(set.notes.back(), "30 rows without a target"));
  table.target[39] = 1.0;  // what has a value after it is missing
  CHECK(build_series(table.rows(), {}).value().series.at(0).length() == 40);
}

TEST_CASE("missing covariates are filled with the value before, at the start with the first") {
  Table table = hourly(5);
  table.with_price = true;
  table.price = {kNaN, 2.0, kNaN, kNaN, 5.0};
  const SeriesSet set = build_series(table.rows(), {}).value();
  CHECK(set.series.at(0).dynamic_reals.at(0) == std::vector<double>{2.0, 2.0, 2.0, 2.0, 5.0});
  CHECK(mentions(set.notes.back(), "3 missing values of dynamic covariates"));
  table.price.assign(5, kNaN);
  CHECK(mentions(first_error(table), "\"price\" has no value"));
}

TEST_CASE("a static covariate that changes within an item is an error with both values") {
  Table table = hourly(5);
  table.with_store = true;
  CHECK(build_series(table.rows(), {}).value().series.at(0).categories.at(0) == "north");
  table.store[3] = -1;  // null rows are passed over
  CHECK(build_series(table.rows(), {}).value().series.at(0).categories.at(0) == "north");
  table.store[3] = 1;
  CHECK(mentions(first_error(table), "changes from \"north\" to \"south\""));
}

TEST_CASE("columns of different lengths and indices out of range are errors of the table") {
  Table table = hourly(5);
  table.target.pop_back();
  CHECK_FALSE(build_series(table.rows(), {}).ok());
  table = hourly(5);
  table.item[2] = 1;
  CHECK(mentions(build_series(table.rows(), {}).error().message(), "row 2"));
  table = hourly(1);
  CHECK(mentions(build_series(table.rows(), {}).error().message(), "two different time stamps"));
}

TEST_CASE("a stamp absurdly far away is an error, not an allocation") {
  Table table = hourly(5);
  table.stamp_us.back() = kStart + 200'000 * kHour;
  const std::string message = first_error(table);
  CHECK(mentions(message, "item \"A\""));
  CHECK(mentions(message, "2038-04-24 08:00:00"));  // 200,000 hours after the start
  CHECK(mentions(message, "2015-07-01 00:00:00"));
  CHECK(mentions(message, "5 rows may span 105000"));
}

TEST_CASE("stamps at the ends of what 64 bits hold are errors, whatever the frequency") {
  for (const char* frequency : {"s", "h", "D", "B", "W", "ME", "QS", "1000000YE"}) {
    CAPTURE(frequency);
    BuildOptions options;
    options.frequency = parse_frequency(frequency).value();
    for (const int64_t stamp : {INT64_MIN + 1, INT64_MAX}) {
      Table table = hourly(5);
      table.stamp_us.back() = stamp;
      CHECK(mentions(first_error(table, options), "outside the years 1 to 9999"));
    }
  }
}

TEST_CASE("names of duplicate rules are checked") {
  CHECK(parse_duplicates("mean").value() == Duplicates::mean);
  CHECK(mentions(parse_duplicates("max").error().message(), "error, sum, mean or last"));
}
