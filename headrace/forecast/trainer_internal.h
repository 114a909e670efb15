// SPDX-License-Identifier: Apache-2.0
// The training loop of one member: epochs of sampled windows, the best weights kept.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/windows_internal.h"

namespace headrace::forecast {

/// What one member is trained on and from.
struct FitInput {
  const ModelSpec& spec;
  const InputScaling& scaling;
  const TrainOptions& options;  ///< resolved
  std::span<const PreparedSeries> series;
  uint64_t seed = 0;
  std::span<const float> start;  ///< weights to begin with; empty: drawn
  std::string name;              ///< for messages: an item's id, or "global model"
  int member = 0;
  std::function<bool(const TrainProgress&)> progress;  ///< may be empty
  std::function<bool()> stop = {};                     ///< may be empty; as TrainContext's
  TrainingRanks* ranks = nullptr;                      ///< may be null; as TrainContext's
};

struct FitSummary {
  int epochs = 0;      ///< run
  int best_epoch = 0;  ///< 1-based
  int64_t steps = 0;
  int64_t best_step = 0;
  int64_t skipped_steps = 0;   ///< loss or gradient was not finite
  double loss = 0.0;           ///< mean training loss of the best epoch
  double masked_loss = 0.0;    ///< the same over observed cells alone: comparable across data
  double monitored = 0.0;      ///< what chose it
  double learning_rate = 0.0;  ///< at the end
  bool refitted = false;
};

struct Fit {
  /// One set, or with snapshot_use "mixture" one per snapshot.
  std::vector<std::vector<float>> parameters;
  FitSummary summary;
};

/// Train on the calling thread. Depends on the input and the instruction set alone. No memory is
/// allocated between the first and the last step of an epoch.
Result<Fit> fit(const FitInput& input);

}  // namespace headrace::forecast
