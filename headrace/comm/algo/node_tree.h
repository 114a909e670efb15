// SPDX-License-Identifier: Apache-2.0
// The fixed tree over ranks of several nodes: over the ranks of each node, then over the nodes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/comm/algo/reduce_kernel.h"

namespace headrace::comm {

/// Ranks of a set by node: nodes in the order of their first ranks, ranks in their order.
struct NodeTree {
  std::vector<std::vector<int>> nodes;

  static NodeTree one_node(int ranks);
  /// `node_of[r]`: any number that tells the node of rank r.
  static NodeTree of(std::span<const int> node_of);

  int ranks() const;
  /// One level only: one node, or one rank on each.
  bool is_flat() const;
};

/// The type that partial results of a node have.
Dtype partial_dtype(Dtype dtype, Op op);

/// As reduce_tree(), over the nodes' trees: 16-bit floats stay f32 until the end.
void reduce_node_tree(const Reduction& what, const NodeTree& tree,
                      std::span<const std::byte* const> sources, std::byte* out, size_t count);

}  // namespace headrace::comm
