// SPDX-License-Identifier: Apache-2.0
// Single to half precision, rounded to the nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace headrace::registry {

/// bfloat16 bits; NaN stays NaN.
inline uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<uint16_t>((bits >> 16U) | 0x40U);
  }
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// IEEE 754 binary16 bits; too large becomes infinity.
inline uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16U) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x7F800000U) {  // infinity or NaN
    return static_cast<uint16_t>(sign | (magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U));
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and above rounds to infinity
    return static_cast<uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: a subnormal, counted in units of 2^-24
    const uint32_t shift = 126U - (magnitude >> 23U);
    if (shift > 24U) {
      return static_cast<uint16_t>(sign);
    }
    const uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1U << shift) - 1U);
    const uint32_t half = 1U << (shift - 1U);
    const uint32_t up = rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U;
    return static_cast<uint16_t>(sign | (kept + up));
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13U));
}

}  // namespace headrace::registry
