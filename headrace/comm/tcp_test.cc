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
  int streams = 1;
  bool checked = false;

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
    {"tcp 2, two streams", {2}, Transport::tcp, false, 2},
    {"tcp 5, eight streams", {5}, Transport::tcp, false, 8},
    {"3+2, three streams", {3, 2}, Transport::automatic, false, 3},
    {"tcp 3, checksums", {3}, Transport::tcp, false, 1, true},
};

void run_layout(const Layout& layout, const std::function<void(Context&)>& body) {
  const std::vector<int> node_of = layout.node_of();
  run_thread_ranks(
      layout.ranks(),
      [&](Config& config) {
        config.transport = layout.transport;
        config.streams = layout.streams;
        config.crc = layout.checked;
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

constexpr uint64_t kCounts[] = {0, 1, 14, 15, 97, 16'383, 16'384, 16'385, 100'003, 400'001};

std::vector<std::byte> all_reduced(ProcessSet& set, const std::vector<std::byte>& in, Dtype dtype,
                                   Op op, const Options& options, bool in_place = false) {
  const uint64_t count = in.size() / dtype_bytes(dtype);
  std::vector<std::byte> out = in_place ? in : std::vector<std::byte>(in.size());
  const auto how = set.all_reduce(ConstBuffer(in_place ? out.data() : in.data(), count, dtype),
                                  Buffer{out.data(), count, dtype}, op, options)
                       .wait();
  CHECK_MESSAGE(how.ok(), how.error().message());
  return out;
}

TEST_CASE("all_reduce gives the bits of the fixed tree on every layout and for every size") {
  for (const Layout& layout : kLayouts) {
    CAPTURE(layout.name);
    std::vector<std::vector<std::byte>> wanted;
    for (const uint64_t count : kCounts) {
      wanted.push_back(reduced(layout, count, Dtype::f32, Op::sum, 1.0, count));
    }
    run_layout(layout, [&](Context& context) {
      ProcessSet& world = context.world();
      for (size_t i = 0; i < std::size(kCounts); ++i) {
        const auto in = input(world.rank(), kCounts[i], Dtype::f32, kCounts[i]);
        for (const bool blocking : {true, false}) {
          const Options options = {.blocking = blocking};
          CHECK(all_reduced(world, in, Dtype::f32, Op::sum, options) == wanted[i]);
          CHECK(all_reduced(world, in, Dtype::f32, Op::sum, options, true) == wanted[i]);
        }
      }
    });
  }
}

TEST_CASE("all types and operations agree with the fixed tree between nodes") {
  for (const Layout& layout : kLayouts) {
    if (layout.ranks() < 3) {
      continue;
    }
    CAPTURE(layout.name);
    struct Case {
      Dtype dtype;
      Op op;
      uint64_t count;
      std::vector<std::byte> wanted;
      std::vector<std::byte> scaled;
    };
    std::vector<Case> cases;
    for (int d = 0; d <= static_cast<int>(Dtype::boolean); ++d) {
      for (int o = 0; o <= static_cast<int>(Op::bxor); ++o) {
        const auto dtype = static_cast<Dtype>(d);
        const auto op = static_cast<Op>(o);
        for (const uint64_t count : {33U, 40'009U}) {
          if (op != Op::average && check_reducible(dtype, op).ok()) {
            cases.push_back({dtype, op, count, reduced(layout, count, dtype, op, 1.0, count),
                             reduced(layout, count, dtype, op, 0.25, count)});
          }
        }
      }
    }
    run_layout(layout, [&](Context& context) {
      ProcessSet& world = context.world();
      for (const Case& one : cases) {
        CAPTURE(dtype_name(one.dtype));
        CAPTURE(op_name(one.op));
        const auto in = input(world.rank(), one.count, one.dtype, one.count);
        CHECK(all_reduced(world, in, one.dtype, one.op, {.blocking = true}) == one.wanted);
        CHECK(all_reduced(world, in, one.dtype, one.op, {.postscale = 0.25, .blocking = true}) ==
              one.scaled);
      }
    });
  }
}

/// Every kind once, for each count; what each gave, one behind the other.
std::vector<std::byte> every_kind(ProcessSet& set, bool blocking, Dtype dtype = Dtype::f32) {
  const auto n = static_cast<uint64_t>(set.size());
  const auto rank = static_cast<uint64_t>(set.rank());
  const Options options = {.blocking = blocking};
  std::vector<std::byte> all;
  const auto done = [&](const Work& work, const std::vector<std::byte>& out) {
    const auto how = work.wait();
    CHECK_MESSAGE(how.ok(), how.error().message());
    all.insert(all.end(), out.begin(), out.end());
  };
  const size_t element = dtype_bytes(dtype);
  const auto all_of = [&](std::vector<std::byte>& bytes) {
    return Buffer{bytes.data(), bytes.size() / element, dtype};
  };
  const auto sized = [&](uint64_t elements) { return std::vector<std::byte>(elements * element); };
  for (const uint64_t count : {0U, 1U, 15U, 5'000U, 70'001U}) {
    for (int root = 0; root < set.size(); ++root) {
      const bool here = set.rank() == root;
      auto in = input(set.rank(), count, dtype, count + 7);
      auto out = sized(count);
      const Work reduced = set.reduce(all_of(in), all_of(out), root, Op::sum, options);
      CHECK(reduced.wait().ok());  // `out` is copied below
      done(reduced, here ? out : sized(0));
      out = in;
      done(set.broadcast(all_of(out), root, options), out);
      auto gathered = sized(here ? count * n : 0);
      done(set.gather(all_of(in), all_of(gathered), root, options), gathered);
      out = sized(count);
      done(set.scatter(all_of(gathered), all_of(out), root, options), out);
    }
    auto in = input(set.rank(), count * n, dtype, count + 8);
    auto out = sized(count);
    done(set.reduce_scatter(all_of(in), all_of(out), Op::sum,
                            {.prescale = 0.5, .blocking = blocking}),
         out);
    auto wide = sized(count * n);
    done(set.all_gather(all_of(out), all_of(wide), options), wide);
    done(set.all_to_all(all_of(in), all_of(wide), options), wide);
    std::vector<uint64_t> counts(n);
    std::vector<uint64_t> to(n);
    std::vector<uint64_t> from(n);
    for (uint64_t r = 0; r < n; ++r) {
      counts[r] = r == 1 ? 0 : count / (r + 1);
      to[r] = count * rank / (r + 1);
      from[r] = count * r / (rank + 1);
    }
    in = input(set.rank(), counts[rank], dtype, count + 9);
    wide = sized(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
    done(set.all_gather_v(all_of(in), counts, all_of(wide), options), wide);
    out = sized(counts[rank]);
    done(set.reduce_scatter_v(all_of(wide), counts, all_of(out), Op::max, options), out);
    in = input(set.rank(), std::accumulate(to.begin(), to.end(), uint64_t{0}), dtype, count);
    wide = sized(std::accumulate(from.begin(), from.end(), uint64_t{0}));
    done(set.all_to_all_v(all_of(in), to, all_of(wide), from, options), wide);
    done(set.barrier(options), {});
  }
  return all;
}

TEST_CASE("every kind gives the same bytes over shared memory and over TCP") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    CAPTURE(ranks);
    std::vector<std::vector<std::byte>> shm(static_cast<size_t>(ranks));
    for (const Transport transport : {Transport::shm, Transport::tcp}) {
      run_thread_ranks(
          ranks, [&](Config& config) { config.transport = transport; },
          [&](Context& context) {
            auto& reference = shm[static_cast<size_t>(context.world().rank())];
            if (transport == Transport::shm) {
              reference = every_kind(context.world(), true);
              return;
            }
            CHECK(every_kind(context.world(), true) == reference);
            CHECK(every_kind(context.world(), false) == reference);
          });
    }
  }
}

TEST_CASE("every kind gives the same bytes whichever way the bytes of several nodes take") {
  const std::vector<Layout> layouts = {
      {"3+2", {3, 2}},
      {"3+2 dealt", {3, 2}, Transport::tcp, true},
      {"1+3", {1, 3}},
      {"2x2", {2, 2}},
      {"2x2, four streams", {2, 2}, Transport::tcp, false, 4, true},
      {"2x3 dealt", {2, 2, 2}, Transport::tcp, true}};
  for (Layout layout : layouts) {
    CAPTURE(layout.name);
    const int streams = layout.streams;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      CAPTURE(dtype_name(dtype));
      std::vector<std::vector<std::byte>> flat(static_cast<size_t>(layout.ranks()));
      for (const Transport transport : {Transport::tcp, Transport::automatic}) {
        layout.transport = transport;
        layout.streams = transport == Transport::tcp ? 1 : streams;
        layout.checked = transport != Transport::tcp && streams > 1;
        run_layout(layout, [&](Context& context) {
          auto& reference = flat[static_cast<size_t>(context.world().rank())];
          if (transport == Transport::tcp) {
            reference = every_kind(context.world(), false, dtype);
            return;
          }
          CHECK(every_kind(context.world(), true, dtype) == reference);
          CHECK(every_kind(context.world(), false, dtype) == reference);
        });
      }
    }
  }
}

/// Contributions rounded to 16 bits, their sum by the fixed tree, rounded and widened again.
std::vector<std::byte> reduced_in(Dtype wire, const Layout& layout, uint64_t count, double scale) {
  const auto convert = [count](const std::byte* in, Dtype from, Dtype to, double by) {
    std::vector<std::byte> out(count * dtype_bytes(to));
    reduce_tree({.in = from, .out = to, .op = Op::sum, .scale = by}, {&in, 1}, out.data(), count);
    return out;
  };
  std::vector<std::vector<std::byte>> all;
  std::vector<const std::byte*> sources;
  for (int r = 0; r < layout.ranks(); ++r) {
    const auto in = input(r, count, Dtype::f32, count);
    all.push_back(convert(in.data(), Dtype::f32, wire, 0.5));
  }
  for (const auto& one : all) {
    sources.push_back(one.data());
  }
  std::vector<std::byte> sum(count * 2);
  const auto node_of = layout.node_of();
  reduce_node_tree({.in = wire, .out = wire, .op = Op::sum, .scale = scale}, NodeTree::of(node_of),
                   sources, sum.data(), count);
  return convert(sum.data(), wire, Dtype::f32, 1.0);
}

TEST_CASE("reductions in 16 bits round contributions and result once, whatever carries them") {
  const std::vector<Layout> layouts = {{"one", {1}},
                                       {"memory", {3}, Transport::shm},
                                       {"tcp", {3}},
                                       {"tcp, two streams", {3}, Transport::tcp, false, 2},
                                       {"3+2", {3, 2}, Transport::automatic},
                                       {"2x2 dealt", {2, 2}, Transport::automatic, true}};
  for (const Layout& layout : layouts) {
    CAPTURE(layout.name);
    for (const Wire16 wire16 : {Wire16::f16, Wire16::bf16}) {
      const Dtype wire = wire16 == Wire16::f16 ? Dtype::f16 : Dtype::bf16;
      for (const uint64_t part : {3U, 20'001U}) {
        const uint64_t count = part * static_cast<uint64_t>(layout.ranks());
        const auto wanted = reduced_in(wire, layout, count, 1.0 / layout.ranks());
        run_layout(layout, [&](Context& context) {
          ProcessSet& world = context.world();
          auto in = input(world.rank(), count, Dtype::f32, count);
          for (const bool blocking : {true, false}) {
            const Options how = {.prescale = 0.5, .wire16 = wire16, .blocking = blocking};
            CHECK(all_reduced(world, in, Dtype::f32, Op::average, how) == wanted);
            CHECK(all_reduced(world, in, Dtype::f32, Op::average, how, true) == wanted);
            std::vector<std::byte> out(part * 4);
            CHECK(world
                      .reduce_scatter(ConstBuffer(in.data(), count, Dtype::f32),
                                      Buffer{out.data(), part, Dtype::f32}, Op::average, how)
                      .wait()
                      .ok());
            const auto* own = wanted.data() + static_cast<size_t>(world.rank()) * out.size();
            CHECK(std::memcmp(out.data(), own, out.size()) == 0);
            out.assign(count * 4, std::byte{7});
            const auto before = out;
            CHECK(world
                      .reduce(ConstBuffer(in.data(), count, Dtype::f32),
                              Buffer{out.data(), count, Dtype::f32}, 0, Op::average, how)
                      .wait()
                      .ok());
            CHECK(out == (world.rank() == 0 ? wanted : before));
          }
        });
      }
    }
  }
}

TEST_CASE("sizes of pieces have no effect on results") {
  const Layout layout = {"3+2", {3, 2}, Transport::automatic};
  const auto wanted = reduced(layout, 100'003, Dtype::f32, Op::sum, 1.0, 5);
  for (const uint64_t small : {1U, 1'000'000U}) {
    for (const uint64_t chunk : {1U, 20'000U}) {
      const auto node_of = layout.node_of();
      run_thread_ranks(
          layout.ranks(),
          [&](Config& config) {
            config.node = std::to_string(node_of[static_cast<size_t>(config.rank)]);
            config.small_bytes = small;
            config.chunk_bytes = chunk;
            config.spin = std::chrono::microseconds(0);
          },
          [&](Context& context) {
            const auto in = input(context.world().rank(), 100'003, Dtype::f32, 5);
            for (const bool blocking : {true, false}) {
              CHECK(all_reduced(context.world(), in, Dtype::f32, Op::sum, {.blocking = blocking}) ==
                    wanted);
            }
          });
    }
  }
}

TEST_CASE("the job's 16 bits count where an operation does not say otherwise") {
  run_thread_ranks(
      2, [](Config& config) { config.wire16 = Wire16::bf16; },
      [](Context& context) {
        ProcessSet& world = context.world();
        const auto sum = [&](const Options& how) {
          float value = 1.0F + 1.0F / 1024;  // more digits than bf16 has
          CHECK(world.all_reduce(Buffer{&value, 1, Dtype::f32}, Op::sum, how).wait().ok());
          return value;
        };
        CHECK(sum({}) == 2.0F);
        CHECK(sum({.wire16 = Wire16::none}) == 2.0F + 2.0F / 1024);
        double wide = 1.0 + 1.0 / 1024;  // no f32: as it is
        CHECK(world.all_reduce(Buffer{&wide, 1, Dtype::f64}, Op::sum).wait().ok());
        CHECK(wide == 2.0 + 2.0 / 1024);
      });
}

TEST_CASE("split makes sets across nodes, within one, and of one rank") {
  for (const Transport transport : {Transport::tcp, Transport::automatic}) {
    run_layout({"2+2", {2, 2}, transport}, [&](Context& context) {
      ProcessSet& world = context.world();
      const auto sum = [](ProcessSet& set, uint64_t count) {
        std::vector<int64_t> values(count, set.world_ranks()[static_cast<size_t>(set.rank())]);
        const auto how = set.all_reduce(Buffer{values.data(), count, Dtype::i64}, Op::sum).wait();
        CHECK_MESSAGE(how.ok(), how.error().message());
        return values.back();
      };
      for (int i = 0; i < 3; ++i) {
        auto across = context.split(world, world.rank() % 2, -world.rank());  // {2, 0} and {3, 1}
        auto within = context.split(world, world.rank() / 2, 0);
        auto alone = context.split(world, world.rank() == 1 ? 0 : -1, 0);
        REQUIRE(across.ok());
        REQUIRE(within.ok());
        REQUIRE(alone.ok());
        CHECK((*across)->world_ranks().front() == 2 + world.rank() % 2);
        CHECK(sum(**across, 30'000) == 2 + 2 * (world.rank() % 2));
        CHECK(sum(**within, 3) == (world.rank() < 2 ? 1 : 5));
        CHECK((*alone == nullptr) == (world.rank() != 1));
        if (*alone != nullptr) {
          CHECK(sum(**alone, 5) == 1);
        }
        CHECK(sum(world, 7) == 6);
      }
    });
  }
}

}  // namespace
}  // namespace headrace::comm
