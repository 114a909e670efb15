// SPDX-License-Identifier: Apache-2.0
// What the other ranks of a NamedSet see of one that dies, stops or leaves.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/comm/named_set.h"
#include "headrace/comm/process_ranks_test.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_ranks;

struct Tensor {
  explicit Tensor(std::string name_in, size_t count = 10)
      : name(std::move(name_in)), values(count, 1.0F) {}

  Result<NamedWork> submit(NamedSet& set) {
    Request request;
    request.shape = {static_cast<int64_t>(values.size())};
    HR_TRY(auto tensor, set.prepare(name, request));
    return set.submit({std::move(tensor), values.data(), values.data()});
  }

  std::string name;
  std::vector<float> values;
};

using Body = std::function<int(int, NamedSet&)>;

/// Exit code 0 when `how` names rank 1 as dead.
int names_the_dead(const Result<void>& how) {
  if (!how.ok() && how.error().code() == Errc::peer_dead && how.error().origin() &&
      how.error().origin()->rank == 1) {
    return 0;
  }
  fprintf(stderr, "%s\n", how.ok() ? "no error" : how.error().message().c_str());
  return 30;
}

std::vector<int> run_named(int ranks, const Body& body) {
  return run_ranks(ranks, [&](Context& context) {
    auto set = context.split(context.world(), 0, context.world().rank());
    if (!set.ok()) {
      return 40;
    }
    const auto named = NamedSet::make(context, *std::move(set), {});
    Tensor all("all are here");
    const auto work = all.submit(*named);
    if (const auto how = work->wait(seconds(20)); !how.ok()) {
      return names_the_dead(how);  // rank 1 may have ended it, and died, before this one has
    }
    return body(context.world().rank(), *named);
  });
}

TEST_CASE("whatever the others do when a rank dies, they hear of it and of who it was") {
  // Others: wait for a name that it never submits; have nothing pending; are in large operations.
  for (const int what : {0, 1, 2}) {
    const auto codes = run_named(3, [what](int rank, NamedSet& set) {
      Tensor tensor("x", what == 2 ? 3'000'000 : 10);
      if (rank == 1) {
        if (what == 2) {
          const auto work = tensor.submit(set);
          base::sleep_for(milliseconds(2));
        }
        ::raise(SIGKILL);
      }
      if (what == 1) {
        base::sleep_for(milliseconds(200));
      }
      const auto start = base::system_clock().monotonic();
      Result<void> how;
      while (how.ok()) {
        const auto work = tensor.submit(set);
        how = work->wait(seconds(10));
      }
      if (base::system_clock().monotonic() - start > seconds(5)) {
        return 31;
      }
      return names_the_dead(how);
    });
    CAPTURE(what);
    CAPTURE(codes[0]);
    CAPTURE(codes[2]);
    CHECK(codes == std::vector<int>{0, -SIGKILL, 0});
  }
}

TEST_CASE("a rank that ends early in order ends the others' operations, with its rank") {
  const auto codes = run_named(3, [](int rank, NamedSet& set) {
    if (rank == 1) {
      set.shutdown("done early");
      return 0;
    }
    Tensor tensor("x");
    const auto how = tensor.submit(set)->wait(seconds(10));
    if (!how.ok() && how.error().message().find("by rank 1: done early") != std::string::npos) {
      return 0;
    }
    fprintf(stderr, "rank %d: %s\n", rank, how.ok() ? "no error" : how.error().message().c_str());
    return 1;
  });
  CHECK(codes == std::vector<int>(3, 0));
}

TEST_CASE("a forked child of a rank is refused and disturbs nobody") {
  const auto codes = run_named(2, [](int, NamedSet& set) {
    Tensor tensor("x");
    base::TestProcess child([&] {
      const auto refused = tensor.submit(set);
      if (refused.ok() || refused.error().code() != Errc::invalid_argument || set.join().ok()) {
        return 1;
      }
      set.~NamedSet();  // as an interpreter does when it ends
      return 0;
    });
    if (child.wait(seconds(20)) != 0) {
      return 1;
    }
    return tensor.submit(set)->wait(seconds(10)).ok() && tensor.values[0] == 2.0F ? 0 : 2;
  });
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("a rank that stops for a while is late, not dead") {
  const auto codes = run_named(2, [](int rank, NamedSet& set) {
    Tensor tensor("x", 100'000);
    if (rank == 1) {
      const pid_t self = ::getpid();
      const pid_t waker = ::fork();
      if (waker == 0) {
        base::sleep_for(milliseconds(300));
        ::kill(self, SIGCONT);
        ::_exit(0);
      }
      ::raise(SIGSTOP);
    }
    for (int i = 0; i < 10; ++i) {
      if (!tensor.submit(set)->wait(seconds(10)).ok()) {
        return 1;
      }
    }
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 0});
}

}  // namespace
}  // namespace headrace::comm
