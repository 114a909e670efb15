// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/random.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cmath>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "headrace/base/check.h"

namespace headrace::base {

namespace {

// lgamma_r: std::lgamma writes the global signgam, a data race between threads.
double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

}  // namespace

void random_bytes(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    HR_CHECK(count > 0 || errno == EINTR, "getrandom");
    bytes = bytes.subspan(count > 0 ? static_cast<size_t>(count) : 0);
  }
}

uint64_t derive_seed(uint64_t seed, std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

Rng::Rng(uint64_t seed) : state_{} {
  for (uint64_t& word : state_) {
    word = split_mix(seed);
  }
}

uint64_t Rng::next() {
  const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const uint64_t t = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Rng::uniform() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

float Rng::uniform_float() { return static_cast<float>(next() >> 40U) * 0x1.0p-24F; }

uint64_t Rng::below(uint64_t bound) {
  HR_DCHECK(bound >= 1, "below needs a positive bound");
  using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next()) * bound;
  auto low = static_cast<uint64_t>(product);
  if (low < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (low < threshold) {
      product = static_cast<Wide>(next()) * bound;
      low = static_cast<uint64_t>(product);
    }
  }
  return static_cast<uint64_t>(product >> 64U);
}

double Rng::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double u = 0.0;
  double v = 0.0;
  double s = 0.0;
  do {
    u = 2.0 * uniform() - 1.0;
    v = 2.0 * uniform() - 1.0;
    s = u * u + v * v;
  } while (s >= 1.0 || s == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(s) / s);
  spare_ = v * factor;
  has_spare_ = true;
  return u * factor;
}

double Rng::gamma(double shape) {
  if (shape < 1.0) {
    const double boosted = gamma(shape + 1.0);
    double u = uniform();
    while (u == 0.0) {
      u = uniform();
    }
    return boosted * std::exp(std::log(u) / shape);
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = normal();
    const double t = 1.0 + c * x;
    if (t <= 0.0) {
      continue;
    }
    const double v = t * t * t;
    const double u = uniform();
    if (u < 1.0 - 0.0331 * (x * x) * (x * x) ||
        (u > 0.0 && std::log(u) < 0.5 * x * x + d * (1.0 - v + std::log(v)))) {
      return d * v;
    }
  }
}

uint64_t Rng::poisson(double mean) {
  if (!(mean > 0.0)) {
    return 0;
  }
  if (mean < 10.0) {
    const double limit = std::exp(-mean);
    uint64_t count = 0;
    for (double product = uniform(); product > limit; product *= uniform()) {
      ++count;
    }
    return count;
  }
  const double log_mean = std::log(mean);
  const double b = 0.931 + 2.53 * std::sqrt(mean);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double v_r = 0.9277 - 3.6224 / (b - 2.0);
  for (;;) {
    const double u = uniform() - 0.5;
    const double v = uniform();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2.0 * a / us + b) * u + mean + 0.43);
    if (us >= 0.07 && v <= v_r) {
      return static_cast<uint64_t>(k);
    }
    if (k < 0.0 || (us < 0.013 && v > us)) {
      continue;
    }
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        k * log_mean - mean - log_gamma(k + 1.0)) {
      return static_cast<uint64_t>(k);
    }
  }
}

}  // namespace headrace::base
