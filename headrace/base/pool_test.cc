// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/pool.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <set>

#include "headrace/base/cores_internal.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"

namespace headrace::base {

TEST_CASE("every submitted task runs once, also those still queued at the end") {
  std::atomic<int> ran{0};
  {
    Pool pool(3);
    for (int i = 0; i < 10000; ++i) {
      pool.submit([&ran] { ++ran; });
    }
  }
  CHECK(ran == 10000);
}

TEST_CASE("tasks may submit tasks, with a queue that holds one") {
  std::atomic<int> ran{0};
  {
    Pool pool(2, 1);
    for (int i = 0; i < 100; ++i) {
      pool.submit([&pool, &ran] {
        for (int k = 0; k < 10; ++k) {
          pool.submit([&ran] { ++ran; });
        }
      });
    }
  }
  CHECK(ran == 1000);
}

TEST_CASE("for_each calls the body once for each index") {
  Pool pool(4);
  std::vector<std::atomic<int>> calls(1000);
  pool.for_each(1000, [&calls](int64_t i) { ++calls[static_cast<size_t>(i)]; });
  CHECK(std::all_of(calls.begin(), calls.end(), [](const auto& count) { return count == 1; }));
  pool.for_each(0, [](int64_t) { FAIL("nothing to call"); });
}

TEST_CASE("the costliest is begun first, ties by index, unknown costs before all") {
  Pool pool(1);
  std::vector<int64_t> order;
  const std::vector<double> costs = {1.0, 5.0, 3.0, 5.0, NAN, 0.0};
  pool.for_each_by_cost(costs, [&order](int64_t i) { order.push_back(i); });
  CHECK(order == std::vector<int64_t>{4, 1, 3, 2, 0, 5});
}

TEST_CASE("work is shared by all threads of the pool and no other") {
  Pool pool(2);
  Mutex mu;
  CondVar both;
  std::set<pthread_t> threads;
  bool met = true;
  // Two calls wait for each other, so that both threads must take part.
  pool.for_each(2, [&](int64_t) {
    const MutexLock lock(mu);
    threads.insert(::pthread_self());
    both.notify_all();
    met = both.wait_for(mu, std::chrono::seconds(30), [&] { return threads.size() == 2; }) && met;
  });
  CHECK(met);
  CHECK(threads.count(::pthread_self()) == 0);
}

TEST_CASE("stop ends a loop early, with the begun calls finished") {
  Pool pool(2);
  std::atomic<int> ran{0};
  pool.for_each(1000000, [&ran](int64_t) { ++ran; }, [&ran] { return ran >= 50; });
  CHECK(ran >= 50);
  CHECK(ran < 1000000);
}

TEST_CASE("loops inside loops end, with one thread as with several") {
  for (const int threads : {1, 2, 4}) {
    Pool pool(threads);
    std::atomic<int> ran{0};
    pool.for_each(8, [&](int64_t) { pool.for_each(8, [&](int64_t) { ++ran; }); });
    CHECK(ran == 64);
  }
}

TEST_CASE("loops from several outside threads do not disturb one another") {
  Pool pool(3);
  std::atomic<int> ran{0};
  {
    std::vector<Thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back("caller", [&] {
        for (int turn = 0; turn < 20; ++turn) {
          pool.for_each(50, [&](int64_t) { ++ran; });
        }
      });
    }
  }
  CHECK(ran == 4 * 20 * 50);
}

TEST_CASE("the number of usable cores follows the affinity mask") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(usable_cores() >= 1);
  CHECK(usable_cores() <= CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cores() == 1);
  CHECK(Pool().threads() == 1);
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("the least CPU quota on the way to the root counts, in both versions of cgroup") {
  const TestFolder folder;
  const auto put = [&folder](std::string_view name, std::string_view text) {
    const Path path = folder / name;
    REQUIRE(make_folders(path.parent_path()).ok());
    REQUIRE(replace_file(path, text).ok());
  };
  const Path membership = folder / "self";

  put("self", "0::/job/step\n");
  put("v2/job/cpu.max", "150000 100000\n");
  put("v2/job/step/cpu.max", "max 100000\n");
  CHECK(cgroup_core_quota(membership, folder / "v2").value() == doctest::Approx(1.5));
  put("v2/job/step/cpu.max", "50000 100000\n");
  CHECK(cgroup_core_quota(membership, folder / "v2").value() == doctest::Approx(0.5));

  put("self", "3:memory:/job\n2:cpu,cpuacct:/job\n0::/\n");
  put("v1/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  put("v1/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_core_quota(membership, folder / "v1").value() == doctest::Approx(3.0));
  put("v1/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  CHECK_FALSE(cgroup_core_quota(membership, folder / "v1").has_value());

  put("self", "no such line\n0::/elsewhere\n");
  put("bare/cpu.max", "200000 100000\n");  // inside a container: the path is not there, the root is
  CHECK(cgroup_core_quota(membership, folder / "bare").value() == doctest::Approx(2.0));
  CHECK_FALSE(cgroup_core_quota(folder / "none", folder / "bare").has_value());
}

}  // namespace headrace::base
