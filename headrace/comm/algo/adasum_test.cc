// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/adasum.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace headrace::comm {
namespace {

std::vector<double> adasum_of(const std::vector<std::vector<double>>& vectors,
                              double prescale = 1.0, double postscale = 1.0) {
  std::vector<const std::byte*> sources;
  for (const auto& one : vectors) {
    sources.push_back(reinterpret_cast<const std::byte*>(one.data()));
  }
  std::vector<double> out(vectors.front().size());
  adasum_tree(Dtype::f64, sources, reinterpret_cast<std::byte*>(out.data()), out.size(), prescale,
              postscale);
  return out;
}

TEST_CASE("equal vectors give themselves, orthogonal ones their sum") {
  CHECK(adasum_of({{1, 2, 3}, {1, 2, 3}}) == std::vector<double>{1, 2, 3});
  CHECK(adasum_of({{1, 2}, {1, 2}, {1, 2}, {1, 2}}) == std::vector<double>{1, 2});
  CHECK(adasum_of({{1, 0, 0}, {0, 2, 0}, {0, 0, 4}}) == std::vector<double>{1, 2, 4});
  CHECK(adasum_of({{0, 0}, {3, 4}}) == std::vector<double>{3, 4});
  CHECK(adasum_of({{0, 0}, {0, 0}}) == std::vector<double>{0, 0});
}

TEST_CASE("two vectors as worked out by hand") {
  // a = (2, 0), b = (2, 2): ab = 4, aa = 4, bb = 8; a (1 - 1/2) + b (1 - 1/4) = (2.5, 1.5).
  CHECK(adasum_of({{2, 0}, {2, 2}}) == std::vector<double>{2.5, 1.5});
  // Both doubled before and the result halved: the same.
  CHECK(adasum_of({{2, 0}, {2, 2}}, 2.0, 0.5) == std::vector<double>{2.5, 1.5});
}

TEST_CASE("16-bit floats are combined in f32 and rounded once") {
  const std::vector<uint16_t> a = {f16_of_f32(2.0F), f16_of_f32(0.0F)};
  const std::vector<uint16_t> b = {f16_of_f32(2.0F), f16_of_f32(2.0F)};
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                reinterpret_cast<const std::byte*>(b.data())};
  std::vector<uint16_t> out(2);
  adasum_tree(Dtype::f16, sources, reinterpret_cast<std::byte*>(out.data()), 2, 1.0, 1.0);
  CHECK(f32_of_f16(out[0]) == 2.5F);
  CHECK(f32_of_f16(out[1]) == 1.5F);
}

}  // namespace
}  // namespace headrace::comm
