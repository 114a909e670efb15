// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma & Ba 2015) as torch.optim.Adam computes it, behind torch's clip_grad_norm_.
#include <algorithm>
#include <cmath>

#include "headrace/base/check.h"
#include "headrace/forecast/kernels.h"
#include "headrace/forecast/network.h"

namespace headrace::forecast {

Adam::Adam(int64_t parameters, const AdamOptions& options)
    : options_(options),
      first_(static_cast<size_t>(parameters), 0.0F),
      second_(static_cast<size_t>(parameters), 0.0F) {}

double Adam::step(std::span<float> parameters, std::span<float> gradient, double learning_rate) {
  HR_CHECK(parameters.size() == first_.size() && gradient.size() == first_.size(),
           "Adam: parameters and gradient must have the size given at the start");
  const AdamKernels& kernel = kernels().adam;
  const double norm = std::sqrt(kernel.squares(gradient.data(), gradient.size()));
  if (!std::isfinite(norm)) {
    return norm;
  }
  ++steps_;
  const auto step = static_cast<double>(steps_);
  AdamArgs args;
  args.parameters = parameters.data();
  args.gradient = gradient.data();
  args.first = first_.data();
  args.second = second_.data();
  args.count = first_.size();
  args.clip = options_.clip_norm > 0.0
                  ? static_cast<float>(std::min(1.0, options_.clip_norm / (norm + 1e-6)))
                  : 1.0F;
  args.weight_decay = static_cast<float>(options_.weight_decay);
  args.beta2 = static_cast<float>(options_.beta2);
  args.share1 = static_cast<float>(1.0 - options_.beta1);
  args.share2 = static_cast<float>(1.0 - options_.beta2);
  args.rate = static_cast<float>(learning_rate / (1.0 - std::pow(options_.beta1, step)));
  args.root2 = static_cast<float>(std::sqrt(1.0 - std::pow(options_.beta2, step)));
  args.epsilon = static_cast<float>(options_.epsilon);
  kernel.step(args);
  return norm;
}

}  // namespace headrace::forecast
