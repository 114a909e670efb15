// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/process_set.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/comm/thread_node_test.h"

namespace headrace::comm {
namespace {

using testing::ThreadNode;

Buffer buffer(std::vector<float>& values) { return {values.data(), values.size(), Dtype::f32}; }
Buffer buffer(std::vector<int64_t>& values) { return {values.data(), values.size(), Dtype::i64}; }

const ShmGeometry kSmallChunks = {.small_bytes = 4096, .chunk_bytes = 4096};

TEST_CASE("operations that were submitted without waiting end in their order") {
  ThreadNode node(3, kSmallChunks);
  node.each([](int rank, ThreadNode::Sets& sets) {
    constexpr size_t kOperations = 200;
    std::vector<std::vector<int64_t>> values;
    std::vector<Work> works;
    std::atomic<uint64_t> ended = 0;
    for (size_t i = 0; i < kOperations; ++i) {
      values.emplace_back(i * 37 % 3000, rank + static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < kOperations; ++i) {
      works.push_back(sets[0]->all_reduce(buffer(values[i]), Op::sum));
      works.back().on_done([&ended, i](const Result<void>& how) {
        CHECK(how.ok());
        CHECK(ended.fetch_add(1) == i);
      });
    }
    for (const Work& work : works) {
      CHECK(work.wait(std::chrono::seconds(30)).ok());
    }
    const auto deadline = base::Deadline::in(std::chrono::seconds(10));
    while (ended != kOperations && !deadline.passed()) {  // callbacks follow on the wake-up
      base::sleep_for(std::chrono::microseconds(100));
    }
    CHECK(ended == kOperations);
    for (size_t i = 0; i < kOperations; ++i) {
      CHECK(works[i].sequence() == i);
      CHECK(values[i] == std::vector<int64_t>(values[i].size(), 3 + 3 * static_cast<int64_t>(i)));
    }
  });
}

TEST_CASE("what ends well on one rank does so on all, whatever comes after it") {
  for (int round = 0; round < 200; ++round) {
    const bool blocking = round % 2 == 0;
    ThreadNode node(3, {});
    node.each([&](int rank, ThreadNode::Sets& sets) {
      std::array<float, 1> value = {1.0F};
      const auto reduced =
          sets[0]->all_reduce(Buffer{.data = value.data(), .count = 1, .dtype = Dtype::f32},
                              Op::sum, {.blocking = blocking});
      const auto ended = reduced.wait(std::chrono::seconds(20));
      if (rank == round % 3) {
        sets[0]->abort("something else");
      }
      CHECK_MESSAGE(ended.ok(), (ended.ok() ? std::string() : ended.error().message()));
      CHECK(value[0] == 3.0F);
    });
  }
}

TEST_CASE("operations on this thread and on the other are numbered in one order") {
  ThreadNode node(2, {});
  node.each([](int rank, ThreadNode::Sets& sets) {
    for (uint64_t i = 0; i < 30; i += 3) {
      std::array<float, 3> values = {1.0F, 2.0F, 4.0F};
      const auto add = [&](size_t at, bool blocking) {
        return sets[0]->all_reduce(Buffer{.data = &values[at], .count = 1, .dtype = Dtype::f32},
                                   Op::sum, {.blocking = blocking});
      };
      // The last one finds the one before pending, or does not.
      const std::array<Work, 3> works = {add(0, true), add(1, false), add(2, true)};
      for (size_t k = 0; k < works.size(); ++k) {
        CHECK(works[k].sequence() == i + k);
        CHECK(works[k].wait().ok());
        CHECK(works[k].done());
      }
      CHECK(values == std::array<float, 3>{2.0F, 4.0F, 8.0F});
    }
    CHECK(sets[0]->rank() == rank);
  });
}

TEST_CASE("blocking and submitted operations mix") {
  for (const uint32_t turns : {0U, 500U}) {
    ThreadNode node(2, kSmallChunks);
    node.each(
        [](int rank, ThreadNode::Sets& sets) {
          for (int64_t i = 0; i < 300; ++i) {
            std::vector<int64_t> first(static_cast<size_t>(i * 11), rank + i);
            std::vector<int64_t> second(3, rank - i);
            const Work work = sets[0]->all_reduce(buffer(first), Op::max);
            CHECK(sets[0]->all_reduce(buffer(second), Op::min, {.blocking = true}).done());
            CHECK(work.done());
            CHECK(first == std::vector<int64_t>(first.size(), 1 + i));
            CHECK(second == std::vector<int64_t>(3, -i));
          }
        },
        {.turns = turns});
  }
}

TEST_CASE("a set whose operation waits does not hold up another set") {
  ThreadNode node(2, kSmallChunks, 2);
  std::atomic<bool> other_done = false;
  node.each([&](int rank, ThreadNode::Sets& sets) {
    std::vector<float> late(10'000, 1.0F);
    std::vector<float> quick(10'000, 2.0F);
    Work waiting;
    if (rank == 0) {
      waiting = sets[0]->all_reduce(buffer(late), Op::sum);
    }
    CHECK(sets[1]->all_reduce(buffer(quick), Op::sum).wait(std::chrono::seconds(30)).ok());
    CHECK(quick.front() == 4.0F);
    if (rank == 0) {
      CHECK(!waiting.done());
      other_done = true;
    } else {
      while (!other_done) {
        base::sleep_for(std::chrono::microseconds(100));
      }
      waiting = sets[0]->all_reduce(buffer(late), Op::sum);
    }
    CHECK(waiting.wait(std::chrono::seconds(30)).ok());
    CHECK(late.back() == 2.0F);
  });
}

TEST_CASE("average is the sum times 1/n, also of integers, and scales apply") {
  ThreadNode node(3, kSmallChunks);
  node.each([](int rank, ThreadNode::Sets& sets) {
    std::vector<int64_t> whole = {rank == 0 ? -3 : 0, rank * 10};
    CHECK(sets[0]->all_reduce(buffer(whole), Op::average, {.blocking = true}).wait().ok());
    CHECK(whole == std::vector<int64_t>{-1, 10});
    for (const size_t count : {1U, 500U, 20'000U}) {
      std::vector<float> values(count, static_cast<float>(rank));
      CHECK(sets[0]
                ->all_reduce(buffer(values), Op::sum,
                             {.prescale = 2.0, .postscale = 0.25, .blocking = true})
                .wait()
                .ok());
      CHECK(values == std::vector<float>(count, 1.5F));
    }
  });
}

TEST_CASE("a bad call fails here at once and leaves the set alone") {
  ThreadNode node(2, kSmallChunks);
  node.each([](int /*rank*/, ThreadNode::Sets& sets) {
    std::vector<float> three(3);
    std::vector<float> four(4);
    std::vector<int64_t> other(3);
    ProcessSet& set = *sets[0];
    const auto refused = [](const Work& work, const char* text) {
      REQUIRE(work.done());
      const auto how = work.wait();
      REQUIRE(!how.ok());
      CHECK(how.error().code() == Errc::invalid_argument);
      CAPTURE(how.error().message());
      CHECK(how.error().message().find(text) != std::string::npos);
    };
    refused(set.all_reduce(buffer(three), buffer(four), Op::sum),
            "out has 4 elements, it must have 3");
    refused(set.all_reduce(buffer(three), buffer(other), Op::sum), "out is int64");
    refused(set.all_reduce(buffer(three), Op::bxor), "bxor means nothing for float32");
    refused(set.broadcast(buffer(three), 2), "root 2 is not in [0, 2)");
    refused(set.all_to_all(buffer(three), buffer(three)), "3 elements are not 2 equal parts");
    refused(set.all_gather(buffer(three), buffer(four)), "out has 4 elements, it must have 6");
    const uint64_t counts[] = {1};
    refused(set.all_gather_v(buffer(three), counts, buffer(four)), "1 counts for 2 ranks");
    refused(set.reduce_scatter(buffer(three), buffer(four), Op::sum), "in has 3 elements");
    std::vector<std::byte> bytes(64);
    const auto odd = reinterpret_cast<uintptr_t>(bytes.data()) % 4 == 0 ? 1U : 0U;
    refused(set.all_reduce(Buffer{bytes.data() + odd, 4, Dtype::f32}, Op::sum),
            "in does not begin at a multiple of 4 bytes");
    CHECK(set.barrier({.blocking = true}).wait().ok());
  });
}

TEST_CASE("abort ends pending and later operations on all ranks, with its reason") {
  ThreadNode node(3, kSmallChunks);
  node.each([](int rank, ThreadNode::Sets& sets) {
    std::vector<float> values(50'000, 1.0F);
    const bool waits = rank != 2;
    Work work;
    if (waits) {
      work = sets[0]->all_reduce(buffer(values), Op::sum);
    } else {
      base::sleep_for(std::chrono::milliseconds(20));
      sets[0]->abort("the data is used up");
      work = sets[0]->barrier();
    }
    const auto how = work.wait(std::chrono::seconds(10));
    REQUIRE(!how.ok());
    CHECK(how.error().code() == Errc::cancelled);
    CHECK(how.error().message() == "comm: rank 2 aborted the process set: the data is used up");
    CHECK(sets[0]->barrier({.blocking = true}).wait().error().code() == Errc::cancelled);
  });
}

TEST_CASE("an operation's time limit fails the set on all ranks, and names who is missing") {
  ThreadNode node(3, kSmallChunks);
  node.each([](int rank, ThreadNode::Sets& sets) {
    std::vector<float> values(rank == 0 ? 50'000 : 50'000, 1.0F);
    if (rank == 1) {
      base::sleep_for(std::chrono::milliseconds(300));
    }
    const auto how =
        sets[0]
            ->all_reduce(
                buffer(values), Op::sum,
                {.name = "late", .timeout = std::chrono::milliseconds(50), .blocking = rank == 0})
            .wait(std::chrono::seconds(10));
    REQUIRE(!how.ok());
    CHECK(how.error().code() == Errc::timeout);
    CAPTURE(how.error().message());
    CHECK(how.error().message().find("waited for rank 1") != std::string::npos);
    CHECK(how.error().message().find("\"late\"") != std::string::npos);
  });
}

TEST_CASE("a rank that has closed its set fails those that wait for it, and nobody else") {
  for (const size_t count : {3U, 50'000U}) {
    ThreadNode node(2, kSmallChunks);
    node.each([count](int rank, ThreadNode::Sets& sets) {
      std::vector<float> values(count, 1.0F);
      CHECK(sets[0]->all_reduce(buffer(values), Op::sum).wait(std::chrono::seconds(30)).ok());
      CHECK(values.back() == 2.0F);
      if (rank == 0) {
        sets.clear();
        return;
      }
      const auto how = sets[0]->all_reduce(buffer(values), Op::sum).wait(std::chrono::seconds(10));
      REQUIRE(!how.ok());
      CHECK(how.error().code() == Errc::cancelled);
      CAPTURE(how.error().message());
      CHECK(how.error().message().find("rank 0 has closed the process set") != std::string::npos);
    });
  }
}

TEST_CASE("a wait with a limit that is over leaves the operation running") {
  ThreadNode node(2, kSmallChunks);
  std::atomic<bool> waited = false;
  node.each([&](int rank, ThreadNode::Sets& sets) {
    std::vector<float> values(9000, 1.0F);
    while (rank == 1 && !waited) {
      base::sleep_for(std::chrono::microseconds(100));
    }
    const Work work = sets[0]->all_reduce(buffer(values), Op::sum);
    if (rank == 0) {
      const auto late = work.wait(std::chrono::milliseconds(10));
      REQUIRE(!late.ok());
      CHECK(late.error().code() == Errc::timeout);
      waited = true;
    }
    CHECK(work.wait(std::chrono::seconds(30)).ok());
    CHECK(values.front() == 2.0F);
  });
}

TEST_CASE("four threads of each rank work on four sets") {
  ThreadNode node(2, kSmallChunks, 4);
  node.each([](int rank, ThreadNode::Sets& sets) {
    std::vector<base::Thread> threads;
    for (size_t s = 0; s < 4; ++s) {
      threads.emplace_back("submit", [&, s] {
        for (size_t i = 0; i < 200; ++i) {
          std::vector<float> values((s + 1) * 700, static_cast<float>(rank + 1));
          const Work work =
              sets[s]->all_reduce(buffer(values), Op::sum, {.blocking = i % 2 == s % 2});
          CHECK(work.wait(std::chrono::seconds(30)).ok());
          CHECK(values == std::vector<float>(values.size(), 3.0F));
        }
      });
    }
  });
}

}  // namespace
}  // namespace headrace::comm
