// SPDX-License-Identifier: Apache-2.0
// Train a small network on all ranks: each takes its part of every batch, and the gradients are
// averaged. The printed losses are the same for any number of ranks that divides 64.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "headrace/comm/environment.h"
#include "headrace/comm/process_set.h"

namespace hc = headrace::comm;

constexpr int kInputs = 4;
constexpr int kHidden = 16;
constexpr int kBatch = 64;  // of all ranks together
constexpr int kSteps = 300;
constexpr double kRate = 0.2;

/// Numbers in [-1, 1) that are the same on every rank and machine.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  double next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 11) * 0x1p-52 - 1.0;
  }

 private:
  uint64_t state_;
};

struct Sample {
  double x[kInputs];
  double y;
};

Sample make_sample(Numbers& numbers) {
  Sample sample{};
  for (double& x : sample.x) {
    x = numbers.next();
  }
  sample.y = std::sin(2.0 * sample.x[0]) + sample.x[1] * sample.x[2] - 0.5 * sample.x[3];
  return sample;
}

/// y = w2 . tanh(W1 x + b1) + b2, with all weights in one array, so that one all_reduce does.
struct Network {
  static constexpr int kWeights = kHidden * (kInputs + 2) + 1;
  std::vector<double> weights = std::vector<double>(kWeights);

  explicit Network(uint64_t seed) {
    Numbers numbers(seed);
    for (double& weight : weights) {
      weight = 0.5 * numbers.next();
    }
  }

  /// Add the gradient of (y - target)^2 to `gradient`; the loss.
  double backward(const Sample& sample, std::span<double> gradient) const {
    const double* const w2 = &weights[kHidden * (kInputs + 1)];
    double hidden[kHidden];
    double y = weights[kWeights - 1];
    for (int h = 0; h < kHidden; ++h) {
      const double* const row = &weights[h * (kInputs + 1)];
      double sum = row[kInputs];
      for (int i = 0; i < kInputs; ++i) {
        sum += row[i] * sample.x[i];
      }
      hidden[h] = std::tanh(sum);
      y += w2[h] * hidden[h];
    }
    const double error = y - sample.y;
    for (int h = 0; h < kHidden; ++h) {
      double* const row = &gradient[h * (kInputs + 1)];
      const double slope = 2.0 * error * w2[h] * (1.0 - hidden[h] * hidden[h]);
      for (int i = 0; i < kInputs; ++i) {
        row[i] += slope * sample.x[i];
      }
      row[kInputs] += slope;
      gradient[kHidden * (kInputs + 1) + h] += 2.0 * error * hidden[h];
    }
    gradient[kWeights - 1] += 2.0 * error;
    return error * error;
  }
};

headrace::Result<void> train(hc::ProcessSet& ranks) {
  if (kBatch % ranks.size() != 0) {
    return headrace::Error{headrace::Errc::invalid_argument,
                           "the number of ranks must divide " + std::to_string(kBatch)};
  }
  const int part = kBatch / ranks.size();
  Network network(7 + static_cast<uint64_t>(ranks.rank()));
  HR_TRY(
      ranks.broadcast({network.weights.data(), Network::kWeights, headrace::Dtype::f64}, 0).wait());
  Numbers numbers(1);
  for (int step = 0; step < kSteps; ++step) {
    // The last value is the loss, which goes along.
    std::vector<double> sums(Network::kWeights + 1);
    for (int i = 0; i < kBatch; ++i) {
      const Sample sample = make_sample(numbers);
      if (i / part == ranks.rank()) {
        sums.back() += network.backward(sample, sums);
      }
    }
    const hc::Buffer buffer{sums.data(), sums.size(), headrace::Dtype::f64};
    HR_TRY(ranks.all_reduce(buffer, hc::Op::sum, {.postscale = 1.0 / kBatch}).wait());
    for (int i = 0; i < Network::kWeights; ++i) {
      network.weights[i] -= kRate * sums[i];
    }
    if (ranks.rank() == 0 && (step + 1) % 100 == 0) {
      std::printf("step %d: loss %.9f\n", step + 1, sums.back());
    }
  }
  return {};
}

int main() {
  auto joined = hc::join_job();
  if (!joined.ok()) {
    std::fprintf(stderr, "%s\n", joined.error().message().c_str());
    return 1;
  }
  const auto ended = train(joined->context->world());
  if (!ended.ok()) {
    std::fprintf(stderr, "%s\n", ended.error().message().c_str());
    return 1;
  }
  return 0;
}
