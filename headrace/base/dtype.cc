// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/dtype.h"

#include <bit>
#include <cmath>

namespace headrace {

namespace {

constexpr std::string_view kNames[kDtypes] = {"uint8",   "int8",    "uint16", "int16",   "uint32",
                                              "int32",   "uint64",  "int64",  "float16", "bfloat16",
                                              "float32", "float64", "bool"};

}  // namespace

std::string_view dtype_name(Dtype dtype) { return kNames[static_cast<size_t>(dtype)]; }

std::optional<Dtype> dtype_of_name(std::string_view name) {
  for (size_t i = 0; i < kDtypes; ++i) {
    if (kNames[i] == name) {
      return static_cast<Dtype>(i);
    }
  }
  return std::nullopt;
}

float f32_of_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1F) {
    return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  }
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, which f32 holds exactly
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t f16_of_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t rest = bits & 0x7FFFFFFFU;
  if (rest > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | ((rest >> 13) & 0x1FFU));
  }
  if (rest >= 0x477FF000U) {  // 65520 and above round to infinity
    return static_cast<uint16_t>(sign | 0x7C00U);
  }
  if (rest < 0x38800000U) {  // below 2^-14: a multiple of 2^-24, rounded by the addition
    const float shifted = std::bit_cast<float>(rest) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t odd = (rest >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((rest - 0x38000000U + 0xFFFU + odd) >> 13));
}

uint16_t bf16_of_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace headrace
