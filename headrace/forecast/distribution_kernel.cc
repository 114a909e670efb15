// SPDX-License-Identifier: Apache-2.0
// Likelihoods of the output distributions with their gradients, in f64: they are 1 % of a training
// step's time, and the differences of log-gammas keep their digits. Formulas: torch.distributions
// as GluonTS uses them.
#include "headrace/base/kernel_targets.h"
#include "headrace/forecast/kernels.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/forecast/distribution_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace headrace::forecast {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;
using F = hn::Rebind<float, D>;  // half a vector of floats

constexpr size_t kLanes = HWY_LANES(double) == 0 ? 1 : HWY_LANES(double);

HWY_INLINE V load(const float* from) { return hn::PromoteTo(D(), hn::LoadU(F(), from)); }
HWY_INLINE void store(V value, float* to) { hn::StoreU(hn::DemoteTo(F(), value), F(), to); }
HWY_INLINE V set(double value) { return hn::Set(D(), value); }

struct ValueAndSlope {
  V value;
  V slope;
};

/// log(1 + e^x) and its derivative, the logistic function.
HWY_INLINE ValueAndSlope softplus(V x) {
  const D d;
  const V e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const V share = set(1.0) / (set(1.0) + e);
  return {hn::Max(x, hn::Zero(d)) + hn::Log1p(d, e),
          hn::IfThenElse(x >= hn::Zero(d), share, e * share)};
}

/// log(Gamma(x)) and psi(x) for x > 0. Below 8 the argument is raised by the recurrence: with
/// p = x (x+1) ... the sum of 1/(x+i) is p'/p, so that one logarithm and one division do for all.
/// From 8 on Stirling's series (Abramowitz & Stegun 6.1.41, 6.3.18); its first left-out term is
/// below 1e-12.
HWY_INLINE ValueAndSlope log_gamma(V x) {
  const D d;
  const V one = set(1.0);
  const V limit = set(8.0);
  V p = one;
  V slope_p = hn::Zero(d);
  for (int i = 0; i < 8; ++i) {
    const auto low = x < limit;
    slope_p = hn::IfThenElse(low, hn::MulAdd(slope_p, x, p), slope_p);
    p = hn::IfThenElse(low, p * x, p);
    x = hn::IfThenElse(low, x + one, x);
  }
  const V r = one / x;
  const V z = r * r;
  V series = hn::MulAdd(z, set(-691.0 / 360360.0), set(1.0 / 1188.0));
  series = hn::MulAdd(z, series, set(-1.0 / 1680.0));
  series = hn::MulAdd(z, series, set(1.0 / 1260.0));
  series = hn::MulAdd(z, series, set(-1.0 / 360.0));
  series = hn::MulAdd(z, series, set(1.0 / 12.0));
  V psi = hn::MulAdd(z, set(691.0 / 32760.0), set(-1.0 / 132.0));
  psi = hn::MulAdd(z, psi, set(1.0 / 240.0));
  psi = hn::MulAdd(z, psi, set(-1.0 / 252.0));
  psi = hn::MulAdd(z, psi, set(1.0 / 120.0));
  psi = hn::MulAdd(z, psi, set(-1.0 / 12.0));
  const V log_x = hn::Log(d, x);
  constexpr double kHalfLogTwoPi = 0.91893853320467274178;
  const V stirling = hn::MulAdd(x - set(0.5), log_x, set(kHalfLogTwoPi) - x);
  return {hn::MulAdd(r, series, stirling) - hn::Log(d, p),
          hn::MulAdd(z, psi, hn::NegMulAdd(set(0.5), r, log_x)) - slope_p / p};
}

/// G(x) = log Gamma(x) - log Gamma(x + 1/2) + log(x) / 2 and its derivative for x >= 1. A smooth
/// function of y = 1/x without the cancellation of its parts: G = y H(y), H a polynomial fitted on
/// [0, 1] (error of G 7e-12, of G' 2e-10).
HWY_INLINE ValueAndSlope half_step_log_gamma(V x) {
  constexpr double kH[] = {-7.88011007908316e-05, 0.0005412517446789044, -0.0016241821943154557,
                           0.0026961337895283614, -0.002388253539169333, 0.0003345683278845418,
                           0.0015041404431819336, 6.031986716980675e-06, -0.005208658760142891,
                           6.963822694276006e-09, 0.12499999997499134};
  const V y = set(1.0) / x;
  V h = set(kH[0]);
  V slope = hn::Zero(D());
  for (size_t i = 1; i < sizeof(kH) / sizeof(kH[0]); ++i) {
    slope = hn::MulAdd(slope, y, h);
    h = hn::MulAdd(h, y, set(kH[i]));
  }
  return {y * h, hn::Neg(y * y) * hn::MulAdd(y, slope, h)};
}

/// Parameters of the distribution for one vector of rows, and their slopes by the heads' outputs.
struct Mapped {
  V value[3];
  V slope[3];
};

HWY_INLINE Mapped map_student_t(const V* raw) {
  constexpr double kFloor = 1.1920928955078125e-07;  // float's epsilon
  const ValueAndSlope df = softplus(raw[0]);
  const ValueAndSlope sigma = softplus(raw[2]);
  const auto floored = sigma.value < set(kFloor);
  return {{set(2.0) + df.value, raw[1], hn::IfThenElse(floored, set(kFloor), sigma.value)},
          {df.slope, set(1.0), hn::IfThenZeroElse(floored, sigma.slope)}};
}

HWY_INLINE Mapped map_normal(const V* raw) {
  const ValueAndSlope sigma = softplus(raw[1]);
  return {{raw[0], sigma.value, sigma.value}, {set(1.0), sigma.slope, sigma.slope}};
}

/// The floor keeps log Gamma and psi finite where the softplus underflows.
HWY_INLINE Mapped map_negative_binomial(const V* raw, V log_scale) {
  const ValueAndSlope total = softplus(raw[0]);
  const V logit = raw[1] + log_scale;
  return {{hn::Max(total.value, set(1e-300)), logit, logit}, {total.slope, set(1.0), set(1.0)}};
}

template <Distribution kDistribution>
HWY_INLINE Mapped map_lanes(const V* raw, V log_scale) {
  if constexpr (kDistribution == Distribution::student_t) {
    return map_student_t(raw);
  } else if constexpr (kDistribution == Distribution::normal) {
    return map_normal(raw);
  } else {
    return map_negative_binomial(raw, log_scale);
  }
}

/// Negative log-likelihood and its gradient by the distribution's parameters.
struct Likelihood {
  V nll;
  V slope[3];
};

HWY_INLINE Likelihood student_t(const V* parameters, V z, V log_scale) {
  const D d;
  constexpr double kHalfLogTwoPi = 0.91893853320467274178;
  const V df = parameters[0];
  const V sigma = parameters[2];
  const V u = (z - parameters[1]) / sigma;
  const V square = u * u;
  const V spread = hn::Log1p(d, square / df);
  const V w = (df + set(1.0)) / (df + square);
  const ValueAndSlope g = half_step_log_gamma(set(0.5) * df);
  const V half = set(0.5);
  return {hn::Log(d, sigma) + set(kHalfLogTwoPi) + g.value + log_scale +
              half * (df + set(1.0)) * spread,
          {half * (g.slope + spread - w * square / df), hn::Neg(w * u) / sigma,
           (set(1.0) - w * square) / sigma}};
}

HWY_INLINE Likelihood normal(const V* parameters, V z, V log_scale) {
  constexpr double kHalfLogTwoPi = 0.91893853320467274178;
  const V sigma = parameters[1];
  const V u = (z - parameters[0]) / sigma;
  const V square = u * u;
  const V slope = (set(1.0) - square) / sigma;
  return {hn::Log(D(), sigma) + set(kHalfLogTwoPi) + hn::MulAdd(set(0.5), square, log_scale),
          {hn::Neg(u) / sigma, slope, slope}};
}

/// With q = sigmoid(logit): log q = -softplus(-logit), log(1 - q) = -softplus(logit).
HWY_INLINE Likelihood negative_binomial(const V* parameters, V y) {
  const V total = parameters[0];
  const ValueAndSlope fail = softplus(parameters[1]);
  const V success = fail.value - parameters[1];
  const ValueAndSlope joint = log_gamma(y + total);
  const ValueAndSlope own = log_gamma(total);
  const ValueAndSlope count = log_gamma(y + set(1.0));
  const V slope = hn::NegMulAdd(y, set(1.0) - fail.slope, total * fail.slope);
  return {own.value + count.value - joint.value + total * fail.value + y * success,
          {own.slope - joint.slope + fail.value, slope, slope}};
}

template <Distribution kDistribution>
constexpr size_t count_of() {
  return kDistribution == Distribution::student_t ? 3 : 2;
}

/// NaN where a head's output is NaN or infinite, else 0: the functions above do not all keep it.
template <size_t kCount>
HWY_INLINE V poison(const V* raw) {
  V sum = hn::Zero(D());
  for (size_t p = 0; p < kCount; ++p) {
    sum = hn::MulAdd(raw[p], hn::Zero(D()), sum);
  }
  return sum;
}

template <Distribution kDistribution>
void map_rows(const float* raw, const double* log_scale, size_t width, float* mapped) {
  constexpr size_t kCount = count_of<kDistribution>();
  const D d;
  for (size_t lane = 0; lane < width; lane += kLanes) {
    V values[kCount];
    for (size_t p = 0; p < kCount; ++p) {
      values[p] = load(raw + p * width + lane);
    }
    const V bad = poison<kCount>(values);
    const Mapped m = map_lanes<kDistribution>(
        values, log_scale == nullptr ? hn::Zero(d) : hn::LoadU(d, log_scale + lane));
    for (size_t p = 0; p < kCount; ++p) {
      store(m.value[p] + bad, mapped + p * width + lane);
    }
  }
}

template <Distribution kDistribution>
void likelihood_rows(const LikelihoodArgs& a) {
  constexpr size_t kCount = count_of<kDistribution>();
  const D d;
  for (size_t lane = 0; lane < a.width; lane += kLanes) {
    V raw[kCount];
    for (size_t p = 0; p < kCount; ++p) {
      raw[p] = load(a.raw + p * a.width + lane);
    }
    const V y = load(a.target + lane);
    const V scale = hn::LoadU(d, a.scale + lane);
    const V log_scale = hn::LoadU(d, a.log_scale + lane);
    const V observed = load(a.observed + lane);
    const V bad = poison<kCount>(raw) + y * hn::Zero(d);
    const Mapped m = map_lanes<kDistribution>(raw, log_scale);
    Likelihood one;
    if constexpr (kDistribution == Distribution::student_t) {
      one = student_t(m.value, y / scale, log_scale);
    } else if constexpr (kDistribution == Distribution::normal) {
      one = normal(m.value, y / scale, log_scale);
    } else {
      one = negative_binomial(m.value, y);
    }
    // What was not observed counts as 0, whatever its likelihood would be.
    const auto unseen = observed == hn::Zero(d);
    hn::StoreU(hn::IfThenZeroElse(unseen, observed * (one.nll + bad)), d, a.nll + lane);
    const V share = observed * set(a.share);
    for (size_t p = 0; p < kCount; ++p) {
      store(m.value[p] + bad, a.mapped + p * a.width + lane);
      const V slope = share * one.slope[p] * m.slope[p] + bad;
      store(hn::IfThenZeroElse(unseen, slope), a.d_raw + p * a.width + lane);
    }
  }
}

void map(Distribution distribution, const float* raw, const double* log_scale, size_t width,
         float* mapped) {
  switch (distribution) {
    case Distribution::student_t:
      return map_rows<Distribution::student_t>(raw, log_scale, width, mapped);
    case Distribution::normal: return map_rows<Distribution::normal>(raw, log_scale, width, mapped);
    case Distribution::negative_binomial:
      return map_rows<Distribution::negative_binomial>(raw, log_scale, width, mapped);
  }
}

void likelihood(Distribution distribution, const LikelihoodArgs& args) {
  switch (distribution) {
    case Distribution::student_t: return likelihood_rows<Distribution::student_t>(args);
    case Distribution::normal: return likelihood_rows<Distribution::normal>(args);
    case Distribution::negative_binomial:
      return likelihood_rows<Distribution::negative_binomial>(args);
  }
}

}  // namespace

DistributionKernels make_distribution_kernels() { return {&map, &likelihood}; }

}  // namespace HWY_NAMESPACE
}  // namespace headrace::forecast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::forecast {

HWY_EXPORT(make_distribution_kernels);

DistributionKernels distribution_kernels(int64_t target) {
  return HWY_DISPATCH_TABLE(make_distribution_kernels)[base::target_index(target)]();
}

}  // namespace headrace::forecast
#endif
