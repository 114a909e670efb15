// SPDX-License-Identifier: Apache-2.0
// What ranks count, against numbers worked out by hand.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/board_values.h"
#include "headrace/base/clock.h"
#include "headrace/base/test_folder.h"
#include "headrace/comm/named_set.h"
#include "headrace/comm/thread_ranks_test.h"

namespace headrace::comm {
namespace {

using testing::run_thread_ranks;

/// A board for each rank; ranks are threads, and a process has one board per folder.
class Boards {
 public:
  explicit Boards(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      base::BoardOptions options;
      options.folder = folder_ / std::to_string(rank);
      options.rank = rank;
      auto made = base::Board::create(options);
      REQUIRE(made.ok());
      boards_.emplace_back(*std::move(made));
    }
  }
  void give(Config& config) const { config.board = boards_[static_cast<size_t>(config.rank)]; }
  Json of(int rank) const {
    const auto read = base::read_board_file(boards_[static_cast<size_t>(rank)]->path());
    REQUIRE(read.ok());
    return base::board_values(*read);
  }
  int64_t ops(int rank, const std::string& op) const {
    return of(rank).at("comm.ops{op=\"" + op + "\"}").integer();
  }
  int64_t bytes(int rank, const std::string& dir, const std::string& transport) const {
    return of(rank)
        .at(fmt::format("comm.bytes{{dir=\"{}\",transport=\"{}\"}}", dir, transport))
        .integer();
  }

 private:
  base::TestFolder folder_;
  std::vector<std::shared_ptr<base::Board>> boards_;
};

Buffer buffer(std::vector<float>& values, size_t count) {
  return {values.data(), count, Dtype::f32};
}

/// Each kind with 4-byte elements: all_reduce of 10 twice and of 100,000, broadcast of 6 and
/// reduce of 5 with root 1, all_gather of 3, reduce_scatter of 4 a rank, all_to_all of 2 a rank,
/// gather of 7 to and scatter of 8 from root 0, a barrier.
void one_of_each(ProcessSet& set) {
  const auto ranks = static_cast<size_t>(set.size());
  std::vector<float> in(100'000, 1.0F);
  std::vector<float> out(100'000);
  const Options how = {.blocking = true};
  const std::vector<Work> works = {
      set.all_reduce(buffer(in, 10), buffer(out, 10), Op::sum, how),
      set.all_reduce(buffer(in, 10), buffer(out, 10), Op::sum, {}),
      set.all_reduce(buffer(in, 100'000), buffer(out, 100'000), Op::sum, how),
      set.broadcast(buffer(out, 6), 1, how),
      set.reduce(buffer(in, 5), buffer(out, 5), 1, Op::max, how),
      set.all_gather(buffer(in, 3), buffer(out, 3 * ranks), how),
      set.reduce_scatter(buffer(in, 4 * ranks), buffer(out, 4), Op::sum, how),
      set.all_to_all(buffer(in, 2 * ranks), buffer(out, 2 * ranks), how),
      set.gather(buffer(in, 7), buffer(out, 7 * ranks), 0, how),
      set.scatter(buffer(in, 8 * ranks), buffer(out, 8), 0, how),
      set.barrier(how),
  };
  for (const Work& work : works) {
    CHECK(work.wait().ok());
  }
}

/// Of one_of_each, in bytes: what `rank` of `ranks` puts in, and gets.
std::pair<int64_t, int64_t> moved(int rank, int ranks) {
  const int64_t reduced = 10 + 10 + 100'000;
  const int64_t in = reduced + (rank == 1 ? 6 : 0) + 5 + 3 + 4 * ranks + 2 * ranks + 7 +
                     (rank == 0 ? 8 * ranks : 0);
  const int64_t out = reduced + (rank == 1 ? 0 : 6) + (rank == 1 ? 5 : 0) + 3 * ranks + 4 +
                      2 * ranks + (rank == 0 ? 7 * ranks : 0) + 8;
  return {4 * in, 4 * out};
}

TEST_CASE("operations and bytes are counted, by kind and by what carries them") {
  for (const int ranks : {2, 3}) {
    for (const bool tcp : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(tcp);
      const Boards boards(ranks);
      run_thread_ranks(
          ranks,
          [&](Config& config) {
            boards.give(config);
            config.transport = tcp ? Transport::tcp : Transport::shm;
          },
          [](Context& context) {
            one_of_each(context.world());
            context.flush_metrics();
          });
      for (int rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        CHECK(boards.ops(rank, "all_reduce") == 3);
        for (const char* op : {"broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all",
                               "gather", "scatter", "barrier"}) {
          CAPTURE(op);
          CHECK(boards.ops(rank, op) == 1);
        }
        CHECK(boards.ops(rank, "negotiation") == 1);  // the barrier of init
        const auto [in, out] = moved(rank, ranks);
        CHECK(boards.bytes(rank, "tx", tcp ? "tcp" : "shm") == in);
        CHECK(boards.bytes(rank, "rx", tcp ? "tcp" : "shm") == out);
        CHECK(boards.bytes(rank, "tx", tcp ? "shm" : "tcp") == 0);
      }
    }
  }
}

TEST_CASE("a board is at most 255 small operations behind, and whole once the context is closed") {
  constexpr int kTimes = 1000;
  const Boards boards(2);
  run_thread_ranks(
      2, [&](Config& config) { boards.give(config); },
      [&](Context& context) {
        std::vector<float> value(1, 1.0F);
        for (int i = 0; i < kTimes; ++i) {
          CHECK(context.world()
                    .all_reduce(buffer(value, 1), Op::max, {.blocking = true})
                    .wait()
                    .ok());
        }
        CHECK(boards.ops(context.world().rank(), "all_reduce") > kTimes - 256);
      });
  CHECK(boards.ops(0, "all_reduce") == kTimes);
  CHECK(boards.bytes(1, "tx", "shm") == 4 * kTimes);
}

TEST_CASE("messages are counted on both ends") {
  const Boards boards(2);
  run_thread_ranks(
      2, [&](Config& config) { boards.give(config); },
      [](Context& context) {
        std::vector<float> values(25, 1.0F);
        ProcessSet& set = context.world();
        const Work work = set.rank() == 0 ? set.send(buffer(values, 25), 1, 7)
                                          : set.recv(buffer(values, 25), 0, 7);
        CHECK(work.wait().ok());
      });
  CHECK(boards.ops(0, "send") == 1);
  CHECK(boards.ops(1, "recv") == 1);
  CHECK(boards.bytes(0, "tx", "tcp") == 100);
  CHECK(boards.bytes(1, "rx", "tcp") == 100);
  CHECK(boards.bytes(1, "tx", "tcp") == 0);
}

TEST_CASE("the time asleep for a late rank is counted for that rank") {
  constexpr auto kLate = std::chrono::milliseconds(300);
  for (const bool blocking : {true, false}) {
    CAPTURE(blocking);
    const Boards boards(3);
    run_thread_ranks(
        3, [&](Config& config) { boards.give(config); },
        [&](Context& context) {
          if (context.world().rank() == 2) {
            base::sleep_for(kLate);
          }
          std::vector<float> value(1, 1.0F);
          const Options how = {.blocking = blocking};
          CHECK(context.world().all_reduce(buffer(value, 1), Op::max, how).wait().ok());
        });
    const Json first = boards.of(0);
    // Spinning comes before sleep, and the others' own start is not the same moment.
    CHECK(first.at("comm.wait_seconds{op=\"all_reduce\"}").number() > 0.1);
    CHECK(first.at("comm.peer_wait_seconds{peer=\"2\"}").number() > 0.1);
    CHECK(first.at("comm.op_seconds{op=\"all_reduce\"}").at("count").integer() == 1);
    CHECK(boards.of(2).at("comm.peer_wait_seconds{peer=\"0\"}").number() < 0.1);
  }
}

TEST_CASE("a named operation counts what somebody waits for it, and tensors that were fused") {
  constexpr auto kLate = std::chrono::milliseconds(300);
  const Boards boards(2);
  run_thread_ranks(
      2, [&](Config& config) { boards.give(config); },
      [&](Context& context) {
        auto set = context.split(context.world(), 0, context.world().rank());
        REQUIRE(set.ok());
        const auto named = NamedSet::make(context, *std::move(set), {});
        if (named->rank() == 1) {
          base::sleep_for(kLate);
        }
        std::array<float, 8> values{};
        std::vector<NamedCall> calls;
        for (size_t i = 0; i < 2; ++i) {
          const Request request = {
              .op = Op::sum, .shape = {4}, .splits = {}, .group = "g", .group_size = 2};
          auto tensor = named->prepare("t" + std::to_string(i), request);
          REQUIRE(tensor.ok());
          float* const at = values.data() + 4 * i;
          calls.push_back({*tensor, at, at});
        }
        auto works = named->submit_all(std::move(calls));
        REQUIRE(works.ok());
        for (const NamedWork& work : *works) {
          CHECK(work.wait().ok());
        }
      });
  const Json first = boards.of(0);
  CHECK(first.at("comm.wait_seconds{op=\"all_reduce\"}").number() > 0.1);
  CHECK(first.at("comm.peer_wait_seconds{peer=\"1\"}").number() > 0.1);
  CHECK(first.at("comm.fused_tensors").integer() == 2);
  CHECK(boards.ops(0, "all_reduce") == 1);
}

TEST_CASE("a set that fails is counted once, by its code") {
  const Boards boards(2);
  run_thread_ranks(
      2, [&](Config& config) { boards.give(config); },
      [](Context& context) {
        std::vector<float> values(10, 1.0F);
        const size_t count = context.world().rank() == 0 ? 10 : 9;
        for (int i = 0; i < 2; ++i) {
          const auto how = context.world().all_reduce(buffer(values, count), Op::sum).wait();
          CHECK((!how.ok() && how.error().code() == Errc::mismatch));
        }
      });
  CHECK(boards.of(0).at("comm.errors{code=\"mismatch\"}").integer() == 1);
  CHECK(boards.of(1).at("comm.errors{code=\"mismatch\"}").integer() == 1);
  CHECK(boards.ops(0, "all_reduce") == 0);
}

}  // namespace
}  // namespace headrace::comm
