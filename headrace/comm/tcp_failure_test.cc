// SPDX-License-Identifier: Apache-2.0
// What goes wrong between hosts: ranks that die, stop, leave or differ, and strangers at the door.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/comm/process_ranks_test.h"
#include "headrace/comm/thread_ranks_test.h"
#include "headrace/comm/transport/tcp_links.h"
#include "headrace/wire/channel.h"
#include "headrace/wire/endpoint.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::MapStore;
using testing::run_ranks;
using testing::run_thread_ranks;
using testing::stored;
using testing::sum_of_ranks;

/// All over TCP; nodes of one rank; nodes with several ranks; several streams.
struct Way {
  const char* name;
  Transport transport;
  int ranks_per_node;
  int streams = 1;
};
constexpr Way kWays[] = {{"tcp", Transport::tcp, 4},
                         {"nodes of one rank", Transport::automatic, 1},
                         {"nodes of two ranks", Transport::automatic, 2},
                         {"three streams", Transport::tcp, 4, 3}};

std::function<void(Config&)> on_way(const Way& way) {
  return [way](Config& config) {
    config.transport = way.transport;
    config.streams = way.streams;
    config.node = fmt::format("node {}", config.rank / way.ranks_per_node);
  };
}

bool names(const Error& error, Errc code, const std::string& text) {
  return error.code() == code && error.message().find(text) != std::string::npos;
}

TEST_CASE("the death of a rank between nodes is told to all, with its name") {
  for (const Way& way : kWays) {
    for (const int phase : {0, 1, 2}) {
      CAPTURE(way.name);
      CAPTURE(phase);
      const auto codes = run_ranks(
          4,
          [phase](Context& context) {
            ProcessSet& world = context.world();
            static_cast<void>(sum_of_ranks(world, 1));
            std::vector<float> values(3'000'000, 1.0F);
            const Buffer buffer = {values.data(), values.size(), Dtype::f32};
            if (world.rank() == 1) {
              Work work;
              if (phase > 0) {  // in the middle of it
                work = world.all_reduce(buffer, Op::sum);
                base::sleep_for(milliseconds(3));
              }
              phase == 2 ? ::_exit(0) : static_cast<void>(::raise(SIGKILL));
            }
            Result<void> how;
            while (how.ok()) {
              how = world.all_reduce(buffer, Op::sum).wait(seconds(10));
            }
            const bool named = names(how.error(), Errc::peer_dead, "rank 1 on") &&
                               how.error().origin() && how.error().origin()->rank == 1;
            const auto later = world.barrier({.blocking = true}).wait();
            if (!named) {
              fprintf(stderr, "rank %d: %s\n", world.rank(), how.error().message().c_str());
            }
            return !named ? 1 : later.ok() || later.error().code() != Errc::peer_dead ? 2 : 0;
          },
          on_way(way));
      CHECK(codes == std::vector<int>{0, phase == 2 ? 0 : -SIGKILL, 0, 0});
    }
  }
}

TEST_CASE("of several ranks that die one after the other all name the first") {
  const auto codes = run_ranks(
      5,
      [](Context& context) {
        ProcessSet& world = context.world();
        static_cast<void>(sum_of_ranks(world, 1));
        if (world.rank() == 3) {
          ::raise(SIGKILL);
        }
        std::vector<float> values(1'000'000, 1.0F);
        Result<void> how;
        while (how.ok()) {
          how = world.all_reduce(Buffer{values.data(), values.size(), Dtype::f32}, Op::sum)
                    .wait(seconds(10));
        }
        // Two end at once with what they heard, as a program does whose exception nobody catches.
        const bool named = names(how.error(), Errc::peer_dead, "rank 3 on");
        if (world.rank() == 0 || world.rank() == 4) {
          ::_exit(named ? 0 : 1);
        }
        base::sleep_for(milliseconds(200));
        const auto later = world.barrier({.blocking = true}).wait();
        return named && names(later.error(), Errc::peer_dead, "rank 3 on") ? 0 : 1;
      },
      [](Config& config) { config.transport = Transport::tcp; });
  CHECK(codes == std::vector<int>{0, 0, 0, -SIGKILL, 0});
}

TEST_CASE("a rank that leaves in order is not taken for dead, and what it sent still comes") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    const auto codes = run_ranks(
        4,
        [](Context& context) {
          ProcessSet& world = context.world();
          auto trio = context.split(world, world.rank() == 2 ? -1 : 0, 0);
          if (!trio.ok()) {
            return 1;
          }
          std::vector<float> large(2'000'000, static_cast<float>(world.rank()));
          const Buffer buffer = {large.data(), large.size(), Dtype::f32};
          if (!world.broadcast(buffer, 2).wait().ok() || large.back() != 2.0F) {
            return 2;
          }
          if (world.rank() == 2) {
            return 0;  // closes everything and ends
          }
          for (int i = 0; i < 100; ++i) {
            base::sleep_for(milliseconds(1));
            if (sum_of_ranks(**trio, 5000) != 0) {
              return 3;
            }
          }
          const auto how = world.barrier({.blocking = true}).wait();
          return !how.ok() && names(how.error(), Errc::cancelled, "rank 2 has closed") ? 0 : 4;
        },
        on_way(way));
    CHECK(codes == std::vector<int>(4, 0));
  }
}

TEST_CASE("a rank that is stopped is late, not dead") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    const auto codes = run_ranks(
        4,
        [](Context& context) {
          ProcessSet& world = context.world();
          if (sum_of_ranks(world, 10) != 0) {
            return 1;
          }
          if (world.rank() == 1) {
            ::raise(SIGSTOP);
          }
          return sum_of_ranks(world, 10) != 0 ? 2 : sum_of_ranks(world, 400'000) != 0 ? 3 : 0;
        },
        [&](Config& config) {
          on_way(way)(config);
          config.hb_ms = milliseconds(100);
        },
        [](const base::Path& folder) {
          const auto pid = static_cast<pid_t>(stored(folder, "rank", 1).get_integer("pid"));
          const auto state = [pid] {
            const auto stat = base::read_file(fmt::format("/proc/{}/stat", pid), 4096);
            return stat.ok() ? (*stat)[stat->rfind(')') + 2] : 'X';
          };
          const auto deadline = base::Deadline::in(seconds(20));
          while (state() != 'T' && !deadline.passed()) {
            base::sleep_for(milliseconds(5));
          }
          base::sleep_for(milliseconds(2500));  // longer than a silent host may be
          ::kill(pid, SIGCONT);
        });
    CHECK(codes == std::vector<int>(4, 0));
  }
}

TEST_CASE("ranks that call different operations all get the same error, with both of them") {
  for (const Way& way : kWays) {
    for (const int odd : {0, 1, 3}) {
      for (const uint64_t count : {100U, 300'000U}) {
        CAPTURE(way.name);
        CAPTURE(odd);
        CAPTURE(count);
        std::vector<std::string> messages(4);
        run_thread_ranks(4, on_way(way), [&](Context& context) {
          ProcessSet& world = context.world();
          // The others have ended their init when this is done; what follows may end it.
          static_cast<void>(sum_of_ranks(world, 1));
          std::vector<float> values(count, 1.0F);
          const Buffer buffer = {values.data(), count, Dtype::f32};
          const Work work = world.rank() == odd
                                ? world.broadcast(buffer, 1, {.name = "odd"})
                                : world.all_reduce(buffer, Op::max, {.name = "even"});
          auto how = work.wait(seconds(20));
          if (how.ok()) {  // a root may be done before it hears of the others
            how = world.barrier().wait(seconds(20));
          }
          REQUIRE(!how.ok());
          CHECK(how.error().code() == Errc::mismatch);
          messages[static_cast<size_t>(world.rank())] = how.error().message();
        });
        CAPTURE(messages[0]);
        CHECK(messages[0].find("broadcast root 1") != std::string::npos);
        CHECK(messages[0].find("all_reduce(max)") != std::string::npos);
        for (const std::string& one : messages) {
          CHECK(one.find("broadcast root 1") != std::string::npos);
          CHECK(one.find("all_reduce(max)") != std::string::npos);
        }
      }
    }
  }
}

/// One operation of each kind, by number; small, but for the last two.
Work start_kind(ProcessSet& set, int kind, std::vector<float>& in, std::vector<float>& out) {
  const auto ranks = static_cast<uint64_t>(set.size());
  const auto of = [](std::vector<float>& values, uint64_t count) {
    return Buffer{values.data(), count, Dtype::f32};
  };
  switch (kind) {
    case 0: return set.all_reduce(of(in, 1), of(out, 1), Op::max);
    case 1: return set.reduce(of(in, 1), of(out, 1), 2, Op::max);
    case 2: return set.broadcast(of(in, 1), 3);
    case 3: return set.all_gather(of(in, 1), of(out, ranks));
    case 4: return set.reduce_scatter(of(in, ranks), of(out, 1), Op::max);
    case 5: return set.all_to_all(of(in, ranks), of(out, ranks));
    case 6: return set.gather(of(in, 1), of(out, ranks), 1);
    case 7: return set.scatter(of(in, ranks), of(out, 1), 0);
    case 8: return set.barrier();
    case 9: return set.broadcast(of(in, in.size()), 3);
    default: return set.all_gather(of(in, in.size() / ranks), of(out, in.size()));
  }
}
constexpr int kKindsStarted = 11;

TEST_CASE("whatever the kinds that differ, all ranks of several nodes get a mismatch") {
  for (int pair = 0; pair < kKindsStarted * kKindsStarted; ++pair) {
    const int even = pair / kKindsStarted;
    const int odd = pair % kKindsStarted;
    if (even == odd) {
      continue;
    }
    const int odd_rank = pair % 4;
    run_thread_ranks(4, on_way(kWays[2]), [&](Context& context) {
      ProcessSet& world = context.world();
      static_cast<void>(sum_of_ranks(world, 1));  // the others have ended their init
      std::vector<float> in(40'000, 1.0F);
      std::vector<float> out(40'000);
      auto how =
          start_kind(world, world.rank() == odd_rank ? odd : even, in, out).wait(seconds(20));
      for (int i = 0; i < 2 && how.ok(); ++i) {  // some ranks may be done before they hear of it
        how = world.barrier().wait(seconds(20));
      }
      REQUIRE(!how.ok());
      CHECK_MESSAGE(how.error().code() == Errc::mismatch, even, " and ", odd, ": ",
                    how.error().message());
    });
  }
}

TEST_CASE(
    "bytes that the network has damaged end the set on all ranks, with the two that they were "
    "between") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    run_thread_ranks(
        4,
        [&](Config& config) {
          on_way(way)(config);
          config.crc = true;
        },
        [&](Context& context) {
          ProcessSet& world = context.world();
          CHECK(sum_of_ranks(world, 100'000) == 0);
          if (world.rank() == 0) {
            testing::damage_next(0, 2);
          }
          std::vector<float> values(100'000, 1.0F);
          const Buffer buffer = {values.data(), values.size(), Dtype::f32};
          auto how = world.all_reduce(buffer, Op::sum).wait(seconds(20));
          if (how.ok()) {
            how = world.barrier().wait(seconds(20));
          }
          REQUIRE(!how.ok());
          CHECK(how.error().code() == Errc::corrupt);
          CHECK(how.error().message().find("bytes from rank 0 came to rank 2 damaged") !=
                std::string::npos);
        });
  }
}

TEST_CASE("ranks that differ in a setting are told which one, and both values") {
  MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      Config config = {.rank = rank, .world_size = 2};
      config.streams = rank == 0 ? 1 : 3;
      const auto context = Context::init(config, store.table());
      REQUIRE(!context.ok());
      CHECK(context.error().code() == Errc::mismatch);
      CHECK(context.error().message().find("streams is 1 on rank 0 and 3 on rank 1") !=
            std::string::npos);
    });
  }
}

TEST_CASE("ranks listen at ports of the range, and say when it is too small") {
  const auto listener = wire::Listener::bind(wire::Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(listener.ok());
  const uint16_t taken = listener->endpoint().port;
  MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      Config config = {.rank = rank, .world_size = 2};
      config.transport = Transport::tcp;
      config.ports = {taken, taken};
      const auto context = Context::init(config, store.table());
      REQUIRE(!context.ok());
      CHECK(context.error().code() == Errc::busy);
      CHECK(context.error().message().find("finds no free port in port_range") !=
            std::string::npos);
    });
  }
}

TEST_CASE("a time limit and an abort end the set on all ranks, other sets go on") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    run_thread_ranks(4, on_way(way), [&](Context& context) {
      ProcessSet& world = context.world();
      auto first = context.split(world, 0, 0);
      auto second = context.split(world, 0, 0);
      REQUIRE(first.ok());
      REQUIRE(second.ok());
      std::vector<float> values(50'000, 1.0F);
      const Buffer buffer = {values.data(), values.size(), Dtype::f32};
      Result<void> how;
      if (world.rank() != 3) {
        how = (*first)
                  ->all_reduce(buffer, Op::sum, {.name = "late", .timeout = milliseconds(100)})
                  .wait(seconds(20));
        REQUIRE(!how.ok());
        CHECK_MESSAGE(names(how.error(), Errc::timeout, "waited for rank"), how.error().message());
      }
      CHECK(world.barrier().wait().ok());
      if (world.rank() == 2) {
        (*second)->abort("the data is used up");
      }
      how = (*second)->all_reduce(buffer, Op::sum).wait(seconds(20));
      REQUIRE(!how.ok());
      CHECK_MESSAGE(names(how.error(), Errc::cancelled, "rank 2 aborted the process set"),
                    how.error().message());
      CHECK(sum_of_ranks(world, 1000) == 0);
    });
  }
}

TEST_CASE("what a set has failed with can be asked on any thread while operations go on") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    run_thread_ranks(4, on_way(way), [&](Context& context) {
      ProcessSet& world = context.world();
      std::atomic<bool> ends = false;
      base::Thread asks("asks", [&] {
        while (!ends.load()) {
          CHECK(!world.failure());
          base::sleep_for(base::Micros(100));
        }
      });
      for (int i = 0; i < 50; ++i) {
        CHECK(sum_of_ranks(world, 10 + static_cast<size_t>(i) * 1000) == 0);
      }
      ends = true;
      asks.join();
      CHECK(world.barrier().wait().ok());
    });
  }
}

TEST_CASE("a set that waits does not hold up another one between nodes") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    run_thread_ranks(4, on_way(way), [&](Context& context) {
      ProcessSet& world = context.world();
      auto other = context.split(world, 0, 0);
      REQUIRE(other.ok());
      std::vector<float> late(500'000, 1.0F);
      const Buffer buffer = {late.data(), late.size(), Dtype::f32};
      Work work;
      if (world.rank() != 0) {
        work = world.all_reduce(buffer, Op::sum);
      }
      for (int i = 0; i < 20; ++i) {
        // Rank 0 begins its part behind the last of these.
        CHECK((!work.valid() || !work.done()));
        CHECK(sum_of_ranks(**other, 10 + static_cast<size_t>(i) * 9000) == 0);
      }
      if (world.rank() == 0) {
        work = world.all_reduce(buffer, Op::sum);
      }
      CHECK(work.wait(seconds(20)).ok());
      CHECK(late.back() == 4.0F);
    });
  }
}

/// Whatever anybody may do to an open port.
void disturb(uint16_t port) {
  const auto endpoint = wire::Endpoint::tcp("127.0.0.1", port);
  const auto deadline = base::Deadline::in(seconds(10));
  std::vector<base::Fd> slow;
  for (int i = 0; i < 20; ++i) {
    auto scan = wire::connect(endpoint, deadline);  // and closed at once
    auto garbage = wire::connect(endpoint, deadline);
    REQUIRE(garbage.ok());
    const std::string text = fmt::format("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", i);
    CHECK(::write(garbage->get(), text.data(), text.size()) > 0);
    auto silent = wire::connect(endpoint, deadline);
    REQUIRE(silent.ok());
    CHECK(::write(silent->get(), "H", 1) == 1);
    slow.push_back(*std::move(silent));
    const wire::Secret wrong = wire::Secret::generate();
    const auto refused = wire::Channel::connect(
        endpoint, {.service = wire::Service::data, .job_id = "headrace", .secret = &wrong},
        deadline);
    REQUIRE(!refused.ok());
    CHECK(refused.error().code() == Errc::auth_failed);
  }
}

TEST_CASE("strangers at the ports of a job are turned away, without an effect on it") {
  const auto codes = run_ranks(
      3,
      [](Context& context) {
        for (int i = 0; i < 300; ++i) {
          if (sum_of_ranks(context.world(), 20'000) != 0) {
            return 1;
          }
          base::sleep_for(milliseconds(1));
        }
        auto pair = context.split(context.world(), context.world().rank() % 2, 0);
        return pair.ok() && sum_of_ranks(**pair, 10) == 0 ? 0 : 2;
      },
      [](Config& config) { config.transport = Transport::tcp; },
      [](const base::Path& folder) {
        for (int rank = 0; rank < 3; ++rank) {
          const Json entry = stored(folder, "address", rank);
          const auto said = parse_json(entry.get_string("says"), "addresses");
          REQUIRE(said.ok());
          disturb(static_cast<uint16_t>(said->get_integer("port")));
        }
      });
  CHECK(codes == std::vector<int>(3, 0));
}

/// How often threads of this process that belong to contexts have gone to sleep.
int64_t sleeps_of_contexts() {
  int64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto status = base::read_file(task.path() / "status", 65'536);
    if (!status.ok() || status->find("Name:\thr-") != 0) {
      continue;
    }
    constexpr std::string_view kCount = "\nvoluntary_ctxt_switches:";
    const size_t at = status->find(kCount);
    sum += at == std::string::npos ? 0 : std::stoll(status->substr(at + kCount.size()));
  }
  return sum;
}

TEST_CASE("ranks that have nothing to do do not wake up") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    std::atomic<int> idle = 0;
    std::atomic<bool> measured = false;
    run_thread_ranks(4, on_way(way), [&](Context& context) {
      CHECK(sum_of_ranks(context.world(), 100'000) == 0);
      idle.fetch_add(1);
      const auto deadline = base::Deadline::in(seconds(30));
      while (context.world().rank() == 0 && idle != 4 && !deadline.passed()) {
        base::sleep_for(milliseconds(5));
      }
      if (context.world().rank() == 0) {
        int64_t before = -1;
        while (std::exchange(before, sleeps_of_contexts()) != before && !deadline.passed()) {
          base::sleep_for(milliseconds(300));  // until the last of them has fallen asleep
        }
        base::sleep_for(milliseconds(1500));  // longer than between two probes of the kernel
        CHECK(before > 0);
        CHECK(sleeps_of_contexts() == before);
        measured = true;
      }
      while (!measured && !deadline.passed()) {
        base::sleep_for(milliseconds(5));
      }
    });
  }
}

TEST_CASE("a node whose ranks cannot share memory says so to the others") {
  testing::MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      Config config = {.rank = rank, .world_size = 4};
      config.init_timeout = seconds(8);
      config.node = fmt::format("node {}", rank / 2);
      StoreTable table = store.table();
      if (rank == 3) {
        table.get = [get = table.get](const std::string& key,
                                      base::Deadline deadline) -> Result<std::string> {
          if (key.find("node/1") != std::string::npos) {
            return Error{Errc::out_of_memory, "no memory for a test"};
          }
          return get(key, deadline);
        };
      }
      const auto context = Context::init(config, table);
      REQUIRE(!context.ok());
      CHECK_MESSAGE(names(context.error(), Errc::out_of_memory, "no memory for a test"),
                    context.error().message());
    });
  }
}

TEST_CASE("a rank with another secret than the job's does not get in") {
  testing::MapStore store;
  std::vector<base::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      Config config = {.rank = rank, .world_size = 2};
      config.transport = Transport::tcp;
      config.init_timeout = seconds(2);
      config.secret = std::make_shared<const wire::Secret>(wire::Secret::generate());
      const auto context = Context::init(config, store.table());
      REQUIRE(!context.ok());
      const Errc code = rank == 1 ? Errc::auth_failed : Errc::timeout;
      CHECK_MESSAGE(context.error().code() == code, context.error().message());
      const char* whom = rank == 1 ? "cannot reach rank 0 on" : "for rank 1 on";
      CHECK_MESSAGE(context.error().message().find(whom) != std::string::npos,
                    context.error().message());
    });
  }
}

}  // namespace
}  // namespace headrace::comm
