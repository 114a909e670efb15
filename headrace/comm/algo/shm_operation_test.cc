// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/shm_operation.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/base/shm_segment.h"
#include "headrace/base/thread.h"
#include "headrace/comm/algo/reduce_kernel.h"

namespace headrace::comm {
namespace {

ShmChannel channel_of(const base::ShmMapping& memory, const ShmGeometry& geometry, int rank) {
  auto* bells = reinterpret_cast<BellLine*>(memory.data() + geometry.segment_bytes());
  std::vector<int> places(static_cast<size_t>(geometry.ranks));
  std::iota(places.begin(), places.end(), 0);
  return ShmChannel(memory.data(), geometry, rank, NodeBells(bells, rank), places);
}

base::ShmMapping memory_for(const ShmGeometry& geometry) {
  auto segment = base::ShmSegment::create(
      "comm test",
      geometry.segment_bytes() + sizeof(BellLine) * static_cast<size_t>(geometry.ranks));
  REQUIRE(segment.ok());
  auto mapping = segment->map();
  REQUIRE(mapping.ok());
  return std::move(*mapping);
}

/// Step until the end, or the deadline; spins, as a test may.
Result<void> drive(ShmOperation& operation, const ShmChannel& channel, base::Deadline deadline) {
  while (true) {
    switch (operation.step()) {
      case Step::done: return {};
      case Step::failed: return operation.error();
      case Step::moved: continue;
      case Step::stuck: break;
    }
    if (const auto failed = failure_of(channel)) {
      return *failed;
    }
    if (deadline.passed()) {
      return Error{Errc::timeout, "waited for rank " + std::to_string(operation.missing())};
    }
    base::sleep_for(base::Micros(1));
  }
}

/// Ranks as threads of one process over one segment, so that the sanitizer sees all of them.
class Node {
 public:
  explicit Node(int ranks, ShmGeometry geometry) : geometry_(geometry) {
    geometry_.ranks = ranks;
    memory_ = memory_for(geometry_);
    states_.resize(static_cast<size_t>(ranks));
  }

  int ranks() const { return geometry_.ranks; }

  /// Run `body(rank, run)` on each rank; `run(call)` does one collective there.
  using Run = std::function<Result<void>(const Call&)>;
  void each(const std::function<void(int, const Run&)>& body) {
    std::vector<base::Thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back("rank", [&, rank] {
        ShmChannel channel = channel_of(memory_, geometry_, rank);
        body(rank, [&](const Call& call) {
          auto operation = start_shm_operation(call, channel, states_[static_cast<size_t>(rank)]);
          return drive(*operation, channel, base::Deadline::in(std::chrono::seconds(30)));
        });
      });
    }
  }

 private:
  ShmGeometry geometry_;
  base::ShmMapping memory_;
  std::vector<ShmSetState> states_;
};

/// Deterministic values that tell rank and place apart.
std::vector<float> values_of(int rank, uint64_t count, uint64_t seed) {
  base::Rng rng(base::derive_seed(seed, static_cast<uint64_t>(rank)));
  std::vector<float> values(count);
  for (float& one : values) {
    one = static_cast<float>(rng.normal()) * (rng.below(2) == 0 ? 1.0F : 1024.0F);
  }
  return values;
}

const std::byte* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
std::byte* bytes_of(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

std::vector<float> reduced(int ranks, uint64_t count, uint64_t seed, double scale = 1.0) {
  std::vector<std::vector<float>> all;
  std::vector<const std::byte*> sources;
  for (int r = 0; r < ranks; ++r) {
    all.push_back(values_of(r, count, seed));
  }
  for (const auto& one : all) {
    sources.push_back(bytes_of(one));
  }
  std::vector<float> out(count);
  if (count > 0) {
    reduce_tree({.scale = scale}, sources, bytes_of(out), count);
  }
  return out;
}

constexpr uint64_t kCounts[] = {0, 1, 14, 15, 97, 1024, 4095, 4097, 40'000, 131'073};

Call call_of(Kind kind, const std::vector<float>& in, std::vector<float>& out, uint64_t count) {
  Call call;
  call.kind = kind;
  call.dtype = Dtype::f32;
  call.in = bytes_of(in);
  call.out = bytes_of(out);
  call.count = count;
  return call;
}

std::vector<uint64_t> uneven(int ranks, uint64_t count) {
  std::vector<uint64_t> counts(static_cast<size_t>(ranks));
  for (size_t r = 0; r < counts.size(); ++r) {
    counts[r] = r == 1 ? 0 : count / (r + 1);
  }
  return counts;
}

const ShmGeometry kSmallChunks = {.small_bytes = 4096, .chunk_bytes = 4096};

TEST_CASE("all_reduce over shared memory is the fixed tree for every size and number of ranks") {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const ShmGeometry& geometry : {ShmGeometry::choose(ranks), kSmallChunks}) {
      Node node(ranks, geometry);
      node.each([&](int rank, const Node::Run& run) {
        uint64_t seed = 0;
        for (const uint64_t count : kCounts) {
          const auto wanted = reduced(ranks, count, ++seed);
          const auto in = values_of(rank, count, seed);
          std::vector<float> out(count);
          CHECK(run(call_of(Kind::all_reduce, in, out, count)).ok());
          CHECK((count == 0 || std::memcmp(out.data(), wanted.data(), count * 4) == 0));
          CHECK(in == values_of(rank, count, seed));  // the input stays

          auto both = in;  // in place, scaled
          Call call = call_of(Kind::all_reduce, both, both, count);
          call.postscale = 1.0 / ranks;
          CHECK(run(call).ok());
          const auto average = reduced(ranks, count, seed, 1.0 / ranks);
          CHECK((count == 0 || std::memcmp(both.data(), average.data(), count * 4) == 0));
        }
      });
    }
  }
}

TEST_CASE("reduce, broadcast, gather and scatter reach and leave their root") {
  for (const int ranks : {1, 2, 3, 5}) {
    Node node(ranks, kSmallChunks);
    node.each([&](int rank, const Node::Run& run) {
      uint64_t seed = 100;
      for (const uint64_t count : kCounts) {
        for (int root = 0; root < ranks; ++root) {
          const auto in = values_of(rank, count, ++seed);
          std::vector<float> out(count, -1.0F);
          Call call = call_of(Kind::reduce, in, out, count);
          call.root = root;
          CHECK(run(call).ok());
          CHECK(out ==
                (rank == root ? reduced(ranks, count, seed) : std::vector<float>(count, -1.0F)));

          call.kind = Kind::broadcast;
          CHECK(run(call).ok());
          CHECK(out == values_of(root, count, seed));

          const auto counts = uneven(ranks, count);
          const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
          const uint64_t ours = counts[static_cast<size_t>(rank)];
          std::vector<float> all(rank == root ? total : 0);
          call = call_of(Kind::gather, in, all, total);
          call.root = root;
          call.counts = counts;
          CHECK(run(call).ok());
          std::vector<float> back(ours);
          call = call_of(Kind::scatter, all, back, total);
          call.root = root;
          call.counts = counts;
          CHECK(run(call).ok());
          CHECK(back == std::vector<float>(in.begin(), in.begin() + static_cast<int64_t>(ours)));
        }
      }
    });
  }
}

TEST_CASE("all_gather, reduce_scatter and all_to_all with uneven counts") {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    Node node(ranks, kSmallChunks);
    node.each([&](int rank, const Node::Run& run) {
      uint64_t seed = 1000;
      for (const uint64_t count : kCounts) {
        const auto counts = uneven(ranks, count);
        const auto self = static_cast<size_t>(rank);
        const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
        const auto in = values_of(rank, total, ++seed);

        std::vector<float> out(total);
        Call call = call_of(Kind::all_gather, in, out, total);
        call.counts = counts;
        CHECK(run(call).ok());
        std::vector<float> wanted;
        for (int r = 0; r < ranks; ++r) {
          const auto theirs = values_of(r, total, seed);
          wanted.insert(wanted.end(), theirs.begin(),
                        theirs.begin() + static_cast<int64_t>(counts[static_cast<size_t>(r)]));
        }
        CHECK(out == wanted);

        std::vector<float> part(counts[self]);
        call = call_of(Kind::reduce_scatter, in, part, total);
        call.counts = counts;
        CHECK(run(call).ok());
        const auto sum = reduced(ranks, total, seed);
        const auto before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
        CHECK(part ==
              std::vector<float>(sum.begin() + before,
                                 sum.begin() + before + static_cast<int64_t>(counts[self])));

        // Rank r sends to rank q counts[q] * (r + 1) elements: nobody knows the others' sizes.
        call = Call();
        call.kind = Kind::all_to_all;
        call.dtype = Dtype::f32;
        uint64_t received = 0;
        for (int r = 0; r < ranks; ++r) {
          call.send_counts.push_back(counts[static_cast<size_t>(r)] *
                                     static_cast<uint64_t>(rank + 1));
          call.recv_counts.push_back(counts[self] * static_cast<uint64_t>(r + 1));
          received += call.recv_counts.back();
        }
        const auto sent = values_of(rank, total * static_cast<uint64_t>(rank + 1), seed);
        std::vector<float> got(received);
        call.in = bytes_of(sent);
        call.out = bytes_of(got);
        CHECK(run(call).ok());
        std::vector<float> exchanged;
        for (int r = 0; r < ranks; ++r) {
          const auto times = static_cast<uint64_t>(r + 1);
          const auto theirs = values_of(r, total * times, seed);
          const auto from = theirs.begin() + before * static_cast<int64_t>(times);
          exchanged.insert(exchanged.end(), from,
                           from + static_cast<int64_t>(counts[self] * times));
        }
        CHECK(got == exchanged);
      }
    });
  }
}

TEST_CASE("ranks that are far ahead wait for those behind") {
  Node node(3, kSmallChunks);
  node.each([&](int rank, const Node::Run& run) {
    for (uint64_t i = 0; i < 300; ++i) {
      const uint64_t count = i % 3 == 0 ? 5000 : i % 3 == 1 ? 500 : 5;
      if (rank == 2 && i % 50 == 0) {
        base::sleep_for(std::chrono::milliseconds(2));
      }
      // Roots never wait, so they run ahead as far as they may.
      const auto in = values_of(rank, count, i);
      std::vector<float> out(count);
      Call call = call_of(i % 2 == 0 ? Kind::broadcast : Kind::reduce, in, out, count);
      CHECK(run(call).ok());
      if (call.kind == Kind::broadcast) {
        CHECK(out == values_of(0, count, i));
      } else if (rank == 0) {
        CHECK(out == reduced(3, count, i));
      }
    }
  });
}

TEST_CASE("ranks in different operations fail on all ranks, with both descriptions") {
  Node node(3, kSmallChunks);
  node.each([&](int rank, const Node::Run& run) {
    const auto in = values_of(rank, 2000, 1);
    std::vector<float> out(2000);
    CHECK(run(call_of(Kind::all_reduce, in, out, 10)).ok());
    Call call = call_of(Kind::all_reduce, in, out, rank == 1 ? 1999 : 20);
    call.name = rank == 1 ? "layer2" : "layer1";
    const auto result = run(call);
    REQUIRE(!result.ok());
    CHECK(result.error().code() == Errc::mismatch);
    CAPTURE(result.error().message());
    CHECK(result.error().message().find("all_reduce(sum) float32[1999] \"layer2\" on rank 1") !=
          std::string::npos);
    CHECK(result.error().message().find("float32[20] \"layer1\" on rank") != std::string::npos);
  });
}

TEST_CASE("a rank that is late is named when the limit is over, and the operation can go on") {
  const ShmGeometry geometry = {.ranks = 2, .small_bytes = 4096, .chunk_bytes = 4096};
  const auto memory = memory_for(geometry);
  for (const uint64_t count : {1U, 100U, 50'000U}) {
    std::memset(memory.data(), 0, memory.bytes());
    ShmChannel first = channel_of(memory, geometry, 0);
    ShmChannel second = channel_of(memory, geometry, 1);
    ShmSetState states[2];
    std::vector<float> in(count, 1.0F);
    std::vector<float> out(count);
    std::vector<float> other(count);
    const Call call = call_of(Kind::all_reduce, in, out, count);
    auto operation = start_shm_operation(call, first, states[0]);
    const auto late = drive(*operation, first, base::Deadline::in(std::chrono::milliseconds(20)));
    REQUIRE(!late.ok());
    CHECK(late.error().code() == Errc::timeout);
    CHECK(late.error().message().find("rank 1") != std::string::npos);
    base::Thread peer("rank 1", [&] {
      const Call theirs = call_of(Kind::all_reduce, in, other, count);
      auto operation1 = start_shm_operation(theirs, second, states[1]);
      CHECK(drive(*operation1, second, base::Deadline::in(std::chrono::seconds(10))).ok());
    });
    CHECK(drive(*operation, first, base::Deadline::in(std::chrono::seconds(10))).ok());
    CHECK(out == std::vector<float>(count, 2.0F));
  }
}

TEST_CASE("counters may wrap around") {
  const ShmGeometry geometry = {.ranks = 2, .small_bytes = 4096, .chunk_bytes = 4096};
  const auto memory = memory_for(geometry);
  const auto start = static_cast<uint32_t>(-3);
  std::vector<base::Thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ShmChannel channel = channel_of(memory, geometry, rank);
    for (auto* counter : {&channel.mine().put, &channel.mine().reduced, &channel.mine().taken}) {
      counter->store(start);
    }
    channel.mine().done.store(static_cast<uint32_t>(-2));
  }
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back("rank", [&, rank] {
      ShmChannel channel = channel_of(memory, geometry, rank);
      ShmSetState state = {.sequence = (uint64_t{1} << 32) - 2,
                           .chunks = start,
                           .others_done = (uint64_t{1} << 32) - 2};
      for (uint64_t i = 0; i < 20; ++i) {
        const uint64_t count = i % 2 == 0 ? 7000 : 3;
        const auto in = values_of(rank, count, i);
        std::vector<float> out(count);
        const Call call = call_of(Kind::all_reduce, in, out, count);
        auto operation = start_shm_operation(call, channel, state);
        CHECK(drive(*operation, channel, base::Deadline::in(std::chrono::seconds(10))).ok());
        CHECK(out == reduced(2, count, i));
      }
    });
  }
}

}  // namespace
}  // namespace headrace::comm
