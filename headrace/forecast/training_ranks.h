// SPDX-License-Identifier: Apache-2.0
// The processes that train one global model together, as the trainer sees them.
#pragma once

#include <span>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::forecast {

/// Each rank computes the loss and the gradient of its part of every batch; sums over the ranks
/// make them those of the whole batch. All ranks train on the same series with the same options and
/// so make the same calls in the same order. The results of a call are the same bits on all ranks:
/// what is decided by them alone is decided alike everywhere. Called from one thread at a time.
class HR_API TrainingRanks {
 public:
  virtual ~TrainingRanks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Replace `values` by their sum over the ranks; NaN and infinity are handed on. An error ends
  /// the training on this rank.
  virtual Result<void> sum(std::span<float> values) = 0;
  virtual Result<void> sum(std::span<double> values) = 0;
  /// Replace `values` by those of rank 0.
  virtual Result<void> copy_from_first(std::span<float> values) = 0;
};

}  // namespace headrace::forecast
