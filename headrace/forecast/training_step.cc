// SPDX-License-Identifier: Apache-2.0
// Loss and gradient of one batch.
#include <fmt/format.h>

#include "headrace/base/check.h"
#include "headrace/forecast/network_internal.h"
#include "headrace/forecast/network_reference.h"

namespace headrace::forecast {

struct TrainingStep::State {
  NetworkShape shape;
  reference::Batch<float> batch;
  std::vector<double> distributions;
};

TrainingStep::TrainingStep(std::unique_ptr<State> state) : state_(std::move(state)) {}
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;
TrainingStep::~TrainingStep() = default;

Result<TrainingStep> TrainingStep::make(const NetworkShape& shape, int batch, int steps) {
  HR_TRY(check_shape(shape));
  if (batch < 1 || steps < 1) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: a training step of batch {} and {} steps is empty; both "
                             "must be at least 1",
                             batch, steps)};
  }
  return TrainingStep(std::make_unique<State>(
      State{shape, reference::Batch<float>::make(shape, batch, steps), {}}));
}

float* TrainingStep::input_row(int t, int b) {
  const auto cell =
      static_cast<size_t>(t) * static_cast<size_t>(state_->batch.batch) + static_cast<size_t>(b);
  return &state_->batch.inputs[cell * static_cast<size_t>(state_->shape.inputs())];
}

void TrainingStep::set_category(int b, int feature, int index) {
  state_->batch.categories[static_cast<size_t>(b) * state_->shape.embeddings.size() +
                           static_cast<size_t>(feature)] = index;
}

float* TrainingStep::target_row(int t) {
  return &state_->batch.targets[static_cast<size_t>(t) * static_cast<size_t>(state_->batch.batch)];
}

float* TrainingStep::observed_row(int t) {
  return &state_->batch.observed[static_cast<size_t>(t) * static_cast<size_t>(state_->batch.batch)];
}

float* TrainingStep::scales() { return state_->batch.scales.data(); }

StepLoss TrainingStep::loss_and_gradient(std::span<const float> parameters, float dropout,
                                         base::Rng* rng, std::span<float> gradient) {
  const NetworkShape& shape = state_->shape;
  HR_CHECK(static_cast<int64_t>(parameters.size()) == parameter_total(shape) &&
               gradient.size() == parameters.size(),
           "parameters and gradient must have parameter_total floats");
  reference::Batch<float>& batch = state_->batch;
  batch.masks.clear();
  if (dropout > 0.0F && shape.layers > 1) {
    batch.masks.resize(static_cast<size_t>(shape.layers - 1) * batch.targets.size() *
                       static_cast<size_t>(shape.hidden));
    for (float& mask : batch.masks) {
      mask = rng->uniform_float() < dropout ? 0.0F : 1.0F / (1.0F - dropout);
    }
  }
  reference::Network<float> network(shape, parameters);
  const StepLoss loss = network.run(&batch, gradient);
  state_->distributions = network.distributions();
  return loss;
}

StepLoss TrainingStep::loss(std::span<const float> parameters) {
  state_->batch.masks.clear();
  reference::Network<float> network(state_->shape, parameters);
  const StepLoss loss = network.run(&state_->batch, {});
  state_->distributions = network.distributions();
  return loss;
}

std::vector<float> TrainingStep::distribution_row(int t, int b) const {
  const auto count = static_cast<size_t>(parameter_count(state_->shape.distribution));
  const size_t cell =
      static_cast<size_t>(t) * static_cast<size_t>(state_->batch.batch) + static_cast<size_t>(b);
  std::vector<float> row(count);
  for (size_t p = 0; p < count; ++p) {
    row[p] = static_cast<float>(state_->distributions[cell * count + p]);
  }
  return row;
}

}  // namespace headrace::forecast
