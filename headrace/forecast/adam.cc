// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma & Ba 2015) as torch.optim.Adam computes it, behind torch's clip_grad_norm_.
#include <cmath>

#include "headrace/base/check.h"
#include "headrace/forecast/network.h"

namespace headrace::forecast {

Adam::Adam(int64_t parameters, const AdamOptions& options)
    : options_(options),
      first_(static_cast<size_t>(parameters), 0.0F),
      second_(static_cast<size_t>(parameters), 0.0F) {}

double Adam::step(std::span<float> parameters, std::span<float> gradient, double learning_rate) {
  HR_CHECK(parameters.size() == first_.size() && gradient.size() == first_.size(),
           "Adam: parameters and gradient must have the size given at the start");
  double squares = 0.0;
  for (const float g : gradient) {
    squares += static_cast<double>(g) * static_cast<double>(g);
  }
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) {
    return norm;
  }
  ++steps_;
  const double clip = options_.clip_norm > 0.0F
                          ? std::min(1.0, static_cast<double>(options_.clip_norm) / (norm + 1e-6))
                          : 1.0;
  const double correction1 = 1.0 - std::pow(static_cast<double>(options_.beta1), steps_);
  const double correction2 = 1.0 - std::pow(static_cast<double>(options_.beta2), steps_);
  const auto rate = static_cast<float>(learning_rate / correction1);
  const auto root2 = static_cast<float>(std::sqrt(correction2));
  const auto factor = static_cast<float>(clip);
  for (size_t i = 0; i < first_.size(); ++i) {
    gradient[i] *= factor;
    const float g = gradient[i] + options_.weight_decay * parameters[i];
    first_[i] += (1.0F - options_.beta1) * (g - first_[i]);
    second_[i] = options_.beta2 * second_[i] + (1.0F - options_.beta2) * g * g;
    parameters[i] -= rate * first_[i] / (std::sqrt(second_[i]) / root2 + options_.epsilon);
  }
  return norm;
}

}  // namespace headrace::forecast
