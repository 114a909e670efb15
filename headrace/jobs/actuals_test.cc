// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/actuals.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace headrace::jobs {

namespace {

using Values = std::vector<double>;

constexpr int64_t kDay = 86'400'000'000;

/// `count` values of a week's pattern.
Values weeks(int count) {
  Values out;
  for (int i = 0; i < count; ++i) {
    out.push_back(10.0 + (i % 7) * (i % 7));
  }
  return out;
}

/// Values that never come again.
Values walk(int count, double seed = 1.0) {
  Values out;
  for (int i = 0; i < count; ++i) {
    out.push_back(100.0 * std::sin(seed + 0.7 * i * i));
  }
  return out;
}

Values operator+(Values a, const Values& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

forecast::SeriesSet rows(const std::vector<Values>& list) {
  forecast::SeriesSet out;
  out.frequency = forecast::parse_frequency("D").value();
  for (const Values& values : list) {
    forecast::Series series;
    series.id = "row " + std::to_string(out.series.size());
    series.frequency = out.frequency;
    series.target = values;
    out.series.push_back(std::move(series));
  }
  return out;
}

/// The day that each row begins on, 0 for its past's first; or why that is not known.
Result<std::vector<int64_t>> days(const std::vector<Values>& past,
                                  const std::vector<Values>& came) {
  forecast::SeriesSet actuals = rows(came);
  HR_TRY(continue_history(rows(past), &actuals));
  std::vector<int64_t> out;
  for (const forecast::Series& series : actuals.series) {
    out.push_back(series.start_us / kDay);
  }
  return out;
}

std::string refusal(const std::vector<Values>& past, const std::vector<Values>& came) {
  const auto result = days(past, came);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code() == Errc::invalid_argument);
  return result.error().message();
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("rows of what came continue each item's past") {
  using Days = std::vector<int64_t>;
  CHECK(days({walk(40), walk(60, 2.0)}, {walk(10, 3.0), walk(10, 4.0)}).value() == Days{40, 60});
  // A pattern that goes on, beside one row at least that does not repeat its past.
  CHECK(days({weeks(14), walk(40)}, {weeks(7), walk(7, 3.0)}).value() == Days{14, 40});
  // A long pattern, of which few values came.
  CHECK(days({weeks(70)}, {weeks(7)}).value() == Days{70});
  // Zeros tell nothing: their values are the same either way.
  CHECK(days({Values(20, 0.0)}, {Values(20, 0.0)}).value() == Days{20});
  CHECK(days({Values(70, 0.0), walk(70)}, {Values(60, 0.0), walk(60, 2.0)}).value() ==
        Days{70, 70});
}

TEST_CASE("rows that repeat the past, whole or most of it, begin with it") {
  using Days = std::vector<int64_t>;
  const Values past = walk(40);
  const Values zeros(40, 0.0);
  CHECK(days({past}, {past + walk(10, 2.0)}).value() == Days{0});
  CHECK(days({past}, {past}).value() == Days{0});
  CHECK(days({past}, {walk(30)}).value() == Days{0});
  CHECK(days({past, zeros}, {past + walk(10, 2.0), Values(50, 0.0)}).value() == Days{0, 0});
  CHECK(days({past, weeks(14)}, {past + walk(7, 2.0), weeks(21)}).value() == Days{0, 0});
}

TEST_CASE("what could be the past again or go on with its pattern is asked for") {
  for (const auto& [past, came] : {std::pair(weeks(14), weeks(7)), std::pair(weeks(14), weeks(14)),
                                   std::pair(weeks(14), weeks(21))}) {
    const std::string told = refusal({past}, {came});
    CHECK(contains(told, "\"row 0\""));
    CHECK(contains(told, "--actuals-start"));
    const std::string zeros_beside = refusal({past, Values(40, 0.0)}, {came, Values(7, 0.0)});
    CHECK(contains(zeros_beside, "--actuals-start"));
    CHECK_FALSE(contains(zeros_beside, "row 1"));
  }
}

TEST_CASE("a table in which some rows repeat the past and others do not is refused") {
  Values revised = walk(40, 2.0);
  revised[5] += 1.0;
  const std::string told =
      refusal({walk(40), walk(40, 2.0)}, {walk(40) + walk(5, 3.0), revised + walk(5, 4.0)});
  CHECK(contains(told, "\"row 0\""));
  CHECK(contains(told, "\"row 1\""));
  CHECK(contains(told, "--actuals-start"));
}

}  // namespace headrace::jobs
