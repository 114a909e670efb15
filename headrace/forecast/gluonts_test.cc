// SPDX-License-Identifier: Apache-2.0
// The network against GluonTS on equal weights and data: tests/data/gluonts_DISTRIBUTION.json, made
// by tools/make_gluonts_golden.py. "Relative" means: largest absolute difference over the tensor,
// divided by the largest absolute value in it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/forecast/network.h"

namespace headrace::forecast {
namespace {

constexpr double kTolerance = 1e-5;

Json read_golden(const std::string& distribution) {
  const std::string path =
      std::string(HEADRACE_SOURCE_DIR) + "/tests/data/gluonts_" + distribution + ".json";
  return parse_json(base::read_file(path).value(), path).value();
}

void flatten(const Json& value, std::vector<double>* out) {
  if (!value.is_array()) {
    out->push_back(value.number());
    return;
  }
  for (const Json& part : value.items()) {
    flatten(part, out);
  }
}
std::vector<double> numbers(const Json& value) {
  std::vector<double> out;
  flatten(value, &out);
  return out;
}

double relative(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double difference = 0.0;
  double largest = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference = std::max(difference, std::abs(got[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return difference / largest;
}

struct Case {
  Json golden;
  NetworkShape shape;
  int batch = 0;
  int steps = 0;
  std::vector<float> parameters;
};

Case make_case(const std::string& distribution) {
  Case out;
  out.golden = read_golden(distribution);
  const Json& shape = out.golden.at("shape");
  out.shape.lags = static_cast<int>(shape.at("lags").integer());
  for (const Json& one : shape.at("embeddings").items()) {
    out.shape.embeddings.push_back({static_cast<int>(one.at("cardinality").integer()),
                                    static_cast<int>(one.at("dimension").integer())});
  }
  out.shape.other_inputs = static_cast<int>(shape.at("other_inputs").integer());
  out.shape.hidden = static_cast<int>(shape.at("hidden").integer());
  out.shape.layers = static_cast<int>(shape.at("layers").integer());
  out.shape.distribution = parse_distribution(distribution).value();
  out.batch = static_cast<int>(out.golden.at("batch").integer());
  out.steps = static_cast<int>(out.golden.at("steps").integer());
  out.parameters.resize(static_cast<size_t>(parameter_total(out.shape)));
  for (const TensorInfo& tensor : parameter_tensors(out.shape)) {
    const auto values = numbers(out.golden.at("parameters").at(tensor.name));
    REQUIRE(static_cast<int64_t>(values.size()) == tensor.count);
    CHECK(numbers(out.golden.at("parameter_shapes").at(tensor.name)) ==
          std::vector<double>(tensor.shape.begin(), tensor.shape.end()));
    std::transform(values.begin(), values.end(), out.parameters.begin() + tensor.offset,
                   [](double value) { return static_cast<float>(value); });
  }
  return out;
}

void copy_row(const Json& row, float* out) {
  const auto values = numbers(row);
  std::transform(values.begin(), values.end(), out,
                 [](double value) { return static_cast<float>(value); });
}

TrainingStep make_step(const Case& one) {
  TrainingStep step = TrainingStep::make(one.shape, one.batch, one.steps).value();
  for (int t = 0; t < one.steps; ++t) {
    const auto index = static_cast<size_t>(t);
    for (int b = 0; b < one.batch; ++b) {
      copy_row(one.golden.at("input").items()[index].items()[static_cast<size_t>(b)],
               step.input_row(t, b));
    }
    copy_row(one.golden.at("target").items()[index], step.target_row(t));
    copy_row(one.golden.at("observed").items()[index], step.observed_row(t));
  }
  copy_row(one.golden.at("scales"), step.scales());
  for (int b = 0; b < one.batch; ++b) {
    const Json& categories = one.golden.at("categories").items()[static_cast<size_t>(b)];
    for (size_t feature = 0; feature < one.shape.embeddings.size(); ++feature) {
      step.set_category(b, static_cast<int>(feature),
                        static_cast<int>(categories.items()[feature].integer()));
    }
  }
  return step;
}

/// Differences of the tensors, named, so that a failure says which.
void check_tensors(const Case& one, const std::vector<float>& got, const Json& expected) {
  for (const TensorInfo& tensor : parameter_tensors(one.shape)) {
    const std::vector<double> part(got.begin() + tensor.offset,
                                   got.begin() + tensor.offset + tensor.count);
    INFO(tensor.name);
    CHECK(relative(part, numbers(expected.at(tensor.name))) < kTolerance);
  }
}

/// Run `check` for every distribution on every instruction set of this machine.
template <typename Check>
void for_each_case(const Check& check) {
  const std::string before = instruction_set();
  for (const std::string& name : instruction_sets()) {
    REQUIRE(set_instruction_set(name).ok());
    for (const std::string distribution : {"student_t", "normal", "negative_binomial"}) {
      INFO(name, " ", distribution);
      check(make_case(distribution));
    }
  }
  REQUIRE(set_instruction_set(before).ok());
}

TEST_CASE("loss, distribution parameters and gradient are GluonTS's to 1e-5 relative") {
  for_each_case([](const Case& one) {
    TrainingStep step = make_step(one);
    std::vector<float> gradient(one.parameters.size());

    const StepLoss loss = step.loss_and_gradient(one.parameters, 0.0F, nullptr, gradient);

    const Json& expected = one.golden.at("expected");
    CHECK(loss.loss == doctest::Approx(expected.at("loss").number()).epsilon(kTolerance));
    CHECK(loss.masked_loss ==
          doctest::Approx(expected.at("masked_loss").number()).epsilon(kTolerance));
    for (int p = 0; p < parameter_count(one.shape.distribution); ++p) {
      std::vector<double> got;
      std::vector<double> wanted;
      for (int t = 0; t < one.steps; ++t) {
        for (int b = 0; b < one.batch; ++b) {
          got.push_back(step.distribution_row(t, b)[static_cast<size_t>(p)]);
          const Json& cell = expected.at("distribution").items()[static_cast<size_t>(t)];
          wanted.push_back(
              cell.items()[static_cast<size_t>(b)].items()[static_cast<size_t>(p)].number());
        }
      }
      CHECK(relative(got, wanted) < kTolerance);
    }
    check_tensors(one, gradient, expected.at("gradient"));
    CHECK(step.loss(one.parameters).loss ==
          doctest::Approx(expected.at("loss").number()).epsilon(kTolerance));
  });
}

TEST_CASE("five clipped Adam steps end where torch's end") {
  for_each_case([](const Case& one) {
    const Json& golden = one.golden.at("adam");
    const Json& options = golden.at("options");
    Adam adam(static_cast<int64_t>(one.parameters.size()),
              {.weight_decay = static_cast<float>(options.at("weight_decay").number()),
               .clip_norm = static_cast<float>(options.at("clip_norm").number())});
    TrainingStep step = make_step(one);
    std::vector<float> parameters = one.parameters;
    std::vector<float> gradient(parameters.size());
    const auto norms = numbers(golden.at("norms"));
    const auto losses = numbers(golden.at("losses"));
    for (size_t i = 0; i < norms.size(); ++i) {
      const StepLoss loss = step.loss_and_gradient(parameters, 0.0F, nullptr, gradient);
      CHECK(loss.loss == doctest::Approx(losses[i]).epsilon(kTolerance));
      CHECK(adam.step(parameters, gradient, options.at("learning_rate").number()) ==
            doctest::Approx(norms[i]).epsilon(kTolerance));
    }
    check_tensors(one, parameters, golden.at("parameters"));
  });
}

}  // namespace
}  // namespace headrace::forecast
