// SPDX-License-Identifier: Apache-2.0
// Ranks that call the same thing differently: one error for all, and nothing else is touched.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "headrace/comm/thread_ranks_test.h"

namespace headrace::comm {
namespace {

using std::chrono::seconds;
using testing::run_thread_ranks;

struct Way {
  const char* name;
  Transport transport;
  int ranks_per_node;
};
constexpr Way kWays[] = {{"shm", Transport::automatic, 3},
                         {"tcp", Transport::tcp, 3},
                         {"nodes", Transport::automatic, 2}};

/// Memory of one rank.
struct Memory {
  explicit Memory(uint64_t count) : in(count * 3, 1.0), out(count * 3, 0.0) {}
  ConstBuffer from(uint64_t count, Dtype dtype = Dtype::f32) const {
    return {in.data(), count, dtype};
  }
  Buffer to(uint64_t count, Dtype dtype = Dtype::f32) { return {out.data(), count, dtype}; }
  std::vector<double> in, out;
};

struct Difference {
  const char* name;
  std::function<Work(ProcessSet&, Memory&, uint64_t)> usual;
  std::function<Work(ProcessSet&, Memory&, uint64_t)> odd;
};

Work sum(ProcessSet& set, Memory& m, uint64_t n) {
  return set.all_reduce(m.from(n), m.to(n), Op::sum);
}
Work sent(ProcessSet& set, Memory& m, uint64_t n) { return set.broadcast(m.to(n), 0); }
Work gathered(ProcessSet& set, Memory& m, uint64_t n) {
  return set.all_gather(m.from(n), m.to(n * 3));
}

Work swapped(ProcessSet& set, Memory& m, uint64_t n) {
  return set.all_to_all(m.from(n * 3), m.to(n * 3));
}

const Difference kDifferences[] = {
    {"count", sum,
     [](ProcessSet& set, Memory& m, uint64_t n) {
       return set.all_reduce(m.from(n - 1), m.to(n - 1), Op::sum);
     }},
    {"type", sum,
     [](ProcessSet& set, Memory& m, uint64_t n) {
       return set.all_reduce(m.from(n, Dtype::i32), m.to(n, Dtype::i32), Op::sum);
     }},
    {"reduction", sum,
     [](ProcessSet& set, Memory& m, uint64_t n) {
       return set.all_reduce(m.from(n), m.to(n), Op::product);
     }},
    {"sum and average", sum,
     [](ProcessSet& set, Memory& m, uint64_t n) {
       return set.all_reduce(m.from(n), m.to(n), Op::average);
     }},
    {"root", sent,
     [](ProcessSet& set, Memory& m, uint64_t n) { return set.broadcast(m.to(n), 1); }},
    {"kind", sent, gathered},
    {"nothing to do", [](ProcessSet& set, Memory&, uint64_t) { return set.barrier(); }, sum},
    {"none at all", sum, [](ProcessSet& set, Memory& m, uint64_t) { return sum(set, m, 0); }},
    {"parts", swapped,
     [](ProcessSet& set, Memory& m, uint64_t n) {
       return set.all_to_all(m.from(3 * (n - 1)), m.to(3 * (n - 1)));
     }},
    {"counts of ranks", gathered,
     [](ProcessSet& set, Memory& m, uint64_t n) {
       const std::vector<uint64_t> counts = {n, n - 1, n + 1};
       return set.all_gather_v(m.from(counts[static_cast<size_t>(set.rank())]), counts,
                               m.to(n * 3));
     }},
};

void check_difference(Context& context, const Difference& difference, int odd, uint64_t count,
                      std::string* message) {
  ProcessSet& world = context.world();
  auto set = context.split(world, 0, 0);
  auto other = context.split(world, 0, 0);
  REQUIRE(set.ok());
  REQUIRE(other.ok());
  Memory memory(count + 1);
  Memory beside(count);
  const Work pending = world.rank() == 0 ? sum(**other, beside, count) : Work();
  const bool is_odd = world.rank() == odd;
  const Work work =
      is_odd ? difference.odd(**set, memory, count) : difference.usual(**set, memory, count);
  auto how = work.wait(seconds(20));
  if (how.ok()) {  // who waits for nobody may be done before it hears of the others
    how = (*set)->barrier().wait(seconds(20));
  }
  CHECK(!how.ok());
  if (how.ok()) {
    return;
  }
  CHECK_MESSAGE(how.error().code() == Errc::mismatch, how.error().message());
  *message = how.error().message();
  // A set with an operation pending meanwhile, and the world.
  CHECK((pending.valid() ? pending : sum(**other, beside, count)).wait(seconds(20)).ok());
  CHECK(world.barrier().wait(seconds(20)).ok());
}

/// Both descriptions, without their ranks: over TCP each rank may find another pair of them first.
std::set<std::string> what_differs(const std::string& message) {
  std::set<std::string> both;
  if (message.find("which expects") != std::string::npos) {
    return {"sizes"};
  }
  const std::regex description("(?:is|and) ([a-z_]+.*?) on rank [0-9]");
  for (std::sregex_iterator at(message.begin(), message.end(), description), end; at != end; ++at) {
    both.insert((*at)[1]);
  }
  return both;
}

TEST_CASE("whatever ranks call differently is one error on all, and other sets go on") {
  for (const Way& way : kWays) {
    for (const Difference& difference : kDifferences) {
      for (const uint64_t count : {10U, 100'000U}) {
        for (const int odd : {0, 2}) {
          const std::string told = fmt::format("{}, {}", way.name, difference.name);
          CAPTURE(told);
          CAPTURE(count);
          CAPTURE(odd);
          std::vector<std::string> messages(3);
          run_thread_ranks(
              3,
              [&](Config& config) {
                config.transport = way.transport;
                config.node = fmt::format("node {}", config.rank / way.ranks_per_node);
              },
              [&](Context& context) {
                check_difference(context, difference, odd, count,
                                 &messages[static_cast<size_t>(context.world().rank())]);
              });
          CHECK(!messages[0].empty());
          CHECK(what_differs(messages[1]) == what_differs(messages[0]));
          CHECK(what_differs(messages[2]) == what_differs(messages[0]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::comm
