// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "headrace/forecast/example_series_test.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/quantile_internal.h"
#include "headrace/forecast/sampler_internal.h"

using namespace headrace;
using namespace headrace::forecast;
using doctest::Approx;

namespace {

struct Moments {
  double mean = 0.0;
  double variance = 0.0;
};

Moments moments_of(Distribution distribution, std::vector<float> parameters, double scale,
                   int count) {
  base::Rng rng(12);
  Moments moments;
  double squares = 0.0;
  for (int i = 0; i < count; ++i) {
    const double z = draw_scaled(distribution, parameters.data(), scale, &rng);
    moments.mean += z / count;
    squares += z * z / count;
  }
  moments.variance = squares - moments.mean * moments.mean;
  return moments;
}

}  // namespace

TEST_CASE("draws have the moments of their distribution") {
  constexpr int kCount = 200000;
  // Student-t with df 8, mu 2, sigma 0.5: variance sigma^2 df / (df - 2) = 0.25 * 8 / 6.
  const Moments t = moments_of(Distribution::student_t, {8.0F, 2.0F, 0.5F}, 1.0, kCount);
  CHECK(t.mean == Approx(2.0).epsilon(0.005));
  CHECK(t.variance == Approx(0.25 * 8 / 6).epsilon(0.03));
  const Moments normal = moments_of(Distribution::normal, {-1.0F, 2.0F}, 1.0, kCount);
  CHECK(normal.mean == Approx(-1.0).epsilon(0.02));
  CHECK(normal.variance == Approx(4.0).epsilon(0.03));
  // r = 3, logit b + log(scale): odds 0.5 * 4 = 2; counts have mean r odds = 6 and variance
  // r odds (1 + odds) = 18; the scaled value is a quarter of the count.
  const Moments counts =
      moments_of(Distribution::negative_binomial, {3.0F, std::log(0.5F)}, 4.0, kCount);
  CHECK(4.0 * counts.mean == Approx(6.0).epsilon(0.01));
  CHECK(16.0 * counts.variance == Approx(18.0).epsilon(0.03));
}

TEST_CASE("parameters at their edges give numbers or NaN, never an endless draw") {
  base::Rng rng(1);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto draw = [&](Distribution distribution, std::vector<float> parameters) {
    return draw_scaled(distribution, parameters.data(), 1.0, &rng);
  };
  CHECK(draw(Distribution::negative_binomial, {0.0F, 1.0F}) == 0.0);
  CHECK(std::isnan(draw(Distribution::negative_binomial, {nan, 1.0F})));
  CHECK(std::isnan(draw(Distribution::negative_binomial, {infinity, 1.0F})));
  CHECK(draw(Distribution::negative_binomial, {1.0F, 200.0F}) > 1e80);
  CHECK(std::isnan(draw(Distribution::student_t, {nan, 1.0F, 1.0F})));
  CHECK(std::isnan(draw(Distribution::student_t, {infinity, 1.0F, 1.0F})));
  CHECK(std::isnan(draw(Distribution::student_t, {3.0F, nan, 1.0F})));
  CHECK(std::isnan(draw(Distribution::normal, {1.0F, nan})));
}

TEST_CASE("an item for which the network gives no number fails alone and by name") {
  const Series series = wave("A", 100);
  Model model = train_local(series, quick_options()).value().model;
  model.members[0][0] = std::numeric_limits<float>::quiet_NaN();
  const Forecasts forecasts = predict(model, {&series, 1}, {}).value();
  CHECK(forecasts.items.empty());
  CHECK(forecasts.errors.at(0).error.message().find("gives no number") != std::string::npos);
}

TEST_CASE("a quantile lies at position level * (count - 1)") {
  const std::vector<double> sorted = {1, 2, 4, 8, 16};
  CHECK(sorted_quantile<double>(sorted, 0.0) == 1.0);
  CHECK(sorted_quantile<double>(sorted, 0.5) == 4.0);
  CHECK(sorted_quantile<double>(sorted, 0.6) == Approx(4.0 + 0.4 * 4.0));
  CHECK(sorted_quantile<double>(sorted, 1.0) == 16.0);
  CHECK(sorted_quantile<double>(std::vector<double>{3.0}, 0.3) == 3.0);
}
