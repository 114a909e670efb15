// SPDX-License-Identifier: Apache-2.0
// The network one step at a time, without gradients.
#include <fmt/format.h>

#include "headrace/base/check.h"
#include "headrace/forecast/network_internal.h"
#include "headrace/forecast/network_reference.h"

namespace headrace::forecast {

struct Decoder::State {
  NetworkShape shape;
  std::vector<float> parameters;
  int rows_max = 0;
  int rows = 0;
  std::vector<float> inputs;
  std::vector<int> categories;
  std::vector<std::vector<float>> h;  ///< per layer [rows][hidden]
  std::vector<std::vector<float>> c;
  std::vector<float> distributions;
  std::vector<TensorInfo> tensors;

  const float* tensor(const std::string& name) const {
    for (const TensorInfo& info : tensors) {
      if (info.name == name) {
        return &parameters[static_cast<size_t>(info.offset)];
      }
    }
    HR_CHECK(false, name);
  }
  void step_row(size_t row);
};

Decoder::Decoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Result<Decoder> Decoder::make(const NetworkShape& shape, int rows_max,
                              std::span<const float> parameters) {
  HR_TRY(check_shape(shape));
  if (rows_max < 1) {
    return Error{
        Errc::invalid_argument,
        fmt::format("forecast: a decoder for {} rows is empty; give at least 1", rows_max)};
  }
  if (static_cast<int64_t>(parameters.size()) != parameter_total(shape)) {
    return Error{Errc::mismatch,
                 fmt::format("forecast: the network has {} parameters, {} were given",
                             parameter_total(shape), parameters.size())};
  }
  auto state = std::make_unique<State>();
  state->shape = shape;
  state->parameters.assign(parameters.begin(), parameters.end());
  state->rows_max = rows_max;
  state->tensors = parameter_tensors(shape);
  const auto rows = static_cast<size_t>(rows_max);
  state->inputs.resize(rows * static_cast<size_t>(shape.inputs()));
  state->categories.resize(rows * shape.embeddings.size());
  const std::vector<float> zero(rows * static_cast<size_t>(shape.hidden), 0.0F);
  state->h.assign(static_cast<size_t>(shape.layers), zero);
  state->c = state->h;
  state->distributions.resize(rows * static_cast<size_t>(parameter_count(shape.distribution)));
  return Decoder(std::move(state));
}

void Decoder::reset(int rows) {
  HR_CHECK(rows >= 0 && rows <= state_->rows_max, "more rows than the decoder was made for");
  state_->rows = rows;
  for (auto* states : {&state_->h, &state_->c}) {
    for (std::vector<float>& layer : *states) {
      std::fill(layer.begin(), layer.end(), 0.0F);
    }
  }
}

int Decoder::rows() const { return state_->rows; }

float* Decoder::input_row(int row) {
  return &state_->inputs[static_cast<size_t>(row) * static_cast<size_t>(state_->shape.inputs())];
}

void Decoder::set_category(int row, int feature, int index) {
  state_->categories[static_cast<size_t>(row) * state_->shape.embeddings.size() +
                     static_cast<size_t>(feature)] = index;
}

void Decoder::State::step_row(size_t row) {
  const auto hidden = static_cast<size_t>(shape.hidden);
  const auto begin =
      inputs.begin() + static_cast<std::ptrdiff_t>(row * static_cast<size_t>(shape.inputs()));
  std::vector<float> x(begin, begin + shape.inputs());
  auto column = x.begin() + shape.lags;
  for (size_t e = 0; e < shape.embeddings.size(); ++e) {
    const int dimension = shape.embeddings[e].dimension;
    const float* table = tensor(fmt::format("embedder._embedders.{}.weight", e)) +
                         categories[row * shape.embeddings.size() + e] * dimension;
    column = std::copy(table, table + dimension, column);
  }
  for (size_t l = 0; l < h.size(); ++l) {
    const float* ih = tensor(fmt::format("rnn.weight_ih_l{}", l));
    const float* hh = tensor(fmt::format("rnn.weight_hh_l{}", l));
    const float* bias_ih = tensor(fmt::format("rnn.bias_ih_l{}", l));
    const float* bias_hh = tensor(fmt::format("rnn.bias_hh_l{}", l));
    std::vector<float> gates(4 * hidden);
    for (size_t j = 0; j < gates.size(); ++j) {
      gates[j] = bias_ih[j] + bias_hh[j];
      for (size_t k = 0; k < x.size(); ++k) {
        gates[j] += ih[j * x.size() + k] * x[k];
      }
      for (size_t k = 0; k < hidden; ++k) {
        gates[j] += hh[j * hidden + k] * h[l][row * hidden + k];
      }
    }
    x.resize(hidden);
    for (size_t u = 0; u < hidden; ++u) {
      float& cell = c[l][row * hidden + u];
      cell = reference::sigmoid(gates[hidden + u]) * cell +
             reference::sigmoid(gates[u]) * std::tanh(gates[2 * hidden + u]);
      x[u] = reference::sigmoid(gates[3 * hidden + u]) * std::tanh(cell);
    }
    std::copy(x.begin(), x.end(), h[l].begin() + static_cast<std::ptrdiff_t>(row * hidden));
  }
  const auto count = static_cast<size_t>(parameter_count(shape.distribution));
  double raw[3] = {};
  double mapped[3] = {};
  double slopes[3] = {};
  for (size_t p = 0; p < count; ++p) {
    const float* weight = tensor(fmt::format("param_proj.proj.{}.weight", p));
    float sum = weight[hidden];
    for (size_t k = 0; k < hidden; ++k) {
      sum += weight[k] * x[k];
    }
    raw[p] = static_cast<double>(sum);
  }
  reference::map_parameters(shape.distribution, 0.0, raw, mapped, slopes);
  for (size_t p = 0; p < count; ++p) {
    distributions[row * count + p] = static_cast<float>(mapped[p]);
  }
}

void Decoder::step() {
  for (int row = 0; row < state_->rows; ++row) {
    state_->step_row(static_cast<size_t>(row));
  }
}

std::span<const float> Decoder::distributions() const {
  return std::span<const float>(state_->distributions)
      .first(static_cast<size_t>(state_->rows) *
             static_cast<size_t>(parameter_count(state_->shape.distribution)));
}

void Decoder::repeat(int copies) {
  State& s = *state_;
  HR_CHECK(copies >= 1 && static_cast<int64_t>(s.rows) * copies <= s.rows_max,
           "more rows than the decoder was made for");
  const auto spread = [&](auto* values, size_t width) {
    for (size_t row = static_cast<size_t>(s.rows * copies); row-- > 0;) {
      const auto from =
          values->begin() + static_cast<std::ptrdiff_t>(row / static_cast<size_t>(copies) * width);
      const std::vector<std::decay_t<decltype(*from)>> one(
          from, from + static_cast<std::ptrdiff_t>(width));
      std::copy(one.begin(), one.end(), values->begin() + static_cast<std::ptrdiff_t>(row * width));
    }
  };
  for (size_t l = 0; l < s.h.size(); ++l) {
    spread(&s.h[l], static_cast<size_t>(s.shape.hidden));
    spread(&s.c[l], static_cast<size_t>(s.shape.hidden));
  }
  spread(&s.categories, s.shape.embeddings.size());
  spread(&s.distributions, static_cast<size_t>(parameter_count(s.shape.distribution)));
  s.rows *= copies;
}

}  // namespace headrace::forecast
