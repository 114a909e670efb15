// SPDX-License-Identifier: Apache-2.0
// The weights of the best epochs, to be averaged or used together.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace headrace::forecast {

/// Keeps the weights with the lowest values; of equal values the earlier stays.
class Snapshots {
 public:
  explicit Snapshots(int count_max) : count_max_(static_cast<size_t>(count_max)) {}

  bool empty() const { return kept_.empty(); }
  double best() const { return kept_.front().first; }

  void offer(double value, std::span<const float> weights) {
    const auto place =
        std::upper_bound(kept_.begin(), kept_.end(), value,
                         [](double v, const Entry& entry) { return v < entry.first; });
    const auto index = place - kept_.begin();
    if (kept_.size() < count_max_) {
      kept_.insert(place, {value, {weights.begin(), weights.end()}});
      return;
    }
    if (static_cast<size_t>(index) >= count_max_) {
      return;
    }
    // The worst one's memory is used again.
    std::rotate(kept_.begin() + index, kept_.end() - 1, kept_.end());
    Entry& entry = kept_[static_cast<size_t>(index)];
    entry.first = value;
    std::copy(weights.begin(), weights.end(), entry.second.begin());
  }

  /// All as they are, best first; or their mean alone.
  std::vector<std::vector<float>> take(bool as_they_are) {
    std::vector<std::vector<float>> sets;
    for (Entry& entry : kept_) {
      sets.push_back(std::move(entry.second));
    }
    kept_.clear();
    if (as_they_are || sets.size() < 2) {
      return sets;
    }
    std::vector<float> mean(sets.front().size());
    for (size_t i = 0; i < mean.size(); ++i) {
      double sum = 0.0;
      for (const std::vector<float>& set : sets) {
        sum += static_cast<double>(set[i]);
      }
      mean[i] = static_cast<float>(sum / static_cast<double>(sets.size()));
    }
    return {std::move(mean)};
  }

 private:
  using Entry = std::pair<double, std::vector<float>>;
  size_t count_max_;
  std::vector<Entry> kept_;
};

}  // namespace headrace::forecast
