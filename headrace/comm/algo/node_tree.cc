// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/node_tree.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace headrace::comm {

namespace {

// Partial results of a block of all nodes stay in the caches of a core.
constexpr size_t kBlock = 1024;

/// Ranks in the order of the leaves of a tree of one level.
std::vector<const std::byte*> leaves(const NodeTree& tree,
                                     std::span<const std::byte* const> sources) {
  std::vector<const std::byte*> out;
  for (const auto& node : tree.nodes) {
    for (const int rank : node) {
      out.push_back(sources[static_cast<size_t>(rank)]);
    }
  }
  return out;
}

}  // namespace

NodeTree NodeTree::one_node(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return {{std::move(all)}};
}

NodeTree NodeTree::of(std::span<const int> node_of) {
  NodeTree tree;
  std::vector<int> seen;
  for (size_t r = 0; r < node_of.size(); ++r) {
    const auto found = std::find(seen.begin(), seen.end(), node_of[r]);
    const auto index = static_cast<size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(node_of[r]);
      tree.nodes.emplace_back();
    }
    tree.nodes[index].push_back(static_cast<int>(r));
  }
  return tree;
}

int NodeTree::ranks() const {
  size_t sum = 0;
  for (const auto& node : nodes) {
    sum += node.size();
  }
  return static_cast<int>(sum);
}

bool NodeTree::is_flat() const {
  return nodes.size() == 1 ||
         std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.size() == 1; });
}

Dtype partial_dtype(Dtype dtype, Op op) {
  const bool bits = op == Op::band || op == Op::bor || op == Op::bxor;
  return !bits && (dtype == Dtype::f16 || dtype == Dtype::bf16) ? Dtype::f32 : dtype;
}

void reduce_node_tree(const Reduction& what, const NodeTree& tree,
                      std::span<const std::byte* const> sources, std::byte* out, size_t count) {
  if (tree.is_flat()) {
    reduce_tree(what, leaves(tree, sources), out, count);
    return;
  }
  const Dtype partial = partial_dtype(what.in, what.op);
  const size_t in_bytes = dtype_bytes(what.in);
  const size_t out_bytes = dtype_bytes(what.out);
  const Reduction within = {.in = what.in, .out = partial, .op = what.op};
  const Reduction across = {.in = partial, .out = what.out, .op = what.op, .scale = what.scale};
  struct alignas(64) Block {
    std::array<std::byte, kBlock * sizeof(double)> bytes;
  };
  std::vector<Block> blocks(tree.nodes.size());
  std::vector<const std::byte*> partials(tree.nodes.size());
  std::vector<const std::byte*> members;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t some = std::min(kBlock, count - at);
    for (size_t n = 0; n < tree.nodes.size(); ++n) {
      members.clear();
      for (const int rank : tree.nodes[n]) {
        members.push_back(sources[static_cast<size_t>(rank)] + at * in_bytes);
      }
      if (members.size() == 1 && partial == what.in) {
        partials[n] = members.front();
      } else {
        partials[n] = blocks[n].bytes.data();
        reduce_tree(within, members, blocks[n].bytes.data(), some);
      }
    }
    reduce_tree(across, partials, out + at * out_bytes, some);
  }
}

}  // namespace headrace::comm
