// SPDX-License-Identifier: Apache-2.0
// Integers in bytes, least significant first, as all of wire's formats have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::wire {

template <typename T>
void put(std::string* out, T value) {
  const auto bits = static_cast<uint64_t>(value);
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>((bits >> (8 * i)) & 0xffU));
  }
}

/// REQUIRES offset + sizeof(T) <= bytes.size().
template <typename T>
T get(std::string_view bytes, size_t offset) {
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    bits |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  }
  return static_cast<T>(bits);
}

}  // namespace headrace::wire
