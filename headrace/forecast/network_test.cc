// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/network.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/forecast/network_reference.h"

using headrace::Errc;
using headrace::base::Rng;
using namespace headrace::forecast;

namespace {

NetworkShape small_shape(Distribution distribution, int layers = 2) {
  NetworkShape shape;
  shape.lags = 3;
  shape.embeddings = {{3, 2}, {2, 1}};
  shape.other_inputs = 2;
  shape.hidden = 5;
  shape.layers = layers;
  shape.distribution = distribution;
  return shape;
}

template <typename Real>
reference::Batch<Real> random_batch(const NetworkShape& shape, int batch, int steps, Rng* rng) {
  auto b = reference::Batch<Real>::make(shape, batch, steps);
  for (Real& x : b.inputs) {
    x = static_cast<Real>(rng->normal());
  }
  for (size_t i = 0; i < b.categories.size(); ++i) {
    const auto& embedding = shape.embeddings[i % shape.embeddings.size()];
    b.categories[i] = static_cast<int>(rng->below(static_cast<uint64_t>(embedding.cardinality)));
  }
  for (Real& scale : b.scales) {
    scale = static_cast<Real>(std::exp(rng->normal()));
  }
  for (size_t i = 0; i < b.targets.size(); ++i) {
    b.targets[i] =
        shape.distribution == Distribution::negative_binomial
            ? static_cast<Real>(rng->poisson(4.0))
            : static_cast<Real>(rng->normal()) * b.scales[i % static_cast<size_t>(batch)];
    b.observed[i] = rng->uniform() < 0.8 ? Real{1} : Real{0};
  }
  return b;
}

}  // namespace

TEST_CASE("the reference's gradient is the slope of its loss") {
  for (const auto distribution :
       {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
    CAPTURE(distribution_name(distribution));
    const NetworkShape shape = small_shape(distribution);
    Rng rng(11);
    const auto initial = initial_parameters(shape, &rng);
    std::vector<double> parameters(initial.begin(), initial.end());
    auto batch = random_batch<double>(shape, 3, 4, &rng);
    for (int i = 0; i < 3 * 4 * shape.hidden; ++i) {
      batch.masks.push_back(rng.uniform() < 0.3 ? 0.0 : 1.0 / 0.7);
    }
    std::vector<double> gradient(parameters.size());
    reference::Network<double>(shape, parameters).run(&batch, gradient);
    for (size_t i = 0; i < parameters.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double at = parameters[i];
      parameters[i] = at + kStep;
      const double above = reference::Network<double>(shape, parameters).run(&batch, {}).loss;
      parameters[i] = at - kStep;
      const double below = reference::Network<double>(shape, parameters).run(&batch, {}).loss;
      parameters[i] = at;
      CAPTURE(i);
      CHECK(gradient[i] ==
            doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-6).scale(1e-2));
    }
  }
}

TEST_CASE("M4 Hourly's default shape has the reference's 27 644 parameters") {
  NetworkShape shape;
  shape.lags = 40;
  shape.embeddings = {{1, 1}};
  shape.other_inputs = 7;
  CHECK(shape.inputs() == 48);
  CHECK(parameter_total(shape) == 27644);
}

TEST_CASE("a training step and a decoder agree on the distributions") {
  const NetworkShape shape = small_shape(Distribution::student_t);
  Rng rng(5);
  const auto parameters = initial_parameters(shape, &rng);
  const auto batch = random_batch<float>(shape, 4, 6, &rng);
  auto step = TrainingStep::make(shape, 4, 6).value();
  auto decoder = Decoder::make(shape, 4, parameters).value();
  decoder.reset(4);
  const auto inputs = static_cast<size_t>(shape.inputs());
  for (int t = 0; t < 6; ++t) {
    for (int b = 0; b < 4; ++b) {
      const float* row = &batch.inputs[static_cast<size_t>(t * 4 + b) * inputs];
      std::copy(row, row + inputs, step.input_row(t, b));
    }
  }
  step.loss(parameters);
  for (int t = 0; t < 6; ++t) {
    for (int b = 0; b < 4; ++b) {
      std::copy(step.input_row(t, b), step.input_row(t, b) + inputs, decoder.input_row(b));
    }
    decoder.step();
    for (int b = 0; b < 4; ++b) {
      const auto expected = step.distribution_row(t, b);
      for (int p = 0; p < 3; ++p) {
        CHECK(decoder.distributions()[static_cast<size_t>(b * 3 + p)] ==
              doctest::Approx(expected[static_cast<size_t>(p)]).epsilon(1e-5));
      }
    }
  }
}
