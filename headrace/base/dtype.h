// SPDX-License-Identifier: Apache-2.0
// Element types of tensors and columns, and the two 16-bit floats as bit patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/base/export.h"

namespace headrace {

/// Element types, in the order of their wire numbers: these never change.
enum class Dtype : uint8_t { u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64, boolean };

inline constexpr int kDtypes = 13;

/// Bytes of one element.
constexpr size_t dtype_bytes(Dtype dtype) {
  // A digit each, the first one last: an array would be laid out anew at each call.
  return 0x1'8422'8844'2211U >> 4 * static_cast<size_t>(dtype) & 15U;
}

constexpr bool is_floating(Dtype dtype) { return dtype >= Dtype::f16 && dtype <= Dtype::f64; }

/// numpy's name, for messages and Python: "uint8", "bfloat16", "bool".
HR_API std::string_view dtype_name(Dtype dtype);
HR_API std::optional<Dtype> dtype_of_name(std::string_view name);

/// IEEE binary16 and bfloat16 to f32 and back, rounding to nearest even; NaN stays NaN.
HR_API float f32_of_f16(uint16_t bits);
HR_API uint16_t f16_of_f32(float value);
inline float f32_of_bf16(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}
HR_API uint16_t bf16_of_f32(float value);

}  // namespace headrace
