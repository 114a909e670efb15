// SPDX-License-Identifier: Apache-2.0
// Which part of a training's work this rank does, and the sums over all parts.
#pragma once

#include <cstdint>
#include <span>

#include "headrace/base/result.h"
#include "headrace/forecast/training_ranks.h"
#include "headrace/forecast/windows_internal.h"

namespace headrace::forecast {

/// Without ranks the whole is this one's part.
class Sharing {
 public:
  explicit Sharing(TrainingRanks* ranks) : ranks_(ranks) {}

  bool is_shared() const { return ranks_ != nullptr && ranks_->size() > 1; }
  /// Of `count` things, those of this rank: contiguous, in the order of ranks, as equal as may be.
  RowRange part(int64_t count) const {
    if (!is_shared()) {
      return {0, static_cast<int>(count)};
    }
    const int64_t first = count * ranks_->rank() / ranks_->size();
    const int64_t end = count * (ranks_->rank() + 1) / ranks_->size();
    return {static_cast<int>(first), static_cast<int>(end - first)};
  }
  Result<void> sum(std::span<float> values) const {
    return is_shared() ? ranks_->sum(values) : Result<void>();
  }
  Result<void> sum(std::span<double> values) const {
    return is_shared() ? ranks_->sum(values) : Result<void>();
  }
  Result<void> copy_from_first(std::span<float> values) const {
    return is_shared() ? ranks_->copy_from_first(values) : Result<void>();
  }

 private:
  TrainingRanks* ranks_;
};

}  // namespace headrace::forecast
