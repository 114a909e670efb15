// SPDX-License-Identifier: Apache-2.0
// Element-wise part of Adam, in torch's order of operations, and the norm of a gradient.
#include "headrace/base/kernel_targets.h"
#include "headrace/forecast/kernels.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/forecast/adam_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace headrace::forecast {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Lane-wise sums in f64, four apart, then the remainder one by one.
double squares(const float* values, size_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> f;
  const size_t lanes = hn::Lanes(d);
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto first = hn::PromoteTo(d, hn::LoadU(f, values + i));
    const auto second = hn::PromoteTo(d, hn::LoadU(f, values + i + lanes));
    even = hn::MulAdd(first, first, even);
    odd = hn::MulAdd(second, second, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, even + odd));
  for (; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

/// One vector of parameters at `i`; with a capped tag of one lane it does the remainder.
template <class D>
HWY_INLINE void step_at(D d, const AdamArgs& a, size_t i) {
  const auto gradient = hn::LoadU(d, a.gradient + i) * hn::Set(d, a.clip);
  hn::StoreU(gradient, d, a.gradient + i);
  const auto parameter = hn::LoadU(d, a.parameters + i);
  const auto g = hn::MulAdd(hn::Set(d, a.weight_decay), parameter, gradient);
  auto first = hn::LoadU(d, a.first + i);
  first = hn::MulAdd(hn::Set(d, a.share1), g - first, first);
  hn::StoreU(first, d, a.first + i);
  auto second = hn::LoadU(d, a.second + i) * hn::Set(d, a.beta2);
  second = hn::MulAdd(hn::Set(d, a.share2) * g, g, second);
  hn::StoreU(second, d, a.second + i);
  const auto spread = hn::Sqrt(second) / hn::Set(d, a.root2) + hn::Set(d, a.epsilon);
  hn::StoreU(parameter - hn::Set(d, a.rate) * first / spread, d, a.parameters + i);
}

void step(const AdamArgs& a) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= a.count; i += lanes) {
    step_at(d, a, i);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < a.count; ++i) {
    step_at(one, a, i);
  }
}

}  // namespace

AdamKernels make_adam_kernels() { return {&squares, &step}; }

}  // namespace HWY_NAMESPACE
}  // namespace headrace::forecast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::forecast {

HWY_EXPORT(make_adam_kernels);

AdamKernels adam_kernels(int64_t target) {
  return HWY_DISPATCH_TABLE(make_adam_kernels)[base::target_index(target)]();
}

}  // namespace headrace::forecast
#endif
