// SPDX-License-Identifier: Apache-2.0
// Loss and gradient of one batch: blocks of rows go forward through all steps, then back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "headrace/base/check.h"
#include "headrace/base/random.h"
#include "headrace/forecast/flush_denormals.h"
#include "headrace/forecast/training_state_internal.h"

namespace headrace::forecast {

namespace {

constexpr int64_t kCellsMax = int64_t{1} << 31;

}  // namespace

StepLoss TrainingStep::State::total_loss() const {
  double sum = 0.0;
  double seen = 0.0;
  for (size_t t = 0; t < steps; ++t) {
    for (size_t b = 0; b < batch; ++b) {
      sum += nll[t * padded + b];
      seen += static_cast<double>(observed[t * padded + b]);
    }
  }
  return {sum / whole_cells, seen > 0.0 ? sum / seen : 0.0};
}

StepLoss TrainingStep::State::run(std::span<const float> parameters, const DropoutRate& dropout,
                                  std::span<float> gradient) {
  const FlushDenormals flush;
  rate = dropout;
  network.pack(parameters, !gradient.empty());
  for (size_t b = 0; b < padded; ++b) {
    scale[b] = static_cast<double>(scales[b]);
    log_scale[b] = std::log(scale[b]);
  }
  for (LayerMemory& memory : layers) {
    std::fill(memory.weights.begin(), memory.weights.end(), 0.0F);
  }
  std::fill(embedding_sums.begin(), embedding_sums.end(), 0.0F);
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  for (const Block& block : blocks) {
    start_block(block);
    for (size_t t = 0; t < steps; ++t) {
      forward_step(block, t);
      heads_step(block, t);
    }
    if (!gradient.empty()) {
      backward_block(block, gradient);
    }
  }
  for (size_t l = 0; l < layers.size() && !gradient.empty(); ++l) {
    write_layer_gradient(l, gradient);
  }
  return total_loss();
}

TrainingStep::TrainingStep(std::unique_ptr<State> state) : state_(std::move(state)) {}
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;
TrainingStep::~TrainingStep() = default;

Result<TrainingStep> TrainingStep::make(const NetworkShape& shape, int batch, int steps,
                                        const BatchPart& part) {
  HR_TRY(check_shape(shape));
  const int64_t whole = std::max(batch, part.whole);  // all parts are refused, or none
  if (batch < 1 || steps < 1 || whole * steps > kCellsMax / shape.inputs()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: a training step of batch {} and {} steps of {} inputs: "
                             "batch and steps must be at least 1, and the inputs at most {}",
                             whole, steps, shape.inputs(), kCellsMax)};
  }
  HR_CHECK(part.first >= 0 && (part.whole == 0 || part.first + batch <= part.whole),
           "a part of a batch must lie within it");
  return TrainingStep(
      std::make_unique<State>(shape, static_cast<size_t>(batch), static_cast<size_t>(steps), part));
}

float* TrainingStep::input_row(int t, int b) {
  State& s = *state_;
  return &s.inputs[(static_cast<size_t>(t) * s.padded + static_cast<size_t>(b)) * s.input_stride];
}

void TrainingStep::set_category(int b, int feature, int index) {
  const std::vector<EmbeddingShape>& shapes = state_->network.shape().embeddings;
  HR_CHECK(index >= 0 && index < shapes.at(static_cast<size_t>(feature)).cardinality,
           fmt::format("category {} of embedding {} is out of range", index, feature));
  state_->categories[static_cast<size_t>(b) * shapes.size() + static_cast<size_t>(feature)] = index;
}

float* TrainingStep::target_row(int t) {
  return &state_->targets[static_cast<size_t>(t) * state_->padded];
}

float* TrainingStep::observed_row(int t) {
  return &state_->observed[static_cast<size_t>(t) * state_->padded];
}

float* TrainingStep::scales() { return state_->scales.data(); }

StepLoss TrainingStep::loss_and_gradient(std::span<const float> parameters, float dropout,
                                         base::Rng* rng, std::span<float> gradient) {
  const NetworkShape& shape = state_->network.shape();
  HR_CHECK(static_cast<int64_t>(parameters.size()) == parameter_total(shape) &&
               gradient.size() == parameters.size(),
           "parameters and gradient must have parameter_total floats");
  HR_CHECK(dropout >= 0.0F && dropout < 1.0F && (dropout == 0.0F || rng != nullptr),
           "dropout must be in [0, 1), and needs random numbers when it is not 0");
  const DropoutRate rate{dropout, dropout > 0.0F ? rng->next() : 0};
  return state_->run(parameters, rate, gradient);
}

StepLoss TrainingStep::loss(std::span<const float> parameters) {
  HR_CHECK(static_cast<int64_t>(parameters.size()) == parameter_total(state_->network.shape()),
           "there must be parameter_total parameters");
  return state_->run(parameters, DropoutRate{}, {});
}

std::vector<float> TrainingStep::distribution_row(int t, int b) const {
  const State& s = *state_;
  const auto row = static_cast<size_t>(b);
  const Block& block = s.blocks[row / kWidthMax];
  const size_t heads = s.network.heads();
  const float* from = &s.mapped[block.first * s.steps * heads +
                                static_cast<size_t>(t) * heads * block.width + row - block.first];
  std::vector<float> out(heads);
  for (size_t p = 0; p < heads; ++p) {
    out[p] = from[p * block.width];
  }
  return out;
}

}  // namespace headrace::forecast
