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

namespace {

/// Runs `body` once per instruction set of this machine.
template <typename Body>
void for_each_instruction_set(const Body& body) {
  const std::string before = instruction_set();
  for (const std::string& name : instruction_sets()) {
    CAPTURE(name);
    REQUIRE(set_instruction_set(name).ok());
    body();
  }
  REQUIRE(set_instruction_set(before).ok());
}

/// Puts a reference batch into a training step.
void fill(const NetworkShape& shape, const reference::Batch<double>& batch, TrainingStep* step) {
  const auto inputs = static_cast<size_t>(shape.inputs());
  for (int t = 0; t < batch.steps; ++t) {
    for (int b = 0; b < batch.batch; ++b) {
      const size_t cell =
          static_cast<size_t>(t) * static_cast<size_t>(batch.batch) + static_cast<size_t>(b);
      float* row = step->input_row(t, b);
      for (size_t k = 0; k < inputs; ++k) {
        row[k] = static_cast<float>(batch.inputs[cell * inputs + k]);
      }
      step->target_row(t)[b] = static_cast<float>(batch.targets[cell]);
      step->observed_row(t)[b] = static_cast<float>(batch.observed[cell]);
    }
  }
  for (int b = 0; b < batch.batch; ++b) {
    step->scales()[b] = static_cast<float>(batch.scales[static_cast<size_t>(b)]);
    for (size_t e = 0; e < shape.embeddings.size(); ++e) {
      step->set_category(b, static_cast<int>(e),
                         batch.categories[static_cast<size_t>(b) * shape.embeddings.size() + e]);
    }
  }
}

/// Rounds what the float network will read, so that both see the same numbers.
void round_to_float(std::vector<double>* values) {
  for (double& value : *values) {
    value = static_cast<double>(static_cast<float>(value));
  }
}

/// The largest difference of two vectors, relative to the largest element.
double difference(std::span<const float> found, const std::vector<double>& expected) {
  double largest = 0.0;
  double off = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    off = std::max(off, std::fabs(static_cast<double>(found[i]) - expected[i]));
  }
  return largest > 0.0 ? off / largest : off;
}

struct Case {
  NetworkShape shape;
  int batch;
  int steps;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto distribution :
       {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
    all.push_back({small_shape(distribution), 3, 4});
    all.push_back({small_shape(distribution, 1), 16, 5});
    all.push_back({small_shape(distribution, 3), 33, 2});
  }
  NetworkShape odd;
  odd.lags = 13;
  odd.other_inputs = 6;
  odd.hidden = 17;
  all.push_back({odd, 37, 9});
  odd.layers = 3;
  odd.embeddings = {{4, 19}};
  all.push_back({odd, 50, 1});
  odd.lags = 0;
  odd.other_inputs = 0;
  all.push_back({odd, 5, 7});
  NetworkShape usual;
  usual.lags = 40;
  usual.other_inputs = 8;
  all.push_back({usual, 32, 13});
  usual.hidden = 1;
  all.push_back({usual, 1, 1});
  return all;
}

}  // namespace

TEST_CASE("the kernels give the reference's loss, gradient and distributions") {
  for_each_instruction_set([] {
    Rng rng(23);
    for (const Case& one : cases()) {
      CAPTURE(distribution_name(one.shape.distribution));
      CAPTURE(one.batch);
      CAPTURE(one.shape.hidden);
      CAPTURE(one.shape.layers);
      const auto parameters = initial_parameters(one.shape, &rng);
      auto batch = random_batch<double>(one.shape, one.batch, one.steps, &rng);
      round_to_float(&batch.inputs);
      round_to_float(&batch.targets);
      round_to_float(&batch.scales);
      const std::vector<double> exact(parameters.begin(), parameters.end());
      std::vector<double> expected(parameters.size());
      reference::Network<double> network(one.shape, exact);
      const StepLoss loss = network.run(&batch, expected);

      auto step = TrainingStep::make(one.shape, one.batch, one.steps).value();
      fill(one.shape, batch, &step);
      std::vector<float> gradient(parameters.size(), 7.0F);
      const StepLoss found = step.loss_and_gradient(parameters, 0.0F, nullptr, gradient);

      CHECK(found.loss == doctest::Approx(loss.loss).epsilon(1e-6));
      CHECK(found.masked_loss == doctest::Approx(loss.masked_loss).epsilon(1e-6));
      CHECK(difference(gradient, expected) < 2e-6);
      const StepLoss again = step.loss(parameters);
      CHECK(again.loss == found.loss);
      const auto count = static_cast<size_t>(parameter_count(one.shape.distribution));
      for (int t = 0; t < one.steps; ++t) {
        for (int b = 0; b < one.batch; ++b) {
          const auto row = step.distribution_row(t, b);
          for (size_t p = 0; p < count; ++p) {
            const size_t cell =
                static_cast<size_t>(t) * static_cast<size_t>(one.batch) + static_cast<size_t>(b);
            CHECK(row[p] ==
                  doctest::Approx(network.distributions()[cell * count + p]).epsilon(3e-6));
          }
        }
      }
    }
  });
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
