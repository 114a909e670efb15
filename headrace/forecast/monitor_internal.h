// SPDX-License-Identifier: Apache-2.0
// What decides which epoch is best: a loss, or the quality of sampled forecasts of the validation
// tail.
#pragma once

#include <span>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/forecast/trainer_internal.h"

namespace headrace::forecast {

/// Less is better; infinity when it is no number. `step` is the training's workspace, used between
/// epochs.
class Monitor {
 public:
  static Result<Monitor> make(const FitInput& input, TrainingStep* step);
  Result<double> value(double training_loss, std::span<const float> weights);

 private:
  enum class Kind { training, validation, horizon, wql };
  Monitor(const FitInput& input, TrainingStep* step);
  double loss(std::span<const float> weights);
  Result<double> sampled(std::span<const float> weights) const;

  const FitInput* input_;
  TrainingStep* step_;
  Kind kind_ = Kind::training;
  std::vector<WindowIndex> windows_;
  BatchFiller filler_;
};

}  // namespace headrace::forecast
