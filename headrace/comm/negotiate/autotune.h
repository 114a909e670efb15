// SPDX-License-Identifier: Apache-2.0
// Looks for the settings of the named mode under which a training step waits least.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headrace/base/export.h"

namespace headrace::comm {

/// What is tuned: it changes how fast operations are, never what they give.
struct Tuned {
  uint64_t fusion_bytes = 0;
  std::chrono::microseconds cycle_time{0};
  bool operator==(const Tuned&) const = default;
};

struct AutotuneOptions {
  int warmup_samples = 3;  ///< whose scores do not count
  int steps_per_sample = 10;
  int samples_most = 20;
  bool fusion_fixed = false;  ///< the user has chosen it
  bool cycle_fixed = false;
  bool cache_enabled = true;  ///< told in the log
  std::string log = {};       ///< CSV file, a row for each sample and the best one last; "": none
  std::string folder = {};    ///< where the winners of earlier runs are kept; "": nowhere
};

/// One rank has it, and tells the others what to use. A step ends when a name comes again. Its
/// score is the time that this rank has waited in it for operations: what computing did not hide.
/// From the settings at the start it goes to neighbours on a grid as long as one is better by 2 %.
class HR_API Autotuner {
 public:
  Autotuner(AutotuneOptions options, int ranks, Tuned start);
  ~Autotuner();
  Autotuner(const Autotuner&) = delete;
  Autotuner& operator=(const Autotuner&) = delete;

  /// A tensor is submitted; `waited`: seconds that this rank has waited so far. What all ranks are
  /// to use from now on, when that changes.
  std::optional<Tuned> submitted(std::string_view name, uint64_t bytes, double waited);
  /// The search is over.
  bool done() const { return done_; }
  const Tuned& best() const { return best_; }

 private:
  using Place = std::pair<size_t, size_t>;  // in the lists of candidates

  std::optional<Tuned> end_step(double seconds);
  std::optional<Tuned> end_sample(double score);
  std::optional<Place> neighbour() const;
  Tuned at(Place place) const { return {fusions_[place.first], cycles_[place.second]}; }
  std::optional<Tuned> finish();
  void note(const Tuned& tuned, double score);
  std::string winner_file() const;
  std::optional<Tuned> winner_before() const;
  void keep_winner() const;

  const AutotuneOptions options_;
  const int ranks_;
  std::ofstream log_;
  bool done_ = false;

  // The step under way.
  std::unordered_set<std::string> names_;
  uint64_t signature_ = 0;
  double waited_before_ = 0;

  // The training step: of those that came more than once the one with most tensors in all. Others
  // (evaluation, a step with a metric beside the gradients) do not count.
  std::unordered_map<uint64_t, uint64_t> weights_;  // tensors so far, by signature
  uint64_t main_ = 0;
  size_t main_tensors_ = 0;
  std::vector<double> seconds_;  // of the sample under way

  std::vector<uint64_t> fusions_;
  std::vector<std::chrono::microseconds> cycles_;
  int warmups_left_;
  std::map<Place, double> scores_;
  Place now_;
  Place best_place_;
  Tuned best_;
};

}  // namespace headrace::comm
