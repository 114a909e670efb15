// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/naive.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "headrace/base/random.h"

using namespace headrace;
using namespace headrace::forecast;
using doctest::Approx;
using Values = std::vector<double>;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("the last value is the last observed one") {
  CHECK(last_value(Values{1, 2, 3}, 2) == Values{3, 3});
  CHECK(last_value(Values{1, 2, kNaN}, 2) == Values{2, 2});
  CHECK(last_value(Values{kNaN}, 1) == Values{0});
}

TEST_CASE("seasonal naive repeats the last season and reaches back over missing values") {
  CHECK(seasonal_naive(Values{1, 2, 3, 4, 5, 6}, 5, 3) == Values{4, 5, 6, 4, 5});
  CHECK(seasonal_naive(Values{1, 2, 3, 4, kNaN, 6}, 3, 3) == Values{4, 2, 6});
  CHECK(seasonal_naive(Values{1, 2}, 3, 3) == Values{2, 2, 2});  // less than a season
}

TEST_CASE("Naive2 on a pure multiplicative season continues level and season") {
  // Values 10 * index with indices 0.5 1.5 1.0 (mean 1): the decomposition finds them exactly.
  Values training;
  for (int i = 0; i < 12; ++i) {
    training.push_back(10.0 * (i % 3 == 0 ? 0.5 : i % 3 == 1 ? 1.5 : 1.0));
  }
  const Values forecast = naive2(training, 4, 3);
  CHECK(forecast[0] == Approx(5.0));
  CHECK(forecast[1] == Approx(15.0));
  CHECK(forecast[2] == Approx(10.0));
  CHECK(forecast[3] == Approx(5.0));
}

TEST_CASE("Naive2 without a season, or with too few of them, is the last value") {
  base::Rng rng(5);
  Values noise;
  for (int i = 0; i < 60; ++i) {
    noise.push_back(rng.normal());
  }
  CHECK(naive2(noise, 2, 6) == Values{noise.back(), noise.back()});
  CHECK(naive2(Values{1, 9, 1, 9, 1}, 1, 2) == Values{1});
  CHECK(naive2(Values(50, 3.0), 2, 6) == Values{3, 3});
}

TEST_CASE("the normal quantile agrees with tables") {
  // Abramowitz & Stegun, table 26.5 and 26.1.
  CHECK(normal_quantile(0.5) == Approx(0.0).epsilon(1e-12));
  CHECK(normal_quantile(0.975) == Approx(1.959963984540054).epsilon(1e-10));
  CHECK(normal_quantile(0.1) == Approx(-1.2815515655446004).epsilon(1e-10));
  CHECK(normal_quantile(0.001) == Approx(-3.090232306167813).epsilon(1e-10));
}

TEST_CASE("the spread of a naive forecast is that of the seasonal errors in the past") {
  // Differences at lag 1 of 0 1 3 6 10 ... are 1 2 3 ... 20: quantile q at position q * 19 is 1 +
  // 19 q.
  Values training = {0};
  for (int i = 1; i <= 20; ++i) {
    training.push_back(training.back() + i);
  }
  const Values point = {100.0, 100.0};
  const NaiveSpread spread(training, point, 1);
  CHECK(spread.quantile(0, 0.5) == Approx(100 + 10.5));
  CHECK(spread.quantile(0, 0.0) == Approx(101));
  CHECK(spread.quantile(1, 0.5) == Approx(100 + 21));  // lag 2: 3 5 7 ... 39
}

TEST_CASE("with few errors the spread is normal, without any it is the point") {
  const NaiveSpread few(Values{0, 2, 0, 2, 0}, Values{0, 0, 0},
                        1);  // errors +-2, root mean square 2
  CHECK(few.quantile(0, 0.975) == Approx(2 * 1.959964).epsilon(1e-6));
  CHECK(few.quantile(2, 0.975) == Approx(std::sqrt(3.0) * 2 * 1.959964).epsilon(1e-6));
  const NaiveSpread none(Values{5}, Values{5}, 1);
  CHECK(none.quantile(0, 0.9) == 5.0);
}
