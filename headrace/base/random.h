// SPDX-License-Identifier: Apache-2.0
// Reproducible random numbers: one small generator whose stream depends on its seed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/export.h"

namespace headrace::base {

/// The next number of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014), whose state it moves on.
inline uint64_t split_mix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// Mix a seed and a text (an item id, a purpose) into a new seed; equal inputs give equal seeds on
/// every machine.
HR_API uint64_t derive_seed(uint64_t seed, std::string_view text);
inline uint64_t derive_seed(uint64_t seed, uint64_t number) {
  uint64_t state = seed ^ (number * 0xd1342543de82ef95U);
  split_mix(state);
  return split_mix(state);
}

/// Fill `bytes` from the kernel's generator: for identities that must not meet, never for training.
HR_API void random_bytes(std::span<std::byte> bytes);

/// xoshiro256++ (Blackman & Vigna, ACM TOMS 2021), seeded by SplitMix64. Not thread-safe; copy to
/// fork a stream.
class HR_API Rng {
 public:
  explicit Rng(uint64_t seed);

  uint64_t next();                 ///< 64 uniform bits
  double uniform();                ///< [0, 1), 53 bits
  float uniform_float();           ///< [0, 1), 24 bits
  uint64_t below(uint64_t bound);  ///< uniform in [0, bound), unbiased (Lemire); bound >= 1
  double normal();                 ///< standard normal, polar method (Marsaglia & Bray 1964)
  double gamma(double shape);      ///< unit scale; Marsaglia & Tsang 2000; shape > 0
  uint64_t poisson(
      double mean);  ///< PTRS (Hoermann 1993) above 10, multiplication below; mean >= 0

 private:
  uint64_t state_[4];
  double spare_ = 0.0;
  bool has_spare_ = false;
};

}  // namespace headrace::base
