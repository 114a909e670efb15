// SPDX-License-Identifier: Apache-2.0
// For tests: the network written the plain way, in double and one number at a time, as what the
// kernels are compared with. Formulas: Hochreiter & Schmidhuber's LSTM with forget gates in torch's
// gate order i f g o; densities as in torch.distributions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/forecast/network.h"

namespace headrace::forecast::reference {

double softplus(double x);
double sigmoid(double x);
double log_gamma(double x);
double digamma(double x);

/// Negative log-likelihood of one target with its gradient by the distribution's parameters.
struct Likelihood {
  double nll = 0.0;
  double gradient[3] = {0.0, 0.0, 0.0};
};

/// `parameters` are those of the distribution on the scaled target: df, mu, sigma; mu, sigma; total
/// count and logit with log(scale) added.
Likelihood likelihood(Distribution distribution, double y, double scale, const double* parameters);

/// From the heads' outputs to the distribution's parameters, and the derivative of each.
void map_parameters(Distribution distribution, double log_scale, const double* raw,
                    double* parameters, double* slopes);

/// One batch as the network sees it. Row-major throughout.
struct Batch {
  int batch = 0;
  int steps = 0;
  std::vector<double> inputs;    ///< [steps][batch][inputs]; embedding columns are filled in
  std::vector<int> categories;   ///< [batch][embeddings]
  std::vector<double> targets;   ///< [steps][batch]
  std::vector<double> observed;  ///< [steps][batch]
  std::vector<double> scales;    ///< [batch]
  std::vector<double> masks;     ///< [layers - 1][steps][batch][hidden] factors; empty: all 1
};

/// Normal inputs, targets that suit the distribution, scales around 1, a fifth of the targets not
/// observed. All values are floats, so that the network reads the same ones.
Batch random_batch(const NetworkShape& shape, int batch, int steps, base::Rng* rng);

/// Puts a batch into a training step.
void fill(const NetworkShape& shape, const Batch& batch, TrainingStep* step);

struct Outcome {
  StepLoss loss;
  std::vector<double> gradient;
  std::vector<double> distributions;  ///< [steps][batch][parameter_count]
};

/// Forward and backward of one batch.
Outcome run(const NetworkShape& shape, std::span<const double> parameters, Batch batch);

/// The largest difference of two vectors, relative to the largest element.
double difference(std::span<const float> found, std::span<const double> expected);

}  // namespace headrace::forecast::reference
