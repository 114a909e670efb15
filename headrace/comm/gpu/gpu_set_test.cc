// SPDX-License-Identifier: Apache-2.0
// Operations on tensors of GPUs, over stand-ins for NCCL and CUDA (tests/gpu): a "GPU" has its
// memory in the process. Not run on a GPU yet.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "headrace/comm/gpu/cuda_library.h"
#include "headrace/comm/process_ranks_test.h"

namespace headrace::comm {

namespace {

const std::string kFake = HEADRACE_FAKE_GPU;

// Bodies of ranks are other processes, in which CHECK would tell nobody.
#define EXPECT(condition)                                                            \
  if (!(condition)) {                                                                \
    fprintf(stderr, "rank %d: line %d: not %s\n", set.rank(), __LINE__, #condition); \
    return 1;                                                                        \
  }
#define EXPECT_OK(work)                                             \
  if (const auto how = (work).wait(); !how.ok()) {                  \
    fprintf(stderr, "rank %d: line %d: %s\n", set.rank(), __LINE__, \
            how.error().message().c_str());                         \
    return 1;                                                       \
  }

template <class T>
constexpr Dtype kType = Dtype::f32;
template <>
constexpr Dtype kType<int32_t> = Dtype::i32;

template <class T>
Buffer on_gpu(std::vector<T>& values, CudaStream stream = nullptr) {
  return {
      values.data(), values.size(), kType<T>, Device::cuda, 0, reinterpret_cast<uintptr_t>(stream)};
}

/// A function of a library that the process has loaded.
template <class Function>
Function* loaded(const char* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(::dlopen(library, RTLD_NOW | RTLD_NOLOAD), name));
}

int aborts() { return loaded<int()>("libnccl.so.2", "fake_nccl_aborts")(); }

CudaStream new_stream() {
  const std::string folders[] = {kFake + "/good"};
  const auto cuda = CudaLibrary::load(folders);
  return cuda.ok() ? (*cuda)->make_stream().value_or(nullptr) : nullptr;
}

void on_stream(CudaStream stream, std::function<void()> task) {
  loaded<void(CudaStream, void (*)(void*), void*)>("libcudart.so.12", "fake_cuda_enqueue")(
      stream,
      [](void* argument) {
        auto* one = static_cast<std::function<void()>*>(argument);
        (*one)();
        delete one;
      },
      new std::function<void()>(std::move(task)));
}

/// Wait for what is not a Work.
bool comes(const std::function<bool()>& event) {
  const auto limit = base::Deadline::in(std::chrono::seconds(20));
  while (!event() && !limit.passed()) {
    base::sleep_for(std::chrono::milliseconds(1));
  }
  return event();
}

using Variables = std::vector<std::pair<std::string, std::string>>;

/// run_ranks() whose processes find the stand-ins.
std::vector<int> run_gpu_ranks(
    int ranks, const std::function<int(ProcessSet&)>& body, const Variables& variables = {},
    const std::function<void(Config&)>& adjust = [](Config&) {}) {
  const base::TestFolder folder;
  return testing::run_ranks(
      ranks, [&](Context& context) { return body(context.world()); },
      [&](Config& config) {
        ::setenv("FAKE_NCCL_FOLDER", folder.path().c_str(), 1);  // in the rank's process
        for (const auto& [name, value] : variables) {
          ::setenv(name.c_str(), value.c_str(), 1);
        }
        config.gpu_folders = {kFake + "/good"};
        adjust(config);
      });
}

std::vector<int> all_good(int ranks) { return std::vector<int>(static_cast<size_t>(ranks), 0); }

bool is_error(const Work& work, Errc code, const std::string& part) {
  const auto how = work.wait();
  if (how.ok() || how.error().code() != code ||
      how.error().message().find(part) == std::string::npos) {
    fprintf(stderr, "got %s: %s\n", how.ok() ? "ok" : errc_name(how.error().code()).data(),
            how.ok() ? "" : how.error().message().c_str());
    return false;
  }
  return true;
}

using Floats = std::vector<float>;
using Numbers = std::vector<int32_t>;

}  // namespace

TEST_CASE("reductions on GPUs") {
  for (const int ranks : {2, 3}) {
    const auto body = [](ProcessSet& set) {
      const auto n = static_cast<float>(set.size());
      const auto r = static_cast<float>(set.rank());
      const float sum = n * (n + 1) / 2;

      Floats values = {r + 1, 10 * (r + 1)};
      EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
      EXPECT(values == (Floats{sum, 10 * sum}));

      values = {r + 1, -r};
      Floats result(2);
      EXPECT_OK(set.all_reduce(on_gpu(values), on_gpu(result), Op::max));
      EXPECT(result == (Floats{n, 0}));
      EXPECT(values == (Floats{r + 1, -r}));
      EXPECT_OK(set.all_reduce(on_gpu(values), on_gpu(result), Op::min));
      EXPECT(result == (Floats{1, 1 - n}));
      EXPECT_OK(set.all_reduce(on_gpu(values), on_gpu(result), Op::average));
      EXPECT(result[0] == sum / n);
      EXPECT_OK(set.all_reduce(on_gpu(values), on_gpu(result), Op::sum,
                               {.prescale = 2.0, .postscale = 4.0}));
      EXPECT(result[0] == 8 * sum);

      Numbers product = {2};
      EXPECT_OK(set.all_reduce(on_gpu(product), Op::product));
      EXPECT(product[0] == (set.size() == 2 ? 4 : 8));

      values = {r + 1, r + 1};
      EXPECT_OK(set.reduce(on_gpu(values), on_gpu(values), 1, Op::sum));
      EXPECT(values[0] == (set.rank() == 1 ? sum : r + 1));

      Floats parts;
      for (int q = 0; q < set.size(); ++q) {
        parts.push_back(static_cast<float>(q) + r);
      }
      Floats mine(1);
      EXPECT_OK(set.reduce_scatter(on_gpu(parts), on_gpu(mine), Op::sum));
      EXPECT(mine[0] == n * r + sum - n);

      // Rank q gets q + 1 elements.
      std::vector<uint64_t> counts;
      Numbers uneven;
      for (int q = 0; q < set.size(); ++q) {
        counts.push_back(static_cast<uint64_t>(q) + 1);
        uneven.insert(uneven.end(), static_cast<size_t>(q) + 1, q);
      }
      Numbers taken(static_cast<size_t>(set.rank()) + 1);
      EXPECT_OK(set.reduce_scatter_v(on_gpu(uneven), counts, on_gpu(taken), Op::sum));
      EXPECT(taken == Numbers(taken.size(), set.rank() * set.size()));
      return 0;
    };
    CHECK(run_gpu_ranks(ranks, body) == all_good(ranks));
  }
}

TEST_CASE("movements on GPUs") {
  for (const int ranks : {2, 3}) {
    const auto body = [](ProcessSet& set) {
      const int n = set.size();
      const int r = set.rank();
      const auto size = static_cast<size_t>(n);

      Numbers values = {r, r + 1};
      EXPECT_OK(set.broadcast(on_gpu(values), 1));
      EXPECT(values == (Numbers{1, 2}));

      Numbers one = {r + 1};
      Numbers all(size);
      EXPECT_OK(set.all_gather(on_gpu(one), on_gpu(all)));
      for (int q = 0; q < n; ++q) {
        EXPECT(all[static_cast<size_t>(q)] == q + 1);
      }

      std::vector<uint64_t> counts;
      Numbers wanted;
      for (int q = 0; q < n; ++q) {
        counts.push_back(static_cast<uint64_t>(q));  // rank 0 gives nothing
        wanted.insert(wanted.end(), static_cast<size_t>(q), q);
      }
      Numbers own(static_cast<size_t>(r), r);
      Numbers together(wanted.size());
      EXPECT_OK(set.all_gather_v(on_gpu(own), counts, on_gpu(together)));
      EXPECT(together == wanted);

      Numbers out(size);
      Numbers to_all;
      for (int q = 0; q < n; ++q) {
        to_all.push_back(10 * r + q);
      }
      EXPECT_OK(set.all_to_all(on_gpu(to_all), on_gpu(out)));
      for (int q = 0; q < n; ++q) {
        EXPECT(out[static_cast<size_t>(q)] == 10 * q + r);
      }

      // r sends q elements to q, so gets r from each.
      Numbers sent;
      std::vector<uint64_t> from(size, static_cast<uint64_t>(r));
      for (int q = 0; q < n; ++q) {
        sent.insert(sent.end(), static_cast<size_t>(q), r);
      }
      Numbers got(size * static_cast<size_t>(r));
      EXPECT_OK(set.all_to_all_v(on_gpu(sent), counts, on_gpu(got), from));
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT(got[i] == static_cast<int>(i) / r);
      }

      Numbers gathered(r == 1 ? size : 0);
      EXPECT_OK(set.gather(on_gpu(one), on_gpu(gathered), 1));
      EXPECT(r != 1 || gathered == all);
      Numbers piece(1);
      EXPECT_OK(set.scatter(on_gpu(gathered), on_gpu(piece), 1));
      EXPECT(piece[0] == r + 1);
      return 0;
    };
    CHECK(run_gpu_ranks(ranks, body) == all_good(ranks));
  }
}

TEST_CASE("large tensors and no elements on GPUs") {
  const auto body = [](ProcessSet& set) {
    Numbers values(200'000, set.rank() + 1);
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    EXPECT(values == Numbers(200'000, 3));
    Numbers none;
    EXPECT_OK(set.all_reduce(on_gpu(none), Op::sum));
    EXPECT_OK(set.all_to_all(on_gpu(none), on_gpu(none)));
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("a collective begins after its stream, and a stream that waits goes on after it") {
  const auto body = [](ProcessSet& set) {
    CudaStream compute = new_stream();
    CudaStream reader = new_stream();
    std::atomic<bool> open = false;
    Numbers values = {0};
    int32_t seen = 0;
    Numbers warm = {0};
    EXPECT_OK(set.all_reduce(on_gpu(warm), Op::sum));

    on_stream(compute, [&] {
      while (!open) {
        base::sleep_for(std::chrono::milliseconds(1));
      }
      values[0] = set.rank() + 1;
    });
    const Work work = set.all_reduce(on_gpu(values, compute), Op::sum);
    EXPECT(work.wait_on_stream(reinterpret_cast<uintptr_t>(reader)).ok());
    std::atomic<bool> read = false;
    on_stream(reader, [&] {
      seen = values[0];
      read = true;
    });
    base::sleep_for(std::chrono::milliseconds(30));  // for what must not happen
    EXPECT(!work.done());
    EXPECT(!read);

    open = true;
    EXPECT(comes([&] { return read.load(); }));
    EXPECT(seen == 3);
    EXPECT_OK(work);
    EXPECT(work.wait_on_stream(reinterpret_cast<uintptr_t>(reader)).ok());
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("a work ends after a launch that NCCL has put off") {
  const auto body = [](ProcessSet& set) {
    for (int i = 0; i < 20; ++i) {
      Numbers values = {set.rank() + i};
      EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
      EXPECT(values[0] == 1 + 2 * i);
    }
    return 0;
  };
  CHECK(run_gpu_ranks(2, body, {{"FAKE_NCCL_SLOW_LAUNCH", "3"}}) == all_good(2));
}

TEST_CASE("works that nobody waits for end in their order") {
  const auto body = [](ProcessSet& set) {
    std::vector<Numbers> values(50);
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      values[static_cast<size_t>(i)] = {set.rank() * i};
      works.push_back(set.all_reduce(on_gpu(values[static_cast<size_t>(i)]), Op::sum));
      EXPECT(works.back().sequence() == static_cast<uint64_t>(i));
    }
    EXPECT_OK(works.back());
    for (int i = 0; i < 50; ++i) {
      EXPECT(works[static_cast<size_t>(i)].done());
      EXPECT(values[static_cast<size_t>(i)][0] == i);
    }
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("a group of collectives on GPUs has one work") {
  const auto body = [](ProcessSet& set) {
    Numbers one = {set.rank()};
    Floats other = {static_cast<float>(set.rank())};
    Numbers all(2);
    set.begin_group();
    const Work first = set.all_reduce(on_gpu(one), Op::sum);
    EXPECT(!first.done());
    const Work second = set.all_reduce(on_gpu(other), Op::max);
    const Work third = set.all_gather(on_gpu(one), on_gpu(all));
    const Work work = set.end_group();
    EXPECT_OK(work);
    EXPECT(first.done());
    EXPECT(second.done());
    EXPECT(third.done());
    EXPECT(one[0] == 1);
    EXPECT(other[0] == 1.0F);

    set.begin_group();
    EXPECT_OK(set.end_group());  // of nothing
    EXPECT_OK(set.all_reduce(on_gpu(one), Op::sum));
    EXPECT(one[0] == 2);
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("a group that is never ended ends with its time limit") {
  const auto body = [](ProcessSet& set) {
    Numbers values = {set.rank()};
    set.begin_group({.timeout = std::chrono::milliseconds(50)});
    const Work work = set.all_reduce(on_gpu(values), Op::sum);
    EXPECT(is_error(work, Errc::timeout, "it was not begun in time"));
    EXPECT(!work.wait_on_stream(0).ok());
    EXPECT(!set.end_group().wait().ok());
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    EXPECT(values[0] == 1);
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("a rank whose GPU cannot be used tells the others") {
  const auto body = [](ProcessSet& set) {
    Numbers values = {set.rank()};
    Buffer buffer = on_gpu(values);
    buffer.device_index = set.rank() == 1 ? 99 : 0;
    EXPECT(is_error(set.all_reduce(buffer, Op::sum), Errc::io, "cudaSetDevice"));
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("messages between GPUs: a ring, and two ranks that send first") {
  const auto body = [](ProcessSet& set) {
    const int n = set.size();
    const int next = (set.rank() + 1) % n;
    const int before = (set.rank() + n - 1) % n;
    Numbers mine(50'000, set.rank());
    Numbers theirs(50'000, -1);
    for (int i = 0; i < 3; ++i) {
      const Work sent = set.send(on_gpu(mine), next, 7);
      const Work received = set.recv(on_gpu(theirs), before, 7);
      EXPECT_OK(received);
      EXPECT_OK(sent);
      EXPECT(theirs == Numbers(50'000, before));
    }
    const int pair = set.rank() < 2 ? 1 - set.rank() : -1;
    if (pair >= 0) {
      const Work sent = set.send(on_gpu(mine), pair, 0);
      EXPECT_OK(set.recv(on_gpu(theirs), pair, 0));
      EXPECT_OK(sent);
      EXPECT(theirs == Numbers(50'000, pair));
    }
    return 0;
  };
  CHECK(run_gpu_ranks(3, body) == all_good(3));
}

TEST_CASE("a barrier of GPUs is behind what is on the streams of all ranks") {
  const auto body = [](ProcessSet& set) {
    CudaStream stream = new_stream();
    Numbers warm = {0};
    EXPECT_OK(set.all_reduce(on_gpu(warm), Op::sum));
    std::atomic<bool> open = set.rank() == 0;
    std::atomic<bool> ran = false;
    on_stream(stream, [&] {
      while (!open) {
        base::sleep_for(std::chrono::milliseconds(1));
      }
      ran = true;
    });
    ConstBuffer where;
    where.device = Device::cuda;
    where.device_index = 0;
    where.stream = reinterpret_cast<uintptr_t>(stream);
    const Work work = set.barrier(where);
    base::sleep_for(std::chrono::milliseconds(20));
    EXPECT(!work.done());
    EXPECT_OK(set.barrier({.blocking = true}));  // all have looked
    open = true;
    EXPECT_OK(work);
    EXPECT(ran);
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("ranks that get a collective of a dead one to wait for hear of its death") {
  const auto body = [](ProcessSet& set) {
    Numbers values = {set.rank()};
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    uint8_t begun = 1;
    if (set.rank() == 2) {
      EXPECT_OK(set.recv({&begun, 1, Dtype::u8}, 0, 0));
      EXPECT_OK(set.recv({&begun, 1, Dtype::u8}, 1, 0));
      ::raise(SIGKILL);
    }
    const Work work = set.all_reduce(on_gpu(values), Op::sum);
    static_cast<void>(set.send({&begun, 1, Dtype::u8}, 2, 0).wait());
    EXPECT(is_error(work, Errc::peer_dead, "rank 2"));
    EXPECT(work.wait().error().origin()->rank == 2);
    EXPECT(aborts() == 1);
    EXPECT(is_error(set.all_reduce(on_gpu(values), Op::sum), Errc::peer_dead, "rank 2"));
    EXPECT(is_error(set.send(on_gpu(values), 1 - set.rank(), 0), Errc::peer_dead, "rank 2"));
    return 0;
  };
  CHECK(run_gpu_ranks(3, body) == std::vector<int>{0, 0, -SIGKILL});
}

TEST_CASE("a rank that dies while NCCL's group is made is named") {
  const auto body = [](ProcessSet& set) {
    if (set.rank() == 1) {
      ::setenv("FAKE_NCCL_DIES_JOINING", "1", 1);
    }
    Numbers values = {set.rank()};
    EXPECT(is_error(set.all_reduce(on_gpu(values), Op::sum), Errc::peer_dead, "rank 1"));
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == std::vector<int>{0, -SIGKILL});
}

TEST_CASE("a rank that dies during a message on GPUs is named") {
  const auto body = [](ProcessSet& set) {
    Numbers values = {set.rank()};
    if (set.rank() == 1) {
      EXPECT_OK(set.recv(on_gpu(values), 0, 0));
      EXPECT_OK(set.recv({values.data(), 1, Dtype::i32}, 0, 0));
      ::raise(SIGKILL);
    }
    EXPECT_OK(set.send(on_gpu(values), 1, 0));
    Numbers large(100'000);
    const Work work = set.send(on_gpu(large), 1, 0);
    static_cast<void>(set.send({values.data(), 1, Dtype::i32}, 1, 0).wait());
    EXPECT(is_error(work, Errc::peer_dead, "rank 1"));
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == std::vector<int>{0, -SIGKILL});
}

TEST_CASE("an error that NCCL tells of later ends the set on all ranks") {
  const base::TestFolder folder;
  const auto file = folder / "error";
  const auto body = [&](ProcessSet& set) {
    Numbers values = {set.rank()};
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    EXPECT_OK(set.barrier({.blocking = true}));
    if (set.rank() == 0) {
      ::setenv("FAKE_NCCL_ASYNC_ERROR", file.c_str(), 1);
      const Work work = set.all_reduce(on_gpu(values), Op::sum);
      EXPECT(base::replace_file(file, "2").ok());
      EXPECT(is_error(work, Errc::io,
                      "an operation of NCCL 2.21.5: some error (result 2): said "
                      "by the stand-in"));
      EXPECT(aborts() == 1);
      return 0;
    }
    EXPECT(is_error(set.barrier({.blocking = true}), Errc::io, "NCCL 2.21.5"));
    EXPECT(is_error(set.all_reduce(on_gpu(values), Op::sum), Errc::io, "NCCL 2.21.5"));
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("a collective that a rank does not call ends with its time limit, on all ranks") {
  const auto body = [](ProcessSet& set) {
    Numbers values = {set.rank()};
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    if (set.rank() == 0) {
      const Work work = set.all_reduce(on_gpu(values), Op::sum,
                                       {.name = "grad", .timeout = std::chrono::milliseconds(200)});
      EXPECT(is_error(work, Errc::timeout, "all_reduce(sum) int32[1] \"grad\" on cuda:0"));
      EXPECT(aborts() == 1);
      return 0;
    }
    EXPECT(is_error(set.barrier({.blocking = true}), Errc::timeout, "\"grad\""));
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("abort() of a set stops its operations on GPUs") {
  const auto body = [](ProcessSet& set) {
    Numbers values = {set.rank()};
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    if (set.rank() == 0) {
      const Work work = set.all_reduce(on_gpu(values), Op::sum);
      set.abort("enough");
      EXPECT(is_error(work, Errc::cancelled, "enough"));
      EXPECT(aborts() == 1);
    } else {
      EXPECT(is_error(set.barrier({.blocking = true}), Errc::cancelled, "enough"));
    }
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("where one rank has no NCCL all are told which") {
  const auto body = [](ProcessSet& set) {
    Numbers values = {set.rank()};
    for (int i = 0; i < 2; ++i) {
      EXPECT(is_error(set.all_reduce(on_gpu(values), Op::sum), Errc::unsupported,
                      "rank 1 cannot use it: " + kFake + "/old/libnccl.so.2"));
    }
    EXPECT(testing::sum_of_ranks(set, 3) == 0);  // the CPU's go on
    return 0;
  };
  const auto old_on_one = [](Config& config) {
    if (config.rank == 1) {
      config.gpu_folders = {kFake + "/old", kFake + "/good"};
    }
  };
  CHECK(run_gpu_ranks(2, body, {}, old_on_one) == all_good(2));
}

TEST_CASE("with staging, tensors of GPUs go through host memory where NCCL is not there") {
  const auto body = [](ProcessSet& set) {
    const int n = set.size();
    CudaStream stream = new_stream();
    Numbers values = {0};
    on_stream(stream, [&] { values[0] = set.rank() + 1; });
    EXPECT_OK(set.all_reduce(on_gpu(values, stream), Op::sum));
    EXPECT(values[0] == n * (n + 1) / 2);
    Floats average = {static_cast<float>(set.rank())};
    EXPECT_OK(set.all_reduce(on_gpu(average), Op::average, {.postscale = 2.0}));
    EXPECT(average[0] == static_cast<float>(n - 1));
    EXPECT_OK(set.broadcast(on_gpu(values), 0));
    Numbers mine = {set.rank()};
    Numbers all(static_cast<size_t>(n));
    EXPECT_OK(set.all_gather(on_gpu(mine), on_gpu(all)));
    EXPECT(all.back() == n - 1);
    Numbers gathered(set.rank() == 0 ? static_cast<size_t>(n) : 0);
    EXPECT_OK(set.gather(on_gpu(mine), on_gpu(gathered), 0));
    EXPECT_OK(set.scatter(on_gpu(gathered), on_gpu(mine), 0));
    EXPECT(mine[0] == set.rank());
    std::vector<int16_t> small = {static_cast<int16_t>(set.rank())};
    EXPECT_OK(set.all_reduce({small.data(), 1, Dtype::i16, Device::cuda, 0, 0}, Op::sum));
    EXPECT(small[0] == n * (n - 1) / 2);
    const int other = 1 - set.rank();
    Numbers large(60'000, set.rank());
    Numbers theirs(60'000);
    const Work sent = set.send(on_gpu(large), other, 3);
    const Work received = set.recv(on_gpu(theirs), other, 3);
    EXPECT(received.wait_on_stream(0).ok());
    EXPECT_OK(sent);
    EXPECT(theirs == Numbers(60'000, other));
    return 0;
  };
  const auto staging = [](Config& config) {
    config.gpu_staging = true;
    config.gpu_folders = {kFake + (config.rank == 1 ? "/old" : "/good"), kFake + "/good"};
  };
  CHECK(run_gpu_ranks(2, body, {}, staging) == all_good(2));
  CHECK(run_gpu_ranks(2, body, {{"FAKE_CUDA_NO_LOCKED_MEMORY", "1"}}, staging) == all_good(2));
}

TEST_CASE("what NCCL cannot do fails alone, on all ranks") {
  const auto body = [](ProcessSet& set) {
    std::vector<int16_t> small = {1};
    EXPECT(is_error(set.all_reduce({small.data(), 1, Dtype::i16, Device::cuda, 0, 0}, Op::sum),
                    Errc::unsupported, "all_reduce(sum) of int16 on a GPU"));
    Numbers values = {set.rank()};
    EXPECT(is_error(set.recv(on_gpu(values), ProcessSet::any_source, 0), Errc::unsupported,
                    "from any rank"));
    EXPECT(is_error(set.send(on_gpu(values), set.rank(), 0), Errc::invalid_argument,
                    "another one of the 2 ranks"));
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    Buffer elsewhere = on_gpu(values);
    elsewhere.device_index = 3;
    EXPECT(is_error(set.all_reduce(elsewhere, Op::sum), Errc::invalid_argument,
                    "began on cuda:0, the tensor is on cuda:3"));
    Numbers out(1);
    EXPECT(is_error(set.all_reduce(on_gpu(values), {out.data(), 1, Dtype::i32}, Op::sum),
                    Errc::invalid_argument, "out is not on the device of the other buffer"));
    EXPECT_OK(set.all_reduce(on_gpu(values), Op::sum));
    return 0;
  };
  CHECK(run_gpu_ranks(2, body) == all_good(2));
}

TEST_CASE("staging that not all ranks have asked for is told when they meet") {
  const auto codes = run_gpu_ranks(
      2, [](ProcessSet&) { return 0; }, {},
      [](Config& config) { config.gpu_staging = config.rank == 1; });
  const int mismatch = 50 + static_cast<int>(Errc::mismatch);
  CHECK(codes == std::vector<int>{mismatch, mismatch});
}

}  // namespace headrace::comm
