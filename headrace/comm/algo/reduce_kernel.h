// SPDX-License-Identifier: Apache-2.0
// Put the contributions of n ranks together, element by element, in the order of one fixed tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/dtype.h"
#include "headrace/base/result.h"
#include "headrace/comm/buffer.h"

namespace headrace::comm {

/// The tree of n contributions: T(1) is the contribution itself; T(n) combines T over the first p
/// with T over the rest, p the largest power of two below n. So T(3) is (0+1)+2 and T(4) is
/// (0+1)+(2+3). The result of a reduction depends on nothing else: not on the transport, the
/// chunks, the threads or the instruction set.
constexpr size_t tree_split(size_t n) {
  size_t p = 1;
  while (p * 2 < n) {
    p *= 2;
  }
  return p;
}

/// What is done to the elements. f16 and bf16 are put together in f32 and rounded once, to nearest
/// even, when they are written as 16 bits.
struct Reduction {
  Dtype in = Dtype::f32;   ///< type of the contributions
  Dtype out = Dtype::f32;  ///< `in`, or f32 where `in` is a 16-bit float, or the reverse
  Op op = Op::sum;         ///< `average` is summed; the caller puts 1/n into `scale`
  double scale = 1.0;      ///< on the result; integers: the product in f64, cut towards zero
};

constexpr bool is_bitwise(Op op) { return op == Op::band || op == Op::bor || op == Op::bxor; }
/// `op` means something for `dtype`: not so bitwise on floats.
constexpr bool is_reducible(Dtype dtype, Op op) { return !is_bitwise(op) || !is_floating(dtype); }

/// `invalid_argument` when `op` means nothing for `dtype`.
Result<void> check_reducible(Dtype dtype, Op op);

/// out[i] = scale * T(sources[0][i], ..., sources[n-1][i]) for i in [0, count). n >= 1. `out` may
/// be one of the sources when both types are the same, and must not overlap them otherwise.
/// Pointers are aligned to their elements.
void reduce_tree(const Reduction& what, std::span<const std::byte* const> sources, std::byte* out,
                 size_t count);

/// out[i] = scale * in[i], in the arithmetic of Reduction::scale; `out` may be `in`.
void scale_elements(Dtype dtype, double scale, const std::byte* in, std::byte* out, size_t count);

/// memcpy that goes past the caches when `past_caches`: for results that do not fit there.
void copy_bytes(std::byte* out, const std::byte* in, size_t bytes, bool past_caches);

namespace testing {
/// Names of the instruction sets this machine has kernels for, best first.
std::vector<std::string> reduce_targets();
/// reduce_tree() on the instruction set of that index.
void reduce_tree_on(size_t target, const Reduction& what, std::span<const std::byte* const> sources,
                    std::byte* out, size_t count);
}  // namespace testing

}  // namespace headrace::comm
