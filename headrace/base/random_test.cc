// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/random.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

using headrace::base::derive_seed;
using headrace::base::Rng;

namespace {

/// Sample mean and variance of `draw` over `count` draws.
std::pair<double, double> moments(int count, const std::function<double()>& draw) {
  double sum = 0.0;
  double squares = 0.0;
  for (int i = 0; i < count; ++i) {
    const double x = draw();
    sum += x;
    squares += x * x;
  }
  const double mean = sum / count;
  return {mean, squares / count - mean * mean};
}

}  // namespace

TEST_CASE("the generator is xoshiro256++ seeded by SplitMix64") {
  // Published SplitMix64 outputs for seed 0 (Vigna's reference) are 0xe220a8397b1dcdaf,
  // 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec; the first xoshiro256++ output is
  // rotl(s0 + s3, 23) + s0.
  Rng rng(0);
  const uint64_t s0 = 0xe220a8397b1dcdafU;
  const uint64_t s3 = 0xf88bb8a8724c81ecU;
  const uint64_t sum = s0 + s3;
  CHECK(rng.next() == ((sum << 23U) | (sum >> 41U)) + s0);
}

TEST_CASE("derived seeds depend on both parts") {
  CHECK(derive_seed(1, "a") == derive_seed(1, "a"));
  CHECK(derive_seed(1, "a") != derive_seed(2, "a"));
  CHECK(derive_seed(1, "a") != derive_seed(1, "b"));
}

TEST_CASE("draws have the moments of their distribution") {
  // Tolerances are five standard errors of the sample mean and, roughly, of the sample variance.
  constexpr int kCount = 200000;
  Rng rng(7);
  const auto check = [&](double mean, double variance, const std::function<double()>& draw) {
    const auto [m, v] = moments(kCount, draw);
    CHECK(std::fabs(m - mean) < 5.0 * std::sqrt(variance / kCount));
    CHECK(std::fabs(v - variance) < 0.05 * variance + 1e-9);
  };
  check(0.5, 1.0 / 12.0, [&] { return rng.uniform(); });
  check(0.0, 1.0, [&] { return rng.normal(); });
  check(0.3, 0.3, [&] { return rng.gamma(0.3); });
  check(4.0, 4.0, [&] { return rng.gamma(4.0); });
  check(3.0, 3.0, [&] { return static_cast<double>(rng.poisson(3.0)); });
  check(50.0, 50.0, [&] { return static_cast<double>(rng.poisson(50.0)); });
  check(4.5, 8.25, [&] { return static_cast<double>(rng.below(10)); });
}
