// SPDX-License-Identifier: Apache-2.0
// send and recv, within a node and between nodes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <numeric>
#include <vector>

#include "headrace/comm/process_ranks_test.h"
#include "headrace/comm/thread_ranks_test.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_ranks;
using testing::run_thread_ranks;
using testing::sum_of_ranks;

constexpr Transport kTransports[] = {Transport::shm, Transport::tcp};

std::function<void(Config&)> over(Transport transport) {
  return [transport](Config& config) { config.transport = transport; };
}

Buffer buffer(std::vector<int64_t>& values) { return {values.data(), values.size(), Dtype::i64}; }

std::vector<int64_t> values_of(int rank, size_t count) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), rank * 1'000'000);
  return values;
}

TEST_CASE("messages of all sizes go round a ring, both ways at once") {
  for (const Transport transport : kTransports) {
    for (const int ranks : {2, 3, 5}) {
      run_thread_ranks(ranks, over(transport), [&](Context& context) {
        ProcessSet& world = context.world();
        const int next = (world.rank() + 1) % ranks;
        const int before = (world.rank() + ranks - 1) % ranks;
        for (const size_t count : {0U, 1U, 15U, 2047U, 2048U, 2049U, 100'000U, 700'001U}) {
          auto out = values_of(world.rank(), count);
          std::vector<int64_t> up(count);
          std::vector<int64_t> down(count);
          const Work works[] = {
              world.send(buffer(out), next, 1), world.send(buffer(out), before, 2),
              world.recv(buffer(up), before, 1), world.recv(buffer(down), next, 2)};
          for (const Work& work : works) {
            const auto how = work.wait(seconds(30));
            CHECK_MESSAGE(how.ok(), how.error().message());
          }
          CHECK(up == values_of(before, count));
          CHECK(down == values_of(next, count));
          CHECK(works[2].source() == before);
          CHECK(works[0].source() == -1);
        }
      });
    }
  }
}

TEST_CASE("messages are matched by tag, and with one tag in the order of sending") {
  for (const Transport transport : kTransports) {
    run_thread_ranks(2, over(transport), [&](Context& context) {
      ProcessSet& world = context.world();
      std::vector<std::vector<int64_t>> all;
      std::vector<Work> works;
      const auto size_of = [](int i) { return i % 3 == 0 ? size_t{5'000} : size_t{10}; };
      if (world.rank() == 0) {
        for (int i = 0; i < 60; ++i) {
          all.push_back(values_of(i, size_of(i)));
        }
        for (int i = 0; i < 60; ++i) {
          works.push_back(world.send(buffer(all[static_cast<size_t>(i)]), 1, i % 2));
        }
        CHECK(world.barrier().wait().ok());
      } else {
        CHECK(world.barrier().wait().ok());  // which no message waits for
        for (int i = 0; i < 60; ++i) {
          all.emplace_back(size_of(i));
        }
        for (const int tag : {1, 0}) {
          for (int i = tag; i < 60; i += 2) {
            works.push_back(world.recv(buffer(all[static_cast<size_t>(i)]), 0, tag));
          }
        }
      }
      for (const Work& work : works) {
        const auto how = work.wait(seconds(30));
        CHECK_MESSAGE(how.ok(), how.error().message());
      }
      for (int i = 0; i < 60; ++i) {
        CHECK(all[static_cast<size_t>(i)] == values_of(i, size_of(i)));
      }
    });
  }
}

TEST_CASE("a recv from any rank says whose message it took") {
  for (const Transport transport : kTransports) {
    run_thread_ranks(4, over(transport), [&](Context& context) {
      ProcessSet& world = context.world();
      auto set = context.split(world, 0, -world.rank());  // in the opposite order
      REQUIRE(set.ok());
      const size_t count = 3000;
      if ((*set)->rank() != 0) {
        auto out = values_of((*set)->rank(), count);
        CHECK((*set)->send(buffer(out), 0, 7, {.blocking = true}).wait().ok());
        return;
      }
      std::vector<int> sources;
      for (int i = 0; i < 3; ++i) {
        std::vector<int64_t> in(count);
        const Work work = (*set)->recv(buffer(in), ProcessSet::any_source, 7, {.blocking = true});
        CHECK(work.wait().ok());
        CHECK(in == values_of(work.source(), count));
        sources.push_back(work.source());
      }
      std::sort(sources.begin(), sources.end());
      CHECK(sources == std::vector<int>{1, 2, 3});
    });
  }
}

TEST_CASE("messages of other lengths than asked for are errors of these messages alone") {
  for (const Transport transport : kTransports) {
    for (const size_t count : {10U, 50'000U}) {
      run_thread_ranks(2, over(transport), [&](Context& context) {
        ProcessSet& world = context.world();
        std::vector<int64_t> values(world.rank() == 0 ? count : count + 1, 1);
        const auto how = world.rank() == 0 ? world.send(buffer(values), 1, 0).wait(seconds(30))
                                           : world.recv(buffer(values), 0, 0).wait(seconds(30));
        if (world.rank() == 1 || count > 10) {
          REQUIRE(!how.ok());
          CHECK(how.error().code() == Errc::mismatch);
        }
        std::vector<int64_t> good(5, world.rank());
        const auto later = world.rank() == 0 ? world.send(buffer(good), 1, 0).wait(seconds(30))
                                             : world.recv(buffer(good), 0, 0).wait(seconds(30));
        CHECK(later.ok());
        CHECK(good.front() == 0);
        CHECK(sum_of_ranks(world, 10) == 0);
      });
    }
  }
}

TEST_CASE("a message that nobody sends ends with its time, its set, or its sender") {
  for (const Transport transport : kTransports) {
    run_thread_ranks(3, over(transport), [&](Context& context) {
      ProcessSet& world = context.world();
      std::vector<int64_t> values(100'000);
      CHECK(world.send(buffer(values), world.rank(), 0).wait().error().code() ==
            Errc::invalid_argument);
      CHECK(world.recv(buffer(values), 3, 0).wait().error().code() == Errc::invalid_argument);
      const int next = (world.rank() + 1) % 3;
      auto how = world.recv(buffer(values), next, 0, {.timeout = milliseconds(60)}).wait();
      CHECK(how.error().code() == Errc::timeout);
      how = world.send(buffer(values), next, 1, {.timeout = milliseconds(60)}).wait();
      CHECK(how.error().code() == Errc::timeout);

      auto set = context.split(world, 0, 0);
      REQUIRE(set.ok());
      const Work work = (*set)->recv(buffer(values), next, 0);
      if (world.rank() == 0) {
        (*set)->abort("no more");
      }
      how = work.wait(seconds(30));
      REQUIRE(!how.ok());
      CHECK_MESSAGE(how.error().message().find("no more") != std::string::npos,
                    how.error().message());
      CHECK((*set)->send(buffer(values), next, 0).wait(seconds(30)).error().code() ==
            Errc::cancelled);
    });
  }
}

TEST_CASE("a message that nobody takes ends when the other rank closes or aborts the set") {
  for (const Transport transport : kTransports) {
    for (const bool aborts : {true, false}) {
      CAPTURE(aborts);
      run_thread_ranks(2, over(transport), [&](Context& context) {
        ProcessSet& world = context.world();
        auto set = context.split(world, 0, 0);
        REQUIRE(set.ok());
        std::vector<int64_t> values(100'000);
        Work before;
        if (world.rank() == 0) {
          before = (*set)->send(buffer(values), 1, 0);
        }
        CHECK(world.barrier().wait().ok());
        if (world.rank() == 1) {
          aborts ? (*set)->abort("no more") : (*set).reset();
          CHECK(world.barrier().wait().ok());
          return;
        }
        const Work after = (*set)->send(buffer(values), 1, 1);
        const std::string wanted = aborts ? "no more" : "process set";
        for (const Work& work : {before, after}) {
          const auto how = work.wait(seconds(20));
          REQUIRE(!how.ok());
          CHECK_MESSAGE(how.error().code() == Errc::cancelled, how.error().message());
          CHECK_MESSAGE(how.error().message().find(wanted) != std::string::npos,
                        how.error().message());
        }
        CHECK(world.barrier().wait().ok());
      });
    }
  }
}

TEST_CASE("who waits for a message hears that the sender has closed the set alone") {
  for (const Transport transport : kTransports) {
    run_thread_ranks(3, over(transport), [&](Context& context) {
      ProcessSet& world = context.world();
      auto set = context.split(world, 0, 0);
      REQUIRE(set.ok());
      std::vector<int64_t> values(700'001, world.rank());
      std::vector<int64_t> other(10);
      if (world.rank() == 1) {
        CHECK((*set)->send(buffer(values), 0, 0).wait(seconds(30)).ok());
        (*set).reset();
      } else if (world.rank() == 0) {
        CHECK((*set)->recv(buffer(values), 1, 0).wait(seconds(30)).ok());
        CHECK(values.back() == 1);
        const auto how = (*set)->recv(buffer(other), 1, 0).wait(seconds(30));
        REQUIRE(!how.ok());
        CHECK(how.error().code() == Errc::cancelled);
        CHECK_MESSAGE(how.error().message().find("rank 1 has closed") != std::string::npos,
                      how.error().message());
        // Rank 2 has not.
        CHECK((*set)->recv(buffer(other), ProcessSet::any_source, 3).wait(seconds(30)).ok());
      } else {
        base::sleep_for(std::chrono::milliseconds(200));
        CHECK((*set)->send(buffer(other), 0, 3).wait(seconds(30)).ok());
      }
      CHECK(world.barrier().wait().ok());
    });
  }
}

TEST_CASE("the death and the departure of a sender are told to who waits for it") {
  for (const Transport transport : kTransports) {
    for (const bool dies : {true, false}) {
      const auto codes = run_ranks(
          3,
          [dies](Context& context) {
            ProcessSet& world = context.world();
            static_cast<void>(sum_of_ranks(world, 1));
            std::vector<int64_t> values(1'000'000, 4);
            if (world.rank() == 1) {
              static_cast<void>(world.send(buffer(values), 0, 5).wait(seconds(10)));
              return dies ? ::raise(SIGKILL) : 0;
            }
            if (world.rank() == 0 &&
                (!world.recv(buffer(values), 1, 5).wait(seconds(10)).ok() || values[9] != 4)) {
              return 1;
            }
            const auto how = world.recv(buffer(values), 1, 6).wait(seconds(10));
            return !how.ok() && how.error().code() == (dies ? Errc::peer_dead : Errc::cancelled)
                       ? 0
                       : 2;
          },
          over(transport));
      CHECK(codes == std::vector<int>{0, dies ? -SIGKILL : 0, 0});
    }
  }
}

}  // namespace
}  // namespace headrace::comm
