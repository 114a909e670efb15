// SPDX-License-Identifier: Apache-2.0
// What decides which epoch is best: a loss, or the quality of sampled forecasts of the validation
// tail.
#pragma once

#include <span>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/forecast/sharing_internal.h"
#include "headrace/forecast/trainer_internal.h"

namespace headrace::forecast {

/// Less is better; infinity when it is no number. The same bits on all ranks. `step` is the
/// training's workspace, used between epochs.
class Monitor {
 public:
  static Result<Monitor> make(const FitInput& input, TrainingStep* step);
  Result<double> value(double training_loss, std::span<const float> weights);

 private:
  enum class Kind { training, validation, horizon, wql };
  Monitor(const FitInput& input, TrainingStep* step);
  Result<double> loss(std::span<const float> weights);
  Result<double> sampled(std::span<const float> weights) const;
  Result<double> sampled_part(std::span<const float> weights,
                              std::span<const WindowIndex> windows) const;

  const FitInput* input_;
  Sharing sharing_;
  TrainingStep* step_;
  Kind kind_ = Kind::training;
  std::vector<WindowIndex> windows_;
  BatchFiller filler_;
};

}  // namespace headrace::forecast
