// SPDX-License-Identifier: Apache-2.0
// Single kernels of the network, on each instruction set.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/forecast/network_internal.h"
#include "headrace/forecast/network_testing.h"

namespace headrace::forecast {
namespace {

/// tanh(x) of the kernels for `values`: the g gate of one unit whose only weight is 1.
std::vector<float> kernel_tanh(const std::vector<float>& values) {
  constexpr size_t kWidth = 16;
  const AlignedVector<float> weights = {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};  // x, h, bias
  AlignedVector<float> h(2 * kWidth);
  AlignedVector<float> saved(kSaved * kWidth);
  AlignedVector<float> c_before(kSaved * kWidth);
  AlignedVector<float> x(kWidth);
  AlignedVector<float> out(kWidth);
  std::vector<float> result;
  for (size_t first = 0; first < values.size(); first += kWidth) {
    for (size_t i = 0; i < kWidth; ++i) {
      x[i] = first + i < values.size() ? values[first + i] : 0.0F;
    }
    ForwardArgs args;
    args.weights = weights.data();
    args.x = x.data();
    args.inputs = 1;
    args.h_before = h.data();
    args.hidden = 1;
    args.width = kWidth;
    args.c_before = c_before.data();
    args.saved = saved.data();
    args.c_after = saved.data() + 4 * kWidth;
    args.c_stride = kSaved * kWidth;
    args.h = out.data();
    kernels().lstm.forward(args);
    for (size_t i = 0; i < kWidth && result.size() < values.size(); ++i) {
      result.push_back(saved[2 * kWidth + i]);
    }
  }
  return result;
}

TEST_CASE("tanh is within 4e-7 of the exact value, relatively, over all magnitudes") {
  std::vector<float> values;
  for (int exponent = -120; exponent <= 100; ++exponent) {
    for (int i = 0; i < 64; ++i) {
      values.push_back(std::ldexp(1.0F + static_cast<float>(i) / 64.0F, exponent));
    }
  }
  for (float x = 0.0F; x < 10.0F; x += 0.0007F) {
    values.push_back(x);
  }
  for (size_t i = 0, count = values.size(); i < count; ++i) {
    values.push_back(-values[i]);
  }
  for_each_instruction_set([&] {
    const auto found = kernel_tanh(values);
    double worst = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double exact = std::tanh(static_cast<double>(values[i]));
      if (exact != 0.0) {
        worst = std::max(worst, std::fabs(static_cast<double>(found[i]) / exact - 1.0));
      }
    }
    CHECK(worst < 4e-7);
    CHECK(kernel_tanh({0.0F})[0] == 0.0F);
    CHECK(kernel_tanh({INFINITY})[0] == doctest::Approx(1.0).epsilon(4e-7));
    CHECK(kernel_tanh({-INFINITY})[0] == doctest::Approx(-1.0).epsilon(4e-7));
    CHECK(std::isnan(kernel_tanh({NAN})[0]));
  });
}

std::vector<uint8_t> dropout_bits(uint64_t key, float rate, size_t hidden, size_t width,
                                  uint32_t first_row) {
  std::vector<uint8_t> keep(hidden * width / 8 + 8);
  DropoutArgs args;
  args.key = key;
  args.threshold = dropout_threshold(rate);
  args.first_row = first_row;
  args.hidden = hidden;
  args.width = width;
  args.keep = keep.data();
  kernels().lstm.dropout(args);
  keep.resize(hidden * width / 8);
  return keep;
}

int count_bits(const std::vector<uint8_t>& bytes) {
  int count = 0;
  for (const uint8_t byte : bytes) {
    count += std::popcount(byte);
  }
  return count;
}

TEST_CASE("dropout drops its share, evenly over units, rows and keys") {
  for_each_instruction_set([] {
    for (const float rate : {0.01F, 0.1F, 0.5F, 0.9F}) {
      CAPTURE(rate);
      constexpr size_t kHidden = 64;
      constexpr int kKeys = 200;
      const double p = 1.0 - static_cast<double>(rate);
      int all = 0;
      std::vector<int> by_row(32);
      for (int key = 0; key < kKeys; ++key) {
        const auto keep = dropout_bits(static_cast<uint64_t>(key), rate, kHidden, 32, 0);
        all += count_bits(keep);
        for (size_t bit = 0; bit < keep.size() * 8; ++bit) {
          by_row[bit % 32] += keep[bit / 8] >> (bit % 8) & 1;
        }
      }
      // Five standard errors of a binomial share.
      const double cells = static_cast<double>(kKeys) * kHidden;
      CHECK(std::fabs(all / (32 * cells) - p) < 5 * std::sqrt(p * (1 - p) / (32 * cells)));
      for (const int row : by_row) {
        CHECK(std::fabs(row / cells - p) < 5 * std::sqrt(p * (1 - p) / cells));
      }
    }
  });
}

TEST_CASE("neighbouring units, rows and keys drop independently") {
  // The share of cells kept in both of two neighbours is p^2 if they are independent.
  constexpr size_t kHidden = 128;
  constexpr int kKeys = 200;
  int units = 0;
  int rows = 0;
  int keys = 0;
  std::vector<uint8_t> last = dropout_bits(0, 0.5F, kHidden, 32, 0);
  for (int key = 1; key <= kKeys; ++key) {
    const auto keep = dropout_bits(static_cast<uint64_t>(key), 0.5F, kHidden, 32, 0);
    for (size_t byte = 0; byte < keep.size(); ++byte) {
      units += std::popcount(static_cast<uint8_t>(keep[byte] & keep[(byte + 4) % keep.size()]));
      rows += std::popcount(static_cast<uint8_t>(keep[byte] & keep[byte] << 1));
      keys += std::popcount(static_cast<uint8_t>(keep[byte] & last[byte]));
    }
    last = keep;
  }
  const double cells = static_cast<double>(kKeys) * kHidden * 32;
  const double error = 5 * std::sqrt(0.25 * 0.75 / cells);
  CHECK(std::fabs(units / cells - 0.25) < error);
  CHECK(std::fabs(rows / (cells * 7 / 8) - 0.25) < error * 1.1);
  CHECK(std::fabs(keys / cells - 0.25) < error);
}

TEST_CASE("dropout has the same bits on every instruction set and however rows are blocked") {
  std::vector<std::vector<uint8_t>> all;
  for_each_instruction_set([&] {
    all.push_back(dropout_bits(5, 0.3F, 10, 32, 64));
    const auto halves = dropout_bits(5, 0.3F, 10, 16, 64);
    for (size_t unit = 0; unit < 10; ++unit) {
      CHECK(all.back()[unit * 4] == halves[unit * 2]);
      CHECK(all.back()[unit * 4 + 1] == halves[unit * 2 + 1]);
    }
    CHECK(all.back() == all.front());
  });
}

TEST_CASE("transposition moves every number to its place") {
  for_each_instruction_set([] {
    for (const size_t width : {16U, 32U}) {
      for (const size_t columns : {0U, 1U, 15U, 16U, 17U, 48U}) {
        CAPTURE(columns);
        const size_t stride = columns + 3;
        AlignedVector<float> in(width * stride + kTransposeSlack);
        for (size_t i = 0; i < in.size(); ++i) {
          in[i] = static_cast<float>(i);
        }
        AlignedVector<float> out(columns * width + 1, -1.0F);
        kernels().lstm.transpose(in.data(), stride, columns, width, out.data());
        for (size_t column = 0; column < columns; ++column) {
          for (size_t row = 0; row < width; ++row) {
            CHECK(out[column * width + row] == in[row * stride + column]);
          }
        }
        CHECK(out.back() == -1.0F);
      }
    }
  });
}

TEST_CASE("products of any shape are those of a plain loop") {
  for_each_instruction_set([] {
    base::Rng rng(3);
    const LstmKernels& kernel = kernels().lstm;
    for (const size_t width : {16U, 32U}) {
      for (size_t rows = 1; rows <= 27; ++rows) {
        const size_t depth = 1 + rows % 5 * 7;
        std::vector<double> plain(rows * depth);
        for (double& weight : plain) {
          weight = static_cast<double>(rng.uniform_float());
        }
        AlignedVector<float> packed;
        const Tiling tiling(rows, kernel.rows_max);
        for (size_t tile = 0, first = 0; tile < tiling.tiles; first += tiling.size(tile++)) {
          for (size_t k = 0; k < depth; ++k) {
            for (size_t r = first; r < first + tiling.size(tile); ++r) {
              packed.push_back(static_cast<float>(plain[r * depth + k]));
            }
          }
        }
        AlignedVector<float> x(depth * width);
        for (float& value : x) {
          value = rng.uniform_float();
        }
        AlignedVector<float> out(rows * width);
        MultiplyArgs args;
        args.weights = packed.data();
        args.x = x.data();
        args.depth = depth;
        args.rows = rows;
        args.width = width;
        args.out = out.data();
        args.ahead[1] = {x.data(), x.size() * sizeof(float)};
        kernel.multiply(args);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t lane = 0; lane < width; ++lane) {
            double sum = 0.0;
            for (size_t k = 0; k < depth; ++k) {
              sum += plain[r * depth + k] * static_cast<double>(x[k * width + lane]);
            }
            CHECK(out[r * width + lane] == doctest::Approx(sum).epsilon(1e-5));
          }
        }
      }
    }
  });
}

TEST_CASE("tiles are as few as they can be and nearly equal") {
  for (size_t total = 1; total < 60; ++total) {
    for (const size_t max : {1U, 3U, 6U, 12U}) {
      const Tiling tiling(total, max);
      CHECK(tiling.tiles == (total + max - 1) / max);
      size_t sum = 0;
      for (size_t tile = 0; tile < tiling.tiles; ++tile) {
        sum += tiling.size(tile);
        CHECK(tiling.size(tile) <= max);
        CHECK(tiling.size(tile) + 1 >= tiling.size(0));
      }
      CHECK(sum == total);
    }
  }
}

}  // namespace
}  // namespace headrace::forecast
