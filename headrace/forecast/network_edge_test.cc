// SPDX-License-Identifier: Apache-2.0
// The network on what is rare or wrong: nothing observed, numbers that are none, extreme scales;
// and that its bits depend on nothing they should not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/base/thread.h"
#include "headrace/forecast/network.h"
#include "headrace/forecast/network_reference.h"
#include "headrace/forecast/network_testing.h"

namespace headrace::forecast {
namespace {

using base::Rng;
using reference::Batch;

constexpr int kBatch = 20;
constexpr int kSteps = 6;

NetworkShape shape_of(Distribution distribution) {
  NetworkShape shape;
  shape.lags = 7;
  shape.embeddings = {{3, 2}};
  shape.other_inputs = 4;
  shape.hidden = 12;
  shape.distribution = distribution;
  return shape;
}

/// A batch with everything around it.
struct Scene {
  explicit Scene(Distribution distribution, uint64_t seed = 1)
      : shape(shape_of(distribution)),
        rng(seed),
        parameters(initial_parameters(shape, &rng)),
        batch(reference::random_batch(shape, kBatch, kSteps, &rng)),
        step(TrainingStep::make(shape, kBatch, kSteps).value()),
        gradient(parameters.size()) {
    reference::fill(shape, batch, &step);
  }
  StepLoss run(float dropout = 0.0F) {
    Rng dice(9);
    return step.loss_and_gradient(parameters, dropout, &dice, gradient);
  }

  NetworkShape shape;
  Rng rng;
  std::vector<float> parameters;
  Batch batch;
  TrainingStep step;
  std::vector<float> gradient;
};

template <typename Body>
void for_each_scene(const Body& body) {
  for_each_instruction_set([&] {
    for (const auto distribution :
         {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
      INFO(distribution_name(distribution));
      body(Scene(distribution));
    }
  });
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

TEST_CASE("with nothing observed loss and gradient are 0, whatever the targets") {
  for_each_scene([](Scene scene) {
    for (int t = 0; t < kSteps; ++t) {
      std::fill_n(scene.step.observed_row(t), kBatch, 0.0F);
      std::fill_n(scene.step.target_row(t), kBatch, std::numeric_limits<float>::max());
    }
    const StepLoss loss = scene.run();
    CHECK(loss.loss == 0.0);
    CHECK(loss.masked_loss == 0.0);
    CHECK(std::all_of(scene.gradient.begin(), scene.gradient.end(),
                      [](float g) { return g == 0.0F; }));
  });
}

TEST_CASE("NaN and infinity in inputs, parameters or observed targets reach loss and gradient") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for_each_scene([&](Scene scene) {
    std::fill_n(scene.step.observed_row(kSteps - 1), kBatch, 1.0F);
    REQUIRE(std::isfinite(scene.run().loss));
    for (const float bad : {kNan, kInfinity}) {
      CAPTURE(bad);
      float& target = scene.step.target_row(kSteps - 1)[3];
      const float target_before = target;
      target = bad;
      CHECK_FALSE(std::isfinite(scene.run().loss));
      CHECK_FALSE(all_finite(scene.gradient));
      target = target_before;
    }
    // An infinite input is what saturates every gate, as in torch; NaN spreads.
    float& input = scene.step.input_row(2, 3)[5];
    const float input_before = input;
    input = kNan;
    CHECK(std::isnan(scene.run().loss));
    CHECK_FALSE(all_finite(scene.gradient));
    input = input_before;
    for (const size_t at : {size_t{0}, scene.parameters.size() / 2, scene.parameters.size() - 1}) {
      CAPTURE(at);
      const float before = scene.parameters[at];
      scene.parameters[at] = kNan;
      // The first parameter belongs to category 0, which some window has.
      CHECK(std::isnan(scene.run().loss));
      scene.parameters[at] = before;
    }
    CHECK(std::isfinite(scene.run().loss));
    CHECK(all_finite(scene.gradient));
  });
}

TEST_CASE("what is not observed may be anything, even NaN") {
  for_each_scene([](Scene scene) {
    const StepLoss before = scene.run();
    const auto gradient = scene.gradient;
    for (int t = 0; t < kSteps; ++t) {
      for (int b = 0; b < kBatch; ++b) {
        if (scene.step.observed_row(t)[b] == 0.0F) {
          scene.step.target_row(t)[b] = std::nanf("");
        }
      }
    }
    CHECK(scene.run().loss == before.loss);
    CHECK(scene.gradient == gradient);
  });
}

TEST_CASE("scales from 1e-12 to 1e12 shift the loss by their logarithm and nothing else") {
  for_each_instruction_set([] {
    for (const auto distribution : {Distribution::student_t, Distribution::normal}) {
      Scene scene(distribution);
      const StepLoss before = scene.run();
      const auto gradient = scene.gradient;
      double seen = 0.0;
      for (const double observed : scene.batch.observed) {
        seen += observed;
      }
      // 2^40 = 1.1e12: a power of two changes no digit of target / scale.
      for (const int exponent : {-40, 40}) {
        CAPTURE(exponent);
        for (int t = 0; t < kSteps; ++t) {
          for (int b = 0; b < kBatch; ++b) {
            scene.step.target_row(t)[b] = std::ldexp(scene.step.target_row(t)[b], exponent);
          }
        }
        for (int b = 0; b < kBatch; ++b) {
          scene.step.scales()[b] = std::ldexp(scene.step.scales()[b], exponent);
        }
        const StepLoss after = scene.run();
        CHECK(after.masked_loss ==
              doctest::Approx(before.masked_loss + exponent * std::log(2.0)).epsilon(1e-12));
        CHECK(scene.gradient == gradient);
        reference::fill(scene.shape, scene.batch, &scene.step);
      }
      CHECK(seen > 0.0);
    }
  });
}

TEST_CASE("extreme inputs saturate gates and stay finite") {
  for_each_scene([](Scene scene) {
    for (int t = 0; t < kSteps; ++t) {
      for (int b = 0; b < kBatch; ++b) {
        float* row = scene.step.input_row(t, b);
        for (int k = 0; k < scene.shape.inputs(); ++k) {
          row[k] *= k % 2 == 0 ? 1e10F : 1e-30F;
        }
      }
    }
    CHECK(std::isfinite(scene.run().loss));
    CHECK(all_finite(scene.gradient));
  });
}

TEST_CASE("gradients that fade over many steps do not become slow or wrong") {
  // Only the last step is observed and forget gates are nearly shut: 200 steps back the gradient
  // would be far below the smallest float.
  for_each_instruction_set([] {
    NetworkShape shape = shape_of(Distribution::normal);
    Rng rng(2);
    auto parameters = initial_parameters(shape, &rng);
    for (const TensorInfo& tensor : parameter_tensors(shape)) {
      if (tensor.name.find("bias_ih") != std::string::npos) {
        std::fill_n(parameters.begin() + tensor.offset + shape.hidden, shape.hidden, -4.0F);
      }
    }
    constexpr int kLong = 200;
    Batch batch = reference::random_batch(shape, 2, kLong, &rng);
    std::fill(batch.observed.begin(), batch.observed.end() - 2, 0.0);
    std::fill(batch.observed.end() - 2, batch.observed.end(), 1.0);
    auto step = TrainingStep::make(shape, 2, kLong).value();
    reference::fill(shape, batch, &step);
    std::vector<float> gradient(parameters.size());
    step.loss_and_gradient(parameters, 0.0F, nullptr, gradient);
    const std::vector<double> exact(parameters.begin(), parameters.end());
    CHECK(reference::difference(gradient, reference::run(shape, exact, batch).gradient) < 2e-6);
    // The caller's own arithmetic still has denormals.
    const volatile float tiny = std::numeric_limits<float>::min();
    CHECK(tiny / 2.0F > 0.0F);
  });
}

TEST_CASE("two runs give the same bits, also when other threads train beside them") {
  for_each_instruction_set([] {
    Scene scene(Distribution::student_t);
    const StepLoss alone = scene.run(0.2F);
    const auto gradient = scene.gradient;
    std::vector<std::vector<float>> gradients(3);
    std::vector<double> losses(3);
    {
      std::vector<base::Thread> threads;
      for (size_t i = 0; i < gradients.size(); ++i) {
        threads.emplace_back("train", [&, i] {
          // The first two repeat the work; the third does other work beside them.
          Scene mine(Distribution::student_t, i < 2 ? 1 : 77);
          for (int round = 0; round < 5; ++round) {
            losses[i] = mine.run(0.2F).loss;
          }
          gradients[i] = mine.gradient;
        });
      }
    }
    CHECK(scene.run(0.2F).loss == alone.loss);
    CHECK(scene.gradient == gradient);
    for (const size_t i : {size_t{0}, size_t{1}}) {
      CHECK(losses[i] == alone.loss);
      CHECK(gradients[i] == gradient);
    }
    CHECK(losses[2] != alone.loss);
  });
}

TEST_CASE("AVX2 and AVX-512 give the same loss bits, both being IEEE multiply-adds in one order") {
  const auto sets = instruction_sets();
  const bool has_both = std::count(sets.begin(), sets.end(), "avx2") != 0 &&
                        std::count(sets.begin(), sets.end(), "avx512") != 0;
  if (!has_both) {
    MESSAGE("skipped: this machine has not both");
    return;
  }
  const std::string before = instruction_set();
  std::vector<double> losses;
  for (const char* name : {"avx2", "avx512"}) {
    REQUIRE(set_instruction_set(name).ok());
    losses.push_back(Scene(Distribution::student_t).run(0.1F).loss);
  }
  REQUIRE(set_instruction_set(before).ok());
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("a batch's rows do not influence one another's distributions") {
  for_each_instruction_set([] {
    Scene scene(Distribution::student_t);
    scene.step.loss(scene.parameters);
    const auto before = scene.step.distribution_row(kSteps - 1, 4);
    for (int b = 0; b < kBatch; ++b) {
      if (b != 4) {
        scene.step.input_row(0, b)[1] = 3.0F;
        scene.step.set_category(b, 0, 2);
      }
    }
    scene.step.loss(scene.parameters);
    CHECK(scene.step.distribution_row(kSteps - 1, 4) == before);
    CHECK(scene.step.distribution_row(kSteps - 1, 5) != before);
  });
}

TEST_CASE("an instruction set that is not there is refused with those that are") {
  const auto sets = instruction_sets();
  REQUIRE_FALSE(sets.empty());
  CHECK(sets.back() == "scalar");
  const std::string before = instruction_set();
  const auto refused = set_instruction_set("mmx");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Errc::unsupported);
  CHECK(refused.error().message().find("\"mmx\"") != std::string::npos);
  CHECK(refused.error().message().find("scalar") != std::string::npos);
  CHECK(instruction_set() == before);
}

TEST_CASE("shapes out of range are refused with the field and its value") {
  const auto message = [](const NetworkShape& shape) {
    const auto made = TrainingStep::make(shape, 1, 1);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code() == Errc::invalid_argument);
    const auto decoder = Decoder::make(shape, 1, {});
    REQUIRE_FALSE(decoder.ok());
    CHECK(decoder.error().message() == made.error().message());
    return made.error().message();
  };
  NetworkShape shape;
  CHECK(message(shape).find("input columns is 0") != std::string::npos);
  shape.lags = -1;
  CHECK(message(shape).find("lags is -1") != std::string::npos);
  shape.lags = 1;
  shape.hidden = 5000;
  CHECK(message(shape).find("hidden is 5000") != std::string::npos);
  shape.hidden = 4;
  shape.layers = 0;
  CHECK(message(shape).find("layers is 0") != std::string::npos);
  shape.layers = 1;
  shape.other_inputs = 1 << 17;
  CHECK(message(shape).find("other_inputs is 131072") != std::string::npos);
  shape.other_inputs = 0;
  shape.embeddings = {{0, 1}};
  CHECK(message(shape).find("cardinality is 0") != std::string::npos);
  shape.embeddings = {{1, 0}};
  CHECK(message(shape).find("dimension is 0") != std::string::npos);
}

TEST_CASE("empty or oversized work is refused") {
  NetworkShape shape;
  shape.lags = 3;
  CHECK(TrainingStep::make(shape, 0, 1).error().code() == Errc::invalid_argument);
  CHECK(TrainingStep::make(shape, 1, 0).error().code() == Errc::invalid_argument);
  CHECK(TrainingStep::make(shape, 1 << 20, 1 << 20).error().code() == Errc::invalid_argument);
  const std::vector<float> parameters(static_cast<size_t>(parameter_total(shape)));
  CHECK(Decoder::make(shape, 0, parameters).error().code() == Errc::invalid_argument);
  const auto mismatch = Decoder::make(shape, 1, std::vector<float>(7));
  REQUIRE_FALSE(mismatch.ok());
  CHECK(mismatch.error().code() == Errc::mismatch);
  CHECK(mismatch.error().message().find("7 were given") != std::string::npos);
}

TEST_CASE("distributions have the names of files and options") {
  for (const auto distribution :
       {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
    CHECK(parse_distribution(distribution_name(distribution)).value() == distribution);
  }
  const auto refused = parse_distribution("gamma");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Errc::invalid_argument);
  CHECK(refused.error().message().find("\"gamma\"") != std::string::npos);
}

}  // namespace
}  // namespace headrace::forecast
