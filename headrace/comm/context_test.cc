// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/context.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/test_process.h"
#include "headrace/base/thread.h"
#include "headrace/comm/process_ranks_test.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::folder_store;
using testing::run_ranks;
using testing::sum_of_ranks;

TEST_CASE("ranks that are processes meet, share memory and reduce") {
  for (const int ranks : {1, 2, 5}) {
    const auto codes = run_ranks(ranks, [ranks](Context& context) {
      const Topology& topology = context.topology();
      if (topology.local_world_size != ranks || topology.nodes != 1 ||
          topology.local_rank != context.world().rank()) {
        return 1;
      }
      for (const size_t count : {1U, 1000U, 200'000U}) {
        if (sum_of_ranks(context.world(), count) != 0) {
          return 2;
        }
      }
      return 0;
    });
    CHECK(codes == std::vector<int>(static_cast<size_t>(ranks), 0));
  }
}

TEST_CASE("a forked child of a rank is refused and disturbs nobody") {
  const auto codes = run_ranks(2, [](Context& context) {
    std::vector<float> values(100'000, 1.0F);
    const Buffer buffer = {values.data(), values.size(), Dtype::f32};
    Work pending;
    if (context.world().rank() == 0) {
      pending = context.world().all_reduce(buffer, Op::sum, {});
    }
    base::TestProcess child([&] {
      const auto refused = [](const Result<void>& how) {
        return !how.ok() && how.error().code() == Errc::invalid_argument;
      };
      if (!refused(context.world().barrier({.blocking = true}).wait()) ||
          !refused(context.world().send(buffer, 1 - context.world().rank(), 0).wait()) ||
          !refused(context.world().recv(buffer, 1 - context.world().rank(), 0).wait()) ||
          (pending.valid() && !pending.done() && !refused(pending.wait()))) {
        return 1;
      }
      context.world().abort("a child must not");
      context.~Context();  // as an interpreter does when it ends
      return 0;
    });
    if (child.wait(seconds(20)) != 0) {
      return 1;
    }
    if (context.world().rank() == 1) {
      pending = context.world().all_reduce(buffer, Op::sum, {});
    }
    if (!pending.wait().ok() || values.back() != 2.0F) {
      return 2;
    }
    return sum_of_ranks(context.world(), 10);
  });
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("split makes sets by color and key, with operations of their own") {
  const auto codes = run_ranks(5, [](Context& context) {
    const int rank = context.world().rank();
    // Ranks 0, 2, 4 in the opposite order; 1 alone; 3 in none.
    const int color = rank % 2 == 0 ? 7 : rank == 1 ? 0 : -1;
    auto set = context.split(context.world(), color, -rank);
    if (!set.ok()) {
      return 1;
    }
    if (rank == 3) {
      return *set == nullptr ? sum_of_ranks(context.world(), 10) : 2;
    }
    ProcessSet& ours = **set;
    const std::vector<int> members(ours.world_ranks().begin(), ours.world_ranks().end());
    if (members != (rank == 1 ? std::vector<int>{1} : std::vector<int>{4, 2, 0}) ||
        members[static_cast<size_t>(ours.rank())] != rank) {
      return 3;
    }
    for (int i = 0; i < 3; ++i) {
      if (sum_of_ranks(ours, 3000) != 0) {
        return 4;
      }
    }
    return sum_of_ranks(context.world(), 10);
  });
  CHECK(codes == std::vector<int>(5, 0));
}

TEST_CASE("the death of a rank fails pending and later operations of all others, and names it") {
  for (const bool busy : {false, true}) {
    const auto codes = run_ranks(3, [busy](Context& context) {
      ProcessSet& world = context.world();
      // Rank 1 gets through this when the others have ended their init, which must not fail.
      static_cast<void>(sum_of_ranks(world, 1));
      std::vector<float> values(2'000'000, 1.0F);
      const Buffer buffer = {values.data(), values.size(), Dtype::f32};
      if (world.rank() == 1) {
        if (busy) {
          const Work work = world.all_reduce(buffer, Op::sum);  // in the middle of it, or before
          base::sleep_for(std::chrono::microseconds(300));
        }
        ::raise(SIGKILL);
      }
      const auto start = base::system_clock().monotonic();
      Result<void> how;
      while (how.ok()) {
        how = world.all_reduce(buffer, Op::sum).wait(seconds(10));
      }
      const auto taken = base::system_clock().monotonic() - start;
      const bool named = how.error().code() == Errc::peer_dead && how.error().origin() &&
                         how.error().origin()->rank == 1 &&
                         how.error().message().find("rank 1 on") != std::string::npos;
      const auto later = world.barrier({.blocking = true}).wait();
      return !named                                    ? 1
             : later.ok()                              ? 2
             : later.error().code() != Errc::peer_dead ? 3
             : taken > seconds(5)                      ? 4
                                                       : 0;
    });
    CHECK(codes == std::vector<int>{0, -SIGKILL, 0});
  }
}

TEST_CASE("a rank that leaves in order is not taken for dead") {
  const auto codes = run_ranks(3, [](Context& context) {
    ProcessSet& world = context.world();
    auto pair = context.split(world, world.rank() == 2 ? -1 : 0, 0);
    if (world.rank() == 2) {
      return 0;  // closes everything and ends
    }
    for (int i = 0; i < 200; ++i) {
      base::sleep_for(milliseconds(1));
      if (sum_of_ranks(**pair, 5000) != 0) {
        return 1;
      }
    }
    const auto how = world.barrier({.blocking = true}).wait();
    return !how.ok() && how.error().code() == Errc::cancelled &&
                   how.error().message().find("rank 2 has closed") != std::string::npos
               ? 0
               : 2;
  });
  CHECK(codes == std::vector<int>(3, 0));
}

TEST_CASE("ranks that do not come are named to all that did") {
  base::TestFolder folder;
  std::vector<base::TestProcess> processes;
  for (const int rank : {0, 2}) {
    processes.emplace_back([&, rank] {
      const Config config = {.rank = rank, .world_size = 4, .init_timeout = milliseconds(200)};
      const auto context = Context::init(config, folder_store(folder.path()));
      const bool named = !context.ok() && context.error().code() == Errc::timeout &&
                         context.error().message().find("2 of 4 ranks") != std::string::npos &&
                         context.error().message().find("1, 3") != std::string::npos;
      return named ? 0 : 1;
    });
  }
  for (auto& process : processes) {
    CHECK(process.wait(seconds(20)) == 0);
  }
}

TEST_CASE("ranks with different settings are refused, all of them") {
  const auto codes = run_ranks(
      3, [](Context&) { return 0; },
      [](Config& config) { config.timeout = seconds(config.rank == 1 ? 30 : 20); });
  CHECK(codes == std::vector<int>(3, 50 + static_cast<int>(Errc::mismatch)));
}

TEST_CASE("a context can be made and closed many times, and leaves nothing") {
  const auto codes = run_ranks(1, [](Context& first) {
    const auto descriptors = [] {
      const auto files = std::filesystem::directory_iterator("/proc/self/fd");
      return std::distance(begin(files), end(files));
    };
    const auto before = descriptors();
    base::TestFolder folder;
    for (int i = 0; i < 300; ++i) {
      Config config = first.config();
      config.generation = static_cast<uint64_t>(i + 1);
      auto context = Context::init(config, folder_store(folder.path()));
      if (!context.ok() || sum_of_ranks((*context)->world(), 100) != 0) {
        return 1;
      }
      auto set = (*context)->split((*context)->world(), 0, 0);
      if (!set.ok() || sum_of_ranks(**set, 100) != 0) {
        return 2;
      }
    }
    return descriptors() == before ? 0 : 3;
  });
  CHECK(codes == std::vector<int>{0});
}

}  // namespace
}  // namespace headrace::comm
