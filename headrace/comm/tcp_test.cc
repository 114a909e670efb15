// SPDX-License-Identifier: Apache-2.0
// Collectives between nodes: the same bits as one process computes, on every layout of ranks.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/comm/algo/node_tree.h"
#include "headrace/comm/thread_ranks_test.h"

namespace headrace::comm {
namespace {

using testing::run_thread_ranks;

/// Ranks per node; ranks are dealt to the nodes one after the other when `dealt`.
struct Layout {
  std::string name;
  std::vector<int> nodes;
  Transport transport = Transport::tcp;
  bool dealt = false;

  int ranks() const { return std::accumulate(nodes.begin(), nodes.end(), 0); }
  std::vector<int> node_of() const {
    std::vector<int> out;
    std::vector<int> left = nodes;
    while (static_cast<int>(out.size()) < ranks()) {
      for (size_t n = 0; n < left.size(); ++n) {
        for (int i = 0; i < (dealt ? 1 : nodes[n]) && left[n] > 0; ++i, --left[n]) {
          out.push_back(static_cast<int>(n));
        }
      }
    }
    return out;
  }
};

const std::vector<Layout> kLayouts = {
    {"tcp 1", {1}},
    {"tcp 2", {2}},
    {"tcp 3", {3}},
    {"tcp 5", {5}},
    {"tcp 8", {8}},
    {"nodes of one rank", {1, 1, 1, 1}, Transport::automatic},
    {"2x2 all over tcp", {2, 2}},
    {"2x2", {2, 2}, Transport::automatic},
    {"3+2", {3, 2}, Transport::automatic},
    {"3+2 dealt", {3, 2}, Transport::automatic, true},
};

void run_layout(const Layout& layout, const std::function<void(Context&)>& body) {
  const std::vector<int> node_of = layout.node_of();
  run_thread_ranks(
      layout.ranks(),
      [&](Config& config) {
        config.transport = layout.transport;
        config.node = "node " + std::to_string(node_of[static_cast<size_t>(config.rank)]);
      },
      body);
}

std::vector<std::byte> input(int rank, uint64_t count, Dtype dtype, uint64_t seed) {
  base::Rng rng(base::derive_seed(seed, static_cast<uint64_t>(rank)));
  const size_t element = dtype_bytes(dtype);
  std::vector<std::byte> out(count * element);
  for (uint64_t i = 0; i < count; ++i) {
    const double value = rng.normal() * (rng.below(2) == 0 ? 1.0 : 300.0);
    const auto as_float = static_cast<float>(value);
    const uint64_t bits = rng.next();
    std::byte* to = out.data() + i * element;
    if (dtype == Dtype::f32) {
      std::memcpy(to, &as_float, element);
    } else if (dtype == Dtype::f64) {
      std::memcpy(to, &value, element);
    } else if (dtype == Dtype::f16 || dtype == Dtype::bf16) {
      const uint16_t half = dtype == Dtype::f16 ? f16_of_f32(as_float) : bf16_of_f32(as_float);
      std::memcpy(to, &half, element);
    } else if (dtype == Dtype::boolean) {
      *to = static_cast<std::byte>(bits & 1U);
    } else {
      std::memcpy(to, &bits, element);
    }
  }
  return out;
}

/// What the fixed tree over nodes and ranks gives.
std::vector<std::byte> reduced(const Layout& layout, uint64_t count, Dtype dtype, Op op,
                               double scale, uint64_t seed) {
  std::vector<std::vector<std::byte>> all;
  std::vector<const std::byte*> sources;
  for (int r = 0; r < layout.ranks(); ++r) {
    all.push_back(input(r, count, dtype, seed));
  }
  for (const auto& one : all) {
    sources.push_back(one.data());
  }
  std::vector<std::byte> out(count * dtype_bytes(dtype));
  const auto node_of = layout.node_of();
  if (count > 0) {
    reduce_node_tree({.in = dtype, .out = dtype, .op = op, .scale = scale}, NodeTree::of(node_of),
                     sources, out.data(), count);
  }
  return out;
}

constexpr uint64_t kCounts[] = {0, 1, 14, 15, 97, 16'383, 16'384, 16'385, 100'003, 600'001};

TEST_CASE("all_reduce gives the bits of the fixed tree on every layout and for every size") {
  for (const Layout& layout : kLayouts) {
    CAPTURE(layout.name);
    run_layout(layout, [&](Context& context) {
      uint64_t seed = 0;
      for (const uint64_t count : kCounts) {
        for (const bool blocking : {true, false}) {
          const auto wanted = reduced(layout, count, Dtype::f32, Op::sum, 1.0, ++seed);
          const auto in = input(context.world().rank(), count, Dtype::f32, seed);
          std::vector<std::byte> out(in.size());
          const Work work =
              context.world().all_reduce(ConstBuffer(in.data(), count, Dtype::f32),
                                         Buffer{out.data(), count, Dtype::f32}, Op::sum,
                                         {.blocking = blocking});
          const auto how = work.wait();
          CHECK_MESSAGE(how.ok(), how.error().message());
          CHECK(out == wanted);
          auto both = in;
          CHECK(context.world()
                    .all_reduce(Buffer{both.data(), count, Dtype::f32}, Op::sum,
                                {.blocking = blocking})
                    .wait()
                    .ok());
          CHECK(both == wanted);
        }
      }
    });
  }
}

}  // namespace
}  // namespace headrace::comm
