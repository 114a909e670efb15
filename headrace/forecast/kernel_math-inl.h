// SPDX-License-Identifier: Apache-2.0
// Vector functions the kernels share, compiled once per target.
#if defined(HEADRACE_FORECAST_KERNEL_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_FORECAST_KERNEL_MATH_INL_H_
#undef HEADRACE_FORECAST_KERNEL_MATH_INL_H_
#else
#define HEADRACE_FORECAST_KERNEL_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::forecast {
namespace HWY_NAMESPACE {

/// `x` held in [-limit, limit]; NaN stays NaN.
template <class D, class V>
HWY_INLINE V clamp_keep_nan(D d, V x, float limit) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V high = hn::Set(d, limit);
  const V low = hn::Set(d, -limit);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // The x86 instructions return their second operand when either is NaN.
  return hn::Min(high, hn::Max(low, x));
#else
  return hn::IfThenElse(x > high, high, hn::IfThenElse(x < low, low, x));
#endif
}

/// tanh(x) = x P(x^2) / Q(x^2), both of degree 4, the minimax fit of the relative error over
/// [0, 8.6] (1.4e-8; tanh(8.6) is 1 - 7e-8); with rounding 3.4e-7. An approximate reciprocal with a
/// correction is no faster than the division, and differs between makers of processors.
template <class D, class V>
HWY_INLINE V tanh_of(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  x = clamp_keep_nan(d, x, 8.6F);
  const V z = x * x;
  V p = hn::MulAdd(z, hn::Set(d, 1.4082504051771139e-08F), hn::Set(d, 2.1122401449247263e-05F));
  V q = hn::MulAdd(z, hn::Set(d, 8.070649073488312e-07F), hn::Set(d, 3.3362722024321556e-04F));
  p = hn::MulAdd(p, z, hn::Set(d, 3.52640263736248e-03F));
  q = hn::MulAdd(q, z, hn::Set(d, 2.599390409886837e-02F));
  p = hn::MulAdd(p, z, hn::Set(d, 1.3406875729560852e-01F));
  q = hn::MulAdd(q, z, hn::Set(d, 4.6740198135375977e-01F));
  p = hn::MulAdd(p, z, hn::Set(d, 1.0F));
  q = hn::MulAdd(q, z, hn::Set(d, 1.0F));
  return p * x / q;
}

/// Transpose a square of as many vectors as they have lanes, in registers.
template <class D, class V>
HWY_INLINE void transpose_square(D d, V* HWY_RESTRICT rows) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr size_t kLanes = HWY_LANES(float);
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(d);
  static_cast<void>(rows);
  static_assert(kLanes == 1, "one lane is its own transpose");
#else
  const hn::RepartitionToWide<D> dw;
  // Within blocks of 4: rows 4g .. 4g+3 become columns.
#pragma GCC unroll 4
  for (size_t g = 0; g < kLanes; g += 4) {
    const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, rows[g], rows[g + 1]));
    const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, rows[g], rows[g + 1]));
    const auto low23 = hn::BitCast(dw, hn::InterleaveLower(d, rows[g + 2], rows[g + 3]));
    const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(d, rows[g + 2], rows[g + 3]));
    rows[g] = hn::BitCast(d, hn::InterleaveLower(dw, low01, low23));
    rows[g + 1] = hn::BitCast(d, hn::InterleaveUpper(dw, low01, low23));
    rows[g + 2] = hn::BitCast(d, hn::InterleaveLower(dw, high01, high23));
    rows[g + 3] = hn::BitCast(d, hn::InterleaveUpper(dw, high01, high23));
  }
#if HWY_TARGET == HWY_AVX2
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const V low = rows[i];
    const V high = rows[i + 4];
    rows[i] = hn::ConcatLowerLower(d, high, low);
    rows[i + 4] = hn::ConcatUpperUpper(d, high, low);
  }
#elif HWY_TARGET == HWY_AVX3
  // Highway 1.0.3 has no name for the shuffle of four blocks out of two vectors.
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const __m512 low01 = _mm512_shuffle_f32x4(rows[i].raw, rows[i + 4].raw, 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(rows[i].raw, rows[i + 4].raw, 0xEE);
    const __m512 low23 = _mm512_shuffle_f32x4(rows[i + 8].raw, rows[i + 12].raw, 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(rows[i + 8].raw, rows[i + 12].raw, 0xEE);
    rows[i] = V{_mm512_shuffle_f32x4(low01, low23, 0x88)};
    rows[i + 4] = V{_mm512_shuffle_f32x4(low01, low23, 0xDD)};
    rows[i + 8] = V{_mm512_shuffle_f32x4(high01, high23, 0x88)};
    rows[i + 12] = V{_mm512_shuffle_f32x4(high01, high23, 0xDD)};
  }
#else
  static_assert(kLanes == 4, "wider vectors need their blocks exchanged too");
#endif
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::forecast
HWY_AFTER_NAMESPACE();

#endif  // HEADRACE_FORECAST_KERNEL_MATH_INL_H_
