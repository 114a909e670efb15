// SPDX-License-Identifier: Apache-2.0
// Adaptive summation of gradients.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/base/dtype.h"

namespace headrace::comm {

/// Combine the vectors of all ranks, in the order of the fixed tree of reduce_kernel.h. Two vectors
/// a and b give a (1 - ab / 2aa) + b (1 - ab / 2bb), ab and so on being dot products: their sum
/// where they are orthogonal, their mean where they are equal. A vector of zeros adds nothing.
/// (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020.)
///
/// Floating types only; 16-bit floats are combined in f32 and rounded once, dots are in f64. Each
/// contribution is multiplied by `prescale` first, the result by `postscale`. `out` may be one of
/// the sources.
void adasum_tree(Dtype dtype, std::span<const std::byte* const> sources, std::byte* out,
                 size_t count, double prescale, double postscale);

}  // namespace headrace::comm
