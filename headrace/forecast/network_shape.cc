// SPDX-License-Identifier: Apache-2.0
// What a network's shape says about its parameters: names, places, initial values.
#include <fmt/format.h>

#include <cmath>

#include "headrace/base/check.h"
#include "headrace/forecast/network_internal.h"

namespace headrace::forecast {

namespace {

constexpr int kHiddenMax = 4096;
constexpr int kLayersMax = 16;
constexpr int kInputsMax = 1 << 16;

class TensorList {
 public:
  void add(std::string name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) {
      count *= extent;
    }
    tensors_.push_back({std::move(name), std::move(shape), total_, count});
    total_ += count;
  }
  std::vector<TensorInfo> take() { return std::move(tensors_); }

 private:
  std::vector<TensorInfo> tensors_;
  int64_t total_ = 0;
};

}  // namespace

std::string_view distribution_name(Distribution distribution) {
  switch (distribution) {
    case Distribution::student_t: return "student_t";
    case Distribution::normal: return "normal";
    case Distribution::negative_binomial: return "negative_binomial";
  }
  return "unknown";
}

Result<Distribution> parse_distribution(std::string_view name) {
  for (const Distribution distribution :
       {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
    if (name == distribution_name(distribution)) {
      return distribution;
    }
  }
  return Error{Errc::invalid_argument,
               fmt::format("forecast: there is no distribution \"{}\"; choose student_t, normal or "
                           "negative_binomial",
                           name)};
}

int parameter_count(Distribution distribution) {
  return distribution == Distribution::student_t ? 3 : 2;
}

int NetworkShape::embedding_columns() const {
  int columns = 0;
  for (const EmbeddingShape& embedding : embeddings) {
    columns += embedding.dimension;
  }
  return columns;
}

std::vector<TensorInfo> parameter_tensors(const NetworkShape& shape) {
  TensorList list;
  for (size_t i = 0; i < shape.embeddings.size(); ++i) {
    list.add(fmt::format("embedder._embedders.{}.weight", i),
             {shape.embeddings[i].cardinality, shape.embeddings[i].dimension});
  }
  const int64_t gates = int64_t{4} * shape.hidden;
  for (int layer = 0; layer < shape.layers; ++layer) {
    list.add(fmt::format("rnn.weight_ih_l{}", layer),
             {gates, layer == 0 ? shape.inputs() : shape.hidden});
    list.add(fmt::format("rnn.weight_hh_l{}", layer), {gates, shape.hidden});
    list.add(fmt::format("rnn.bias_ih_l{}", layer), {gates});
    list.add(fmt::format("rnn.bias_hh_l{}", layer), {gates});
  }
  for (int head = 0; head < parameter_count(shape.distribution); ++head) {
    list.add(fmt::format("param_proj.proj.{}.weight", head), {1, shape.hidden});
    list.add(fmt::format("param_proj.proj.{}.bias", head), {1});
  }
  return list.take();
}

int64_t parameter_total(const NetworkShape& shape) {
  const TensorInfo last = parameter_tensors(shape).back();
  return last.offset + last.count;
}

std::vector<float> initial_parameters(const NetworkShape& shape, base::Rng* rng) {
  std::vector<float> parameters(static_cast<size_t>(parameter_total(shape)));
  const auto bound = static_cast<float>(1.0 / std::sqrt(shape.hidden));
  for (const TensorInfo& tensor : parameter_tensors(shape)) {
    const bool is_embedding = tensor.name.starts_with("embedder");
    for (int64_t i = 0; i < tensor.count; ++i) {
      parameters[static_cast<size_t>(tensor.offset + i)] =
          is_embedding ? static_cast<float>(rng->normal())
                       : bound * (2.0F * rng->uniform_float() - 1.0F);
    }
  }
  return parameters;
}

Result<void> check_shape(const NetworkShape& shape) {
  const auto refuse = [](std::string_view what, int64_t value, int64_t low, int64_t high) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: network shape: {} is {}; it must be in [{}, {}]", what,
                             value, low, high)};
  };
  if (shape.hidden < 1 || shape.hidden > kHiddenMax) {
    return refuse("hidden", shape.hidden, 1, kHiddenMax);
  }
  if (shape.layers < 1 || shape.layers > kLayersMax) {
    return refuse("layers", shape.layers, 1, kLayersMax);
  }
  if (shape.lags < 0 || shape.lags > kInputsMax) {
    return refuse("lags", shape.lags, 0, kInputsMax);
  }
  if (shape.other_inputs < 0 || shape.other_inputs > kInputsMax) {
    return refuse("other_inputs", shape.other_inputs, 0, kInputsMax);
  }
  int64_t inputs = int64_t{shape.lags} + shape.other_inputs;
  for (const EmbeddingShape& embedding : shape.embeddings) {
    if (embedding.cardinality < 1) {
      return refuse("an embedding's cardinality", embedding.cardinality, 1, INT32_MAX);
    }
    if (embedding.dimension < 1 || embedding.dimension > kInputsMax) {
      return refuse("an embedding's dimension", embedding.dimension, 1, kInputsMax);
    }
    inputs += embedding.dimension;
  }
  if (inputs < 1 || inputs > kInputsMax) {
    return refuse("the number of input columns", inputs, 1, kInputsMax);
  }
  return {};
}

}  // namespace headrace::forecast
