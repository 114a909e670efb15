// SPDX-License-Identifier: Apache-2.0
// Ranks on machines that give them little: no memory, one core, few system calls; and very much to
// do: thousands of contexts, gigabytes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/comm/named_set.h"
#include "headrace/comm/process_ranks_test.h"
#include "headrace/comm/refused_calls_test.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::folder_store;
using testing::run_ranks;
using testing::sum_of_ranks;

constexpr size_t kCounts[] = {1, 1000, 200'000};
constexpr int kNoMounts = 90;
constexpr int kOutOfMemory = 50 + static_cast<int>(Errc::out_of_memory);

/// A number of the environment, for runs by hand.
int64_t number_of(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  int64_t value = otherwise;
  if (text != nullptr) {
    std::from_chars(text, text + std::string_view(text).size(), value);
  }
  return value;
}

/// Every collective once; 0 when all gave what they must.
int try_all(ProcessSet& set, size_t count) {
  const auto ranks = static_cast<size_t>(set.size());
  const auto self = static_cast<int32_t>(set.rank());
  const auto last = static_cast<int32_t>(ranks) - 1;
  std::vector<int32_t> one(count, self);
  std::vector<int32_t> all(count * ranks, self);
  const auto buffer = [](std::vector<int32_t>& of) {
    return Buffer{of.data(), of.size(), Dtype::i32};
  };
  const auto good = [](const Work& work) { return work.wait(seconds(60)).ok(); };
  if (sum_of_ranks(set, count) != 0 || !good(set.barrier())) {
    return 1;
  }
  if (!good(set.all_gather(buffer(one), buffer(all))) || all.front() != 0 || all.back() != last) {
    return 2;
  }
  if (!good(set.reduce_scatter(buffer(all), buffer(one), Op::max)) || one.back() != self) {
    return 3;
  }
  std::vector<int32_t> answer(count * ranks);
  std::fill(all.begin(), all.end(), self);
  if (!good(set.all_to_all(buffer(all), buffer(answer))) || answer.back() != last) {
    return 4;
  }
  if (!good(set.gather(buffer(one), buffer(all), last)) || (self == last && all.front() != 0)) {
    return 5;
  }
  if (!good(set.scatter(buffer(all), buffer(one), last)) || one.front() != self) {
    return 6;
  }
  if (!good(set.broadcast(buffer(one), last)) || one.back() != last) {
    return 7;
  }
  if (!good(set.reduce(buffer(one), buffer(one), 0, Op::sum)) ||
      (self == 0 && one.back() != last * static_cast<int32_t>(ranks))) {
    return 8;
  }
  return 0;
}

TEST_CASE("ranks in a container that refuses system calls work, and hear of a death") {
  struct Refused {
    const char* what;
    std::vector<int> calls;
    int error;
  };
  const Refused kinds[] = {
      {"memory of others", {SYS_process_vm_readv, SYS_process_vm_writev}, EPERM},
      {"process handles", {SYS_pidfd_open}, EPERM},
      {"process handles, old kernel", {SYS_pidfd_open}, ENOSYS},
      {"rings", {SYS_io_uring_setup, SYS_io_uring_enter}, EPERM},
      {"memory files", {SYS_memfd_create}, EPERM},
      {"all of them",
       {SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_open, SYS_io_uring_setup,
        SYS_memfd_create, SYS_membarrier, SYS_kcmp, SYS_ptrace, SYS_pidfd_getfd},
       EPERM}};
  for (const auto transport : {Transport::automatic, Transport::tcp}) {
    for (const Refused& kind : kinds) {
      CAPTURE(kind.what);
      CAPTURE(transport_name(transport));
      const auto codes = run_ranks(
          3,
          [](Context& context) {
            ProcessSet& world = context.world();
            auto pair = context.split(world, world.rank() == 2 ? -1 : 0, 0);
            if (!pair.ok() || try_all(world, 100'000) != 0) {
              return 1;
            }
            if (world.rank() == 1) {
              static_cast<void>(world.barrier().wait());  // the others have come so far
              ::raise(SIGKILL);
            }
            Result<void> how;
            const auto start = base::system_clock().monotonic();
            while (how.ok()) {
              how = world.barrier().wait(seconds(10));
            }
            return how.error().code() != Errc::peer_dead || !how.error().origin() ||
                           how.error().origin()->rank != 1
                       ? 2
                   : base::system_clock().monotonic() - start > seconds(5) ? 3
                                                                           : 0;
          },
          [&](Config& config) {
            config.transport = transport;
            REQUIRE(testing::refuse_calls(kind.calls, kind.error));
          });
      CHECK(codes == std::vector<int>{0, -SIGKILL, 0});
    }
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;
#elif defined(__has_feature)
constexpr bool kSanitizer = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitizer = false;
#endif

/// To what this process has now and so many bytes more.
void limit_memory(uint64_t bytes) {
  const auto status = base::read_file("/proc/self/statm", 4096);
  const auto pages = std::stoull(*status);
  const rlimit limit = {pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes,
                        RLIM_INFINITY};
  REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
}

TEST_CASE("memory that an operation by name needs and one rank lacks is told to all") {
  if (kSanitizer) {
    MESSAGE("skipped: a sanitizer's allocator ends the process where memory is limited");
    return;
  }
  const auto codes = run_ranks(2, [](Context& context) {
    const int rank = context.world().rank();
    auto set = context.split(context.world(), 0, rank);
    const auto named = NamedSet::make(context, *std::move(set), {});
    std::vector<float> values(8U << 20U, 1.0F);
    Request request;
    request.kind = NamedKind::adasum;  // gathers the parts of all ranks
    request.shape = {static_cast<int64_t>(values.size())};
    const auto tensor = named->prepare("large", request);
    if (rank == 1) {
      limit_memory(40U << 20U);
    }
    const auto work = named->submit({*tensor, values.data(), values.data()});
    const auto how = work->wait(seconds(20));
    const Errc code = rank == 1 ? Errc::out_of_memory : Errc::cancelled;
    const bool good = !how.ok() && how.error().code() == code &&
                      how.error().message().find("no memory for the") != std::string::npos;
    return good ? 0 : 1;
  });
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("memory that one rank cannot have is an error of all ranks when they start") {
  for (const int poor : {0, 1, 2}) {
    CAPTURE(poor);
    const auto start = base::system_clock().monotonic();
    const auto codes = run_ranks(
        3, [](Context&) { return 0; },
        [poor](Config& config) {
          config.init_timeout = seconds(50);
          if (config.rank != poor) {
            return;
          }
          if (poor == 0) {  // makes the memory; the others map it
            REQUIRE(testing::refuse_calls({SYS_fallocate}, ENOSPC));
            return;
          }
          limit_memory(1U << 20U);
        });
    CHECK(codes == std::vector<int>(3, kOutOfMemory));
    CHECK(base::system_clock().monotonic() - start < seconds(40));  // told, not waited for in vain
  }
}

TEST_CASE("without memory files a full /dev/shm is an error of all ranks") {
  const auto codes = run_ranks(
      2, [](Context&) { return 0; },
      [&](Config&) {
        // A place in the file system that only this process sees.
        if (::unshare(CLONE_NEWNS) != 0 ||
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0) {
          ::_exit(kNoMounts);
        }
        REQUIRE(testing::refuse_calls({SYS_memfd_create}, EPERM));
      });
  if (codes.front() == kNoMounts) {
    MESSAGE("skipped: no mounts of one's own here, which need root");
    return;
  }
  CHECK(codes == std::vector<int>(2, kOutOfMemory));
}

TEST_CASE("the death of a rank while the others start is told to them") {
  base::TestFolder folder;
  std::vector<base::TestProcess> processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.emplace_back([&, rank] {
      const Config config = {.rank = rank, .world_size = 3, .init_timeout = seconds(50)};
      StoreTable store = folder_store(folder.path());
      if (rank == 0) {
        store.set = [set = store.set](const std::string& key, const std::string& value) {
          if (key.find("node/0") != std::string::npos) {
            ::raise(SIGKILL);  // all have met, none has the memory
          }
          return set(key, value);
        };
      }
      const auto context = Context::init(config, store);
      return !context.ok() && context.error().code() == Errc::peer_dead ? 0 : 1;
    });
  }
  CHECK(processes[0].wait(seconds(20)) == -SIGKILL);
  CHECK(processes[1].wait(seconds(20)) == 0);
  CHECK(processes[2].wait(seconds(20)) == 0);
}

TEST_CASE("four ranks on one core do all collectives") {
  for (const auto transport : {Transport::automatic, Transport::tcp}) {
    CAPTURE(transport_name(transport));
    const auto codes = run_ranks(
        4,
        [](Context& context) {
          for (const size_t count : kCounts) {
            if (const int failed = try_all(context.world(), count); failed != 0) {
              return failed;
            }
          }
          return 0;
        },
        [transport](Config& config) {
          config.transport = transport;
          cpu_set_t allowed;
          REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
          cpu_set_t one;
          CPU_ZERO(&one);
          for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
            if (CPU_ISSET(core, &allowed)) {
              CPU_SET(core, &one);
            }
          }
          REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
        });
    CHECK(codes == std::vector<int>(4, 0));
  }
}

/// What this process holds: descriptors, threads, mapped memory that is shared, resident KiB.
std::array<int64_t, 4> held() {
  const auto entries = [](const char* folder) {
    const auto all = std::filesystem::directory_iterator(folder);
    return static_cast<int64_t>(std::distance(begin(all), end(all)));
  };
  int64_t shared = 0;
  const std::string maps = base::read_file("/proc/self/maps").value_or("");
  for (size_t at = maps.find("memfd:"); at != std::string::npos; at = maps.find("memfd:", at + 1)) {
    ++shared;
  }
  const std::string status = base::read_file("/proc/self/status", 65'536).value_or("");
  const int64_t resident = std::stoll(status.substr(status.find("VmRSS:") + 6));
  return {entries("/proc/self/fd"), entries("/proc/self/task"), shared, resident};
}

int cycle(const Config& like, uint64_t generation, const base::Path& folder) {
  Config config = like;
  config.generation = generation;
  auto context = Context::init(config, folder_store(folder));
  if (!context.ok()) {
    fprintf(stderr, "%s\n", context.error().message().c_str());
    return 10;
  }
  ProcessSet& world = (*context)->world();
  auto set = (*context)->split(world, 0, 0);
  if (!set.ok() || sum_of_ranks(world, 100) != 0 || sum_of_ranks(**set, 100'000) != 0) {
    return 11;
  }
  int32_t word = config.rank;
  const Buffer buffer = {&word, 1, Dtype::i32};
  const Work message = config.rank == 0 ? world.send(buffer, 1, 7) : world.recv(buffer, 0, 7);
  return message.wait(seconds(20)).ok() && word == 0 ? 0 : 12;
}

/// Run `cycles` of them; 0 when nothing is left of them but what there was after the first tenth.
int run_cycles(const Config& config, int64_t cycles, const base::Path& folder) {
  std::array<int64_t, 4> before{};
  for (int64_t i = 0; i < cycles; ++i) {
    if (const int failed = cycle(config, static_cast<uint64_t>(i), folder); failed != 0) {
      return failed;
    }
    if (i == cycles / 10) {
      before = held();
    }
  }
  // What was closed may linger until the other side has all.
  const auto deadline = base::Deadline::in(seconds(10));
  auto after = held();
  while ((after[0] > before[0] || after[1] > before[1]) && !deadline.passed()) {
    base::sleep_for(milliseconds(20));
    after = held();
  }
  constexpr int64_t kSlackKib = 2'000;
  const bool flat = after[0] <= before[0] && after[1] <= before[1] && after[2] <= before[2] &&
                    (kSanitizer || after[3] <= before[3] + kSlackKib);  // what is freed is kept
  if (!flat || cycles >= 1000) {
    fprintf(stderr, "rank %d, descriptors, threads, mappings, resident KiB: %s, after %s\n",
            config.rank, fmt::format("{}", fmt::join(before, " ")).c_str(),
            fmt::format("{}", fmt::join(after, " ")).c_str());
  }
  return flat ? 0 : 1;
}

TEST_CASE("contexts that come and go leave no descriptor, thread, mapping or memory") {
  // By hand: HEADRACE_TEST_CYCLES=10000.
  const int64_t cycles = number_of("HEADRACE_TEST_CYCLES", 200);
  for (const auto transport : {Transport::automatic, Transport::tcp}) {
    CAPTURE(transport_name(transport));
    base::TestFolder folder;
    std::vector<base::TestProcess> processes;
    for (int rank = 0; rank < 2; ++rank) {
      processes.emplace_back([&, rank] {
        Config config = {.rank = rank, .world_size = 2};
        config.init_timeout = seconds(20);
        config.timeout = seconds(20);
        config.transport = transport;
        return run_cycles(config, cycles, folder.path());
      });
    }
    for (auto& process : processes) {
      CHECK(process.wait(seconds(60) + milliseconds(50) * cycles) == 0);
    }
  }
}

/// 0 when collectives of more than 2^31 elements, and bytes, give what they must.
int try_large(ProcessSet& world) {
  constexpr uint64_t kMany = (uint64_t{1} << 31U) + 5;
  const auto self = static_cast<uint8_t>(world.rank());
  const auto good = [](const Work& work) { return work.wait(seconds(300)).ok(); };
  {
    std::vector<uint8_t> values(kMany, static_cast<uint8_t>(self + 1));
    values.back() = 7;
    const Buffer buffer = {values.data(), kMany, Dtype::u8};
    if (!good(world.all_reduce(buffer, Op::sum)) || values.back() != 14 ||
        static_cast<uint64_t>(std::count(values.begin(), values.end(), 3)) != kMany - 1) {
      return 1;
    }
    std::fill(values.begin(), values.end(), self);
    if (!good(world.broadcast(buffer, 1)) ||
        static_cast<uint64_t>(std::count(values.begin(), values.end(), 1)) != kMany) {
      return 2;
    }
  }
  {
    constexpr uint64_t kHalf = kMany / 2 + 1;
    std::vector<uint8_t> own(kHalf, static_cast<uint8_t>(self + 1));
    std::vector<uint8_t> all(2 * kHalf);
    if (!good(world.all_gather(ConstBuffer(own.data(), kHalf, Dtype::u8),
                               Buffer{all.data(), 2 * kHalf, Dtype::u8})) ||
        static_cast<uint64_t>(std::count(all.begin(), all.end(), 1)) != kHalf || all.back() != 2) {
      return 3;
    }
  }
  constexpr uint64_t kFloats = (uint64_t{1} << 29U) + 3;
  std::vector<float> values(kFloats, 1.5F);
  if (!good(world.all_reduce(Buffer{values.data(), kFloats, Dtype::f32}, Op::sum)) ||
      static_cast<uint64_t>(std::count(values.begin(), values.end(), 3.0F)) != kFloats) {
    return 4;
  }
  return 0;
}

TEST_CASE("buffers of more than 2 GiB are moved and reduced") {
  if (number_of("HEADRACE_TEST_LARGE", 0) == 0) {
    MESSAGE("skipped: it takes 9 GiB of memory; HEADRACE_TEST_LARGE=1 runs it");
    return;
  }
  for (const auto transport : {Transport::automatic, Transport::tcp}) {
    CAPTURE(transport_name(transport));
    base::TestFolder folder;
    std::vector<base::TestProcess> processes;
    for (int rank = 0; rank < 2; ++rank) {
      processes.emplace_back([&, rank] {
        const Config config = {.rank = rank, .world_size = 2, .transport = transport};
        const auto context = Context::init(config, folder_store(folder.path()));
        return context.ok() ? try_large((*context)->world()) : 100;
      });
    }
    for (auto& process : processes) {
      CHECK(process.wait(seconds(500)) == 0);
    }
  }
}

}  // namespace
}  // namespace headrace::comm
