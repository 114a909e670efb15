// SPDX-License-Identifier: Apache-2.0
// Likelihoods of the kernels against plain formulas in double, on each instruction set.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/forecast/network_internal.h"
#include "headrace/forecast/network_reference.h"
#include "headrace/forecast/network_testing.h"

namespace headrace::forecast {
namespace {

constexpr size_t kWidth = 16;

/// One step of a block, filled by `cell(lane)`, and what the kernel made of it.
struct Rows {
  AlignedVector<float> raw = AlignedVector<float>(3 * kWidth);
  AlignedVector<float> target = AlignedVector<float>(kWidth);
  AlignedVector<float> observed = AlignedVector<float>(kWidth, 1.0F);
  AlignedVector<double> scale = AlignedVector<double>(kWidth, 1.0);
  AlignedVector<double> log_scale = AlignedVector<double>(kWidth);
  AlignedVector<float> mapped = AlignedVector<float>(3 * kWidth);
  AlignedVector<double> nll = AlignedVector<double>(kWidth);
  AlignedVector<float> d_raw = AlignedVector<float>(3 * kWidth);

  void run(Distribution distribution) {
    for (size_t i = 0; i < kWidth; ++i) {
      log_scale[i] = std::log(scale[i]);
    }
    LikelihoodArgs args;
    args.raw = raw.data();
    args.target = target.data();
    args.observed = observed.data();
    args.scale = scale.data();
    args.log_scale = log_scale.data();
    args.width = kWidth;
    args.share = 1.0;
    args.mapped = mapped.data();
    args.nll = nll.data();
    args.d_raw = d_raw.data();
    kernels().distribution.likelihood(distribution, args);
  }
};

void check_lane(Distribution distribution, const Rows& rows, size_t lane) {
  const auto count = static_cast<size_t>(parameter_count(distribution));
  double raw[3] = {};
  double parameters[3] = {};
  double slopes[3] = {};
  for (size_t p = 0; p < count; ++p) {
    raw[p] = static_cast<double>(rows.raw[p * kWidth + lane]);
  }
  reference::map_parameters(distribution, rows.log_scale[lane], raw, parameters, slopes);
  const auto expected = reference::likelihood(distribution, static_cast<double>(rows.target[lane]),
                                              rows.scale[lane], parameters);
  CAPTURE(raw[0]);
  CAPTURE(raw[1]);
  CAPTURE(raw[2]);
  CAPTURE(rows.target[lane]);
  CAPTURE(rows.scale[lane]);
  // The reference subtracts log-gammas of the size of y log(y), and so loses digits the kernel
  // keeps: allow it 1e-15 of that.
  const double y = static_cast<double>(rows.target[lane]);
  const double lost =
      distribution == Distribution::negative_binomial ? 4e-15 * y * std::log(y + 2.0) : 0.0;
  CHECK(std::fabs(rows.nll[lane] - expected.nll) <= 1e-10 + lost + 1e-10 * std::fabs(expected.nll));
  for (size_t p = 0; p < count; ++p) {
    CAPTURE(p);
    CHECK(rows.mapped[p * kWidth + lane] ==
          doctest::Approx(parameters[p]).epsilon(1.2e-7).scale(0.0));
    const double slope = expected.gradient[p] * slopes[p];
    const auto found = static_cast<double>(rows.d_raw[p * kWidth + lane]);
    constexpr double kFloatMax = std::numeric_limits<float>::max();
    if (std::fabs(slope) < kFloatMax) {
      CHECK(std::fabs(found - slope) <= 1e-9 + 2e-7 * std::fabs(slope));
    } else {
      CHECK(std::fabs(found) >= kFloatMax);
    }
  }
}

TEST_CASE("the reference's gamma functions have the published values") {
  // Abramowitz & Stegun tables 6.1 and 6.2: log Gamma(1/2) = log(pi)/2, psi(1) = -Euler's constant,
  // psi(1/2) = -gamma - 2 log 2.
  CHECK(reference::log_gamma(0.5) == doctest::Approx(0.57236494292470009).epsilon(1e-14));
  CHECK(reference::log_gamma(10.0) == doctest::Approx(std::log(362880.0)).epsilon(1e-14));
  CHECK(reference::digamma(1.0) == doctest::Approx(-0.57721566490153286).epsilon(1e-12));
  CHECK(reference::digamma(0.5) == doctest::Approx(-1.96351002602142348).epsilon(1e-12));
}

TEST_CASE("likelihoods have values known by hand") {
  for_each_instruction_set([] {
    // raw such that softplus gives 1: log(e - 1). Student-t with df 3 and sigma 1 has the density
    // 2 / (pi sqrt 3) at its centre; the normal 1 / sqrt(2 pi).
    const auto one = static_cast<float>(std::log(std::exp(1.0) - 1.0));
    Rows rows;
    std::fill(rows.raw.begin(), rows.raw.end(), one);
    std::fill_n(rows.raw.begin() + kWidth, kWidth, 0.0F);
    rows.scale[1] = 4.0;
    rows.run(Distribution::student_t);
    CHECK(rows.nll[0] == doctest::Approx(std::log(M_PI * std::sqrt(3.0) / 2)).epsilon(1e-7));
    CHECK(rows.nll[1] == doctest::Approx(rows.nll[0] + std::log(4.0)).epsilon(1e-7));

    std::fill_n(rows.raw.begin(), kWidth, 0.0F);
    std::fill_n(rows.raw.begin() + kWidth, kWidth, one);
    rows.target[0] = 1.0F;
    rows.run(Distribution::normal);
    CHECK(rows.nll[0] == doctest::Approx(0.5 * std::log(2 * M_PI) + 0.5).epsilon(1e-7));

    // Total count 1, logit 0: geometric, P(y) = 2^-(y+1).
    std::fill_n(rows.raw.begin(), kWidth, one);
    std::fill_n(rows.raw.begin() + kWidth, kWidth, 0.0F);
    rows.scale[1] = 1.0;
    for (size_t lane = 0; lane < kWidth; ++lane) {
      rows.target[lane] = static_cast<float>(lane);
    }
    rows.run(Distribution::negative_binomial);
    for (size_t lane = 0; lane < kWidth; ++lane) {
      const double expected = (static_cast<double>(lane) + 1.0) * std::log(2.0);
      CHECK(rows.nll[lane] == doctest::Approx(expected).epsilon(1e-6));
    }
  });
}

TEST_CASE("likelihoods and gradients are the plain formulas' over wide ranges") {
  for_each_instruction_set([] {
    base::Rng rng(31);
    for (const auto distribution :
         {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
      INFO(distribution_name(distribution));
      for (int round = 0; round < 300; ++round) {
        Rows rows;
        const double spread = round % 3 == 0 ? 1.0 : round % 3 == 1 ? 6.0 : 12.0;
        for (float& raw : rows.raw) {
          raw = static_cast<float>(spread * rng.normal());
        }
        for (size_t lane = 0; lane < kWidth; ++lane) {
          rows.scale[lane] = static_cast<double>(static_cast<float>(
              distribution == Distribution::negative_binomial ? std::exp(2.0 * rng.normal())
                                                              : std::exp(9.0 * rng.normal())));
          rows.target[lane] =
              distribution == Distribution::negative_binomial
                  ? static_cast<float>(std::floor(std::exp(14.0 * rng.uniform()) - 1.0))
                  : static_cast<float>(rows.scale[lane] * 3.0 * rng.normal());
        }
        rows.run(distribution);
        for (size_t lane = 0; lane < kWidth; ++lane) {
          check_lane(distribution, rows, lane);
        }
      }
    }
  });
}

TEST_CASE("heads that saturate give finite parameters, likelihoods and gradients") {
  for_each_instruction_set([] {
    for (const auto distribution :
         {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
      INFO(distribution_name(distribution));
      for (const float first : {-1000.0F, -90.0F, 0.0F, 90.0F, 1000.0F, 1e30F}) {
        for (const float last : {-80.0F, -20.0F, 0.0F, 20.0F, 80.0F}) {
          Rows rows;
          std::fill(rows.raw.begin(), rows.raw.end(), last);
          std::fill_n(rows.raw.begin(), kWidth, first);
          std::fill(rows.target.begin(), rows.target.end(), 3.0F);
          CAPTURE(first);
          CAPTURE(last);
          rows.run(distribution);
          CHECK(std::isfinite(rows.nll[0]));
          for (size_t p = 0; p < static_cast<size_t>(parameter_count(distribution)); ++p) {
            CHECK_FALSE(std::isnan(rows.d_raw[p * kWidth]));
            CHECK(std::isfinite(rows.mapped[p * kWidth]));
          }
        }
      }
    }
  });
}

TEST_CASE("Student-t's sigma stops at float's epsilon and is not pushed further") {
  for_each_instruction_set([] {
    Rows rows;
    std::fill(rows.raw.begin(), rows.raw.end(), -30.0F);  // softplus(-30) = 9e-14
    rows.run(Distribution::student_t);
    CHECK(rows.mapped[2 * kWidth] == std::numeric_limits<float>::epsilon());
    CHECK(rows.d_raw[2 * kWidth] == 0.0F);
    CHECK(rows.mapped[0] == 2.0F);
  });
}

TEST_CASE("mapping alone gives the training step's parameters, without log(scale)") {
  for_each_instruction_set([] {
    base::Rng rng(8);
    for (const auto distribution :
         {Distribution::student_t, Distribution::normal, Distribution::negative_binomial}) {
      Rows rows;
      for (float& raw : rows.raw) {
        raw = static_cast<float>(3.0 * rng.normal());
      }
      rows.run(distribution);
      const AlignedVector<float> from_training = rows.mapped;
      kernels().distribution.map(distribution, rows.raw.data(), nullptr, kWidth,
                                 rows.mapped.data());
      CHECK(rows.mapped == from_training);
    }
  });
}

}  // namespace
}  // namespace headrace::forecast
