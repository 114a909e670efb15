// SPDX-License-Identifier: Apache-2.0
// The network against its plain form in double (network_reference.h), which is checked against
// finite differences here; gluonts_test.cc has torch's and GluonTS's own numbers.
#include "headrace/forecast/network.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/forecast/kernels.h"
#include "headrace/forecast/network_reference.h"
#include "headrace/forecast/network_testing.h"

namespace headrace::forecast {
namespace {

using base::Rng;
using reference::Batch;

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

struct Case {
  NetworkShape shape;
  int batch;
  int steps;
};

/// Batches that fill no block, exactly one, one and a bit; odd inputs and hidden sizes; one to
/// three layers; no inputs but an embedding; a single step.
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

std::vector<double> to_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

/// The masks that a training step with this generator would apply.
std::vector<double> dropout_masks(const Case& one, float rate, Rng rng) {
  const uint64_t seed = rng.next();
  const auto hidden = static_cast<size_t>(one.shape.hidden);
  std::vector<double> masks;
  for (int cell = 0; cell < (one.shape.layers - 1) * one.steps; ++cell) {
    for (int first = 0; first < one.batch; first += 32) {
      const auto rows = static_cast<size_t>(std::min(32, one.batch - first));
      std::vector<uint8_t> keep(hidden * 4 + 8);
      DropoutArgs args;
      args.key = base::derive_seed(seed, static_cast<uint64_t>(cell));
      args.threshold = dropout_threshold(rate);
      args.first_row = static_cast<uint32_t>(first);
      args.hidden = hidden;
      args.width = rows <= 16 ? 16 : 32;
      args.keep = keep.data();
      kernels().lstm.dropout(args);
      for (size_t row = 0; row < rows; ++row) {
        for (size_t unit = 0; unit < hidden; ++unit) {
          const size_t bit = unit * args.width + row;
          const bool up = (keep[bit / 8] >> (bit % 8) & 1) != 0;
          masks.push_back(up ? static_cast<double>(1.0F / (1.0F - rate)) : 0.0);
        }
      }
    }
  }
  return masks;
}

void check_against_reference(const Case& one, float dropout) {
  CAPTURE(distribution_name(one.shape.distribution));
  CAPTURE(one.batch);
  CAPTURE(one.shape.hidden);
  CAPTURE(one.shape.layers);
  Rng rng(23);
  const auto parameters = initial_parameters(one.shape, &rng);
  Batch batch = reference::random_batch(one.shape, one.batch, one.steps, &rng);
  if (dropout > 0.0F) {
    batch.masks = dropout_masks(one, dropout, rng);
  }
  const auto expected = reference::run(one.shape, to_double(parameters), batch);

  auto step = TrainingStep::make(one.shape, one.batch, one.steps).value();
  reference::fill(one.shape, batch, &step);
  std::vector<float> gradient(parameters.size(), 7.0F);
  const StepLoss found = step.loss_and_gradient(parameters, dropout, &rng, gradient);

  CHECK(found.loss == doctest::Approx(expected.loss.loss).epsilon(1e-6));
  CHECK(found.masked_loss == doctest::Approx(expected.loss.masked_loss).epsilon(1e-6));
  CHECK(reference::difference(gradient, expected.gradient) < 2e-6);
  std::vector<float> distributions;
  for (int t = 0; t < one.steps; ++t) {
    for (int b = 0; b < one.batch; ++b) {
      const auto row = step.distribution_row(t, b);
      distributions.insert(distributions.end(), row.begin(), row.end());
    }
  }
  CHECK(reference::difference(distributions, expected.distributions) < 1e-6);
  if (dropout == 0.0F) {
    CHECK(step.loss(parameters).loss == found.loss);
  }
}

TEST_CASE("the reference's gradient is the slope of its loss") {
  for (const auto distribution :
       {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
    CAPTURE(distribution_name(distribution));
    const NetworkShape shape = small_shape(distribution);
    Rng rng(11);
    auto parameters = to_double(initial_parameters(shape, &rng));
    Batch batch = reference::random_batch(shape, 3, 4, &rng);
    for (int i = 0; i < 3 * 4 * shape.hidden; ++i) {
      batch.masks.push_back(rng.uniform() < 0.3 ? 0.0 : 1.0 / 0.7);
    }
    const auto outcome = reference::run(shape, parameters, batch);
    for (size_t i = 0; i < parameters.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double at = parameters[i];
      parameters[i] = at + kStep;
      const double above = reference::run(shape, parameters, batch).loss.loss;
      parameters[i] = at - kStep;
      const double below = reference::run(shape, parameters, batch).loss.loss;
      parameters[i] = at;
      CAPTURE(i);
      CHECK(outcome.gradient[i] ==
            doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-6).scale(1e-2));
    }
  }
}

TEST_CASE("every instruction set gives the reference's loss, gradient and distributions") {
  for_each_instruction_set([] {
    for (const Case& one : cases()) {
      check_against_reference(one, 0.0F);
    }
  });
}

TEST_CASE("dropout acts between layers, forward and backward alike") {
  for_each_instruction_set([] {
    for (const Case& one : cases()) {
      check_against_reference(one, 0.4F);
    }
  });
}

TEST_CASE("M4 Hourly's default shape has GluonTS's 27 644 parameters") {
  NetworkShape shape;
  shape.lags = 40;
  shape.embeddings = {{1, 1}};
  shape.other_inputs = 7;
  CHECK(shape.inputs() == 48);
  CHECK(parameter_total(shape) == 27644);
}

TEST_CASE("initial parameters fill their range and depend on the seed alone") {
  NetworkShape shape;
  shape.lags = 8;
  shape.embeddings = {{300, 30}};
  Rng rng(3);
  const auto parameters = initial_parameters(shape, &rng);
  Rng same(3);
  CHECK(parameters == initial_parameters(shape, &same));
  // +-1/sqrt(40) = 0.158 for all but the 9 000 numbers of the embedding, whose sample variance has
  // a standard error of sqrt(2/9000) = 0.015.
  double squares = 0.0;
  float largest = 0.0F;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i < 9000) {
      squares += static_cast<double>(parameters[i] * parameters[i]);
    } else {
      largest = std::max(largest, std::fabs(parameters[i]));
    }
  }
  CHECK(squares / 9000 == doctest::Approx(1.0).epsilon(0.075));
  CHECK(largest <= 0.15812F);
  CHECK(largest > 0.158F);
}

TEST_CASE("the decoder walks the steps of training, also after its rows are repeated") {
  for_each_instruction_set([] {
    for (const Case& one : cases()) {
      CAPTURE(one.batch);
      Rng rng(5);
      const auto parameters = initial_parameters(one.shape, &rng);
      const Batch batch = reference::random_batch(one.shape, one.batch, one.steps, &rng);
      auto step = TrainingStep::make(one.shape, one.batch, one.steps).value();
      reference::fill(one.shape, batch, &step);
      step.loss(parameters);
      constexpr int kCopies = 3;
      auto decoder = Decoder::make(one.shape, one.batch * kCopies + 5, parameters).value();
      decoder.reset(one.batch);
      const auto features = one.shape.embeddings.size();
      for (size_t i = 0; i < batch.categories.size(); ++i) {
        decoder.set_category(static_cast<int>(i / features), static_cast<int>(i % features),
                             batch.categories[i]);
      }
      int copies = 1;
      const auto count = static_cast<size_t>(parameter_count(one.shape.distribution));
      for (int t = 0; t < one.steps; ++t) {
        if (t == one.steps / 2) {
          decoder.repeat(kCopies);
          copies = kCopies;
        }
        REQUIRE(decoder.rows() == one.batch * copies);
        for (int row = 0; row < decoder.rows(); ++row) {
          std::copy_n(step.input_row(t, row / copies), one.shape.inputs(), decoder.input_row(row));
        }
        decoder.step();
        for (int row = 0; row < decoder.rows(); ++row) {
          auto expected = step.distribution_row(t, row / copies);
          if (one.shape.distribution == Distribution::negative_binomial) {
            expected[1] -= static_cast<float>(
                std::log(batch.scales[static_cast<size_t>(row / copies)]));  // training adds it
          }
          for (size_t p = 0; p < count; ++p) {
            CHECK(decoder.distributions()[static_cast<size_t>(row) * count + p] ==
                  doctest::Approx(expected[p]).epsilon(2e-6).scale(1.0));
          }
        }
      }
    }
  });
}

TEST_CASE("Adam follows a sequence worked out by hand") {
  // One parameter at 1, gradients 0.5 and -1, rate 0.1, beta 0.9 and 0.999, no decay, no clipping.
  // Step 1: m = 0.05, v = 0.00025; corrected 0.5 and 0.25; moved by 0.1 * 0.5 / 0.5 = 0.1.
  // Step 2: m = 0.9 * 0.05 - 0.1 = -0.055, v = 0.999 * 0.00025 + 0.001 = 0.00124975; corrected
  // m / 0.19 = -0.2894737, v / 0.001999 = 0.6251876; moved by 0.1 * -0.2894737 / 0.7906881.
  for_each_instruction_set([] {
    for (const size_t count : {1U, 17U, 64U}) {
      Adam adam(static_cast<int64_t>(count), {.weight_decay = 0.0, .clip_norm = 0.0});
      std::vector<float> parameters(count, 1.0F);
      std::vector<float> gradient(count, 0.5F);
      const double norm = adam.step(parameters, gradient, 0.1);
      CHECK(norm == doctest::Approx(0.5 * std::sqrt(static_cast<double>(count))));
      CHECK(parameters.back() == doctest::Approx(0.9).epsilon(1e-6));
      std::fill(gradient.begin(), gradient.end(), -1.0F);
      adam.step(parameters, gradient, 0.1);
      for (const float parameter : parameters) {
        CHECK(parameter == doctest::Approx(0.9 + 0.1 * 0.2894737 / 0.7906881).epsilon(1e-6));
      }
      CHECK(adam.steps() == 2);
    }
  });
}

TEST_CASE("Adam clips by torch's rule and adds the decay after it") {
  // Norm 5 (3, 4), limit 1: factor 1 / (5 + 1e-6). With decay 0.5 on a parameter of 2, g = 3/5 + 1;
  // the first step moves by rate * g / (|g| + 1e-8), that is by the rate, against g's sign.
  for_each_instruction_set([] {
    Adam adam(2, {.weight_decay = 0.5, .clip_norm = 1.0});
    std::vector<float> parameters = {2.0F, -8.0F};
    std::vector<float> gradient = {3.0F, 4.0F};
    CHECK(adam.step(parameters, gradient, 0.01) == doctest::Approx(5.0));
    CHECK(gradient[0] == doctest::Approx(0.6).epsilon(1e-6));
    CHECK(gradient[1] == doctest::Approx(0.8).epsilon(1e-6));
    CHECK(parameters[0] == doctest::Approx(1.99));
    CHECK(parameters[1] == doctest::Approx(-7.99));  // 0.8 - 0.5 * 8 is negative
  });
}

TEST_CASE("Adam leaves everything as it was when the norm is not finite") {
  Adam adam(3);
  std::vector<float> parameters = {1.0F, 2.0F, 3.0F};
  const auto before = parameters;
  std::vector<float> gradient = {1.0F, std::nanf(""), 1.0F};
  CHECK(std::isnan(adam.step(parameters, gradient, 0.1)));
  gradient[1] = INFINITY;
  CHECK(std::isinf(adam.step(parameters, gradient, 0.1)));
  CHECK(parameters == before);
  CHECK(adam.steps() == 0);
}

}  // namespace
}  // namespace headrace::forecast
