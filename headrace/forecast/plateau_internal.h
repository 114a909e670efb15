// SPDX-License-Identifier: Apache-2.0
// Lower the learning rate when the loss no longer falls:
// torch.optim.lr_scheduler.ReduceLROnPlateau.
#pragma once

#include <cmath>
#include <limits>

namespace headrace::forecast {

class Plateau {
 public:
  struct Options {
    double learning_rate = 1e-3;
    int patience = 10;  ///< epochs without improvement that are borne; 0 = the rate stays
    double factor = 0.5;
    double learning_rate_min = 0.0;
    /// torch's relative threshold, or an absolute one. The loss holds log(scale), so that a
    /// relative threshold would make training depend on the unit of the target.
    bool relative = false;
  };

  explicit Plateau(const Options& options) : options_(options), rate_(options.learning_rate) {}

  double learning_rate() const { return rate_; }

  /// Take note of an epoch's loss.
  void step(double loss) {
    if (options_.patience == 0) {
      return;
    }
    const double wanted = options_.relative ? best_ * (1.0 - kThreshold) : best_ - kThreshold;
    if (std::isinf(best_) || loss < wanted) {
      best_ = loss;
      bad_epochs_ = 0;
    } else {
      ++bad_epochs_;
    }
    if (bad_epochs_ > options_.patience) {
      bad_epochs_ = 0;
      const double lower = std::fmax(rate_ * options_.factor, options_.learning_rate_min);
      if (rate_ - lower > kSmallestChange) {
        rate_ = lower;
      }
    }
  }

 private:
  static constexpr double kThreshold = 1e-4;
  static constexpr double kSmallestChange = 1e-8;

  Options options_;
  double rate_;
  double best_ = std::numeric_limits<double>::infinity();
  int bad_epochs_ = 0;
};

}  // namespace headrace::forecast
