// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL, for machines without a GPU: groups of processes that exchange through a file
// in FAKE_NCCL_FOLDER, in the order of the streams of fake_cudart.cc. It does what headrace calls.
//
// FAKE_NCCL_ASYNC_ERROR: a file; once it is there, groups have the error whose number is in it.
// FAKE_NCCL_DIES_JOINING: whoever makes a group is killed.
// FAKE_NCCL_SLOW_LAUNCH: what was called reaches its stream only after so many looks at the state.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/dtype.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION 22105
#endif

struct CUstream_st;

namespace {

/// memmove, of nothing too.
void move_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) {
    std::memmove(to, from, bytes);
  }
}

using headrace::bf16_of_f32;
using headrace::f16_of_f32;
using headrace::f32_of_bf16;
using headrace::f32_of_f16;

constexpr int kSuccess = 0;
constexpr int kSystemError = 2;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kInProgress = 7;
constexpr size_t kTypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr size_t kChunk = 16 * 1024;

struct Channel {
  std::atomic<uint64_t> sent;
  std::atomic<uint64_t> taken;
  uint64_t length;
  unsigned char data[kChunk];
};

struct Header {
  std::atomic<int> joined;
};

struct Id {
  char bytes[128];
};

struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

std::atomic<int> aborts = 0;
std::atomic<int> groups_made = 0;

enum class What { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, recv };

}  // namespace

struct ncclComm {
  std::string path;
  int rank = 0;
  int ranks = 1;
  unsigned char* memory = nullptr;
  std::atomic<bool> aborted = false;
  std::atomic<int> state = kSuccess;
  std::thread joiner;
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;  // on streams; those that have not begun when it is aborted never do
  std::map<int, double> scales;
  int next_op = 5;
  int looks_left = 0;
  std::vector<std::function<void()>> delayed;

  Channel& channel(int from, int to) const {
    return reinterpret_cast<Channel*>(memory + 4096)[from * ranks + to];
  }
};

namespace {

struct Op {
  What what = What::all_reduce;
  ncclComm* comm = nullptr;
  CUstream_st* stream = nullptr;
  const unsigned char* in = nullptr;
  unsigned char* out = nullptr;
  size_t count = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  double scale = 1.0;
};

template <class T>
T combine(int op, T a, T b) {
  switch (op) {
    case 1: return static_cast<T>(a * b);
    case 2: return a > b ? a : b;
    case 3: return a < b ? a : b;
    default: return static_cast<T>(a + b);
  }
}

template <class T, class Read, class Write>
void reduce_as(const Op& what, const std::vector<std::vector<unsigned char>>& parts, Read read,
               Write write) {
  const size_t width = kTypeBytes[what.type];
  for (size_t i = 0; i < what.count; ++i) {
    T value = {};
    for (size_t r = 0; r < parts.size(); ++r) {
      T one = read(parts[r].data() + i * width);
      one = what.scale != 1.0 ? static_cast<T>(static_cast<double>(one) * what.scale) : one;
      value = r == 0 ? one : combine(what.op, value, one);
    }
    if (what.op == 4) {
      value = static_cast<T>(value / static_cast<T>(parts.size()));
    }
    write(what.out + i * width, value);
  }
}

template <class T>
void reduce_plain(const Op& what, const std::vector<std::vector<unsigned char>>& parts) {
  reduce_as<T>(
      what, parts,
      [](const unsigned char* at) {
        T value;
        std::memcpy(&value, at, sizeof value);
        return value;
      },
      [](unsigned char* at, T value) { std::memcpy(at, &value, sizeof value); });
}

void reduce(const Op& what, const std::vector<std::vector<unsigned char>>& parts) {
  const auto bits = [](const unsigned char* at) {
    uint16_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  const auto put = [](unsigned char* at, uint16_t value) { std::memcpy(at, &value, sizeof value); };
  switch (what.type) {
    case 0: return reduce_plain<int8_t>(what, parts);
    case 1: return reduce_plain<uint8_t>(what, parts);
    case 2: return reduce_plain<int32_t>(what, parts);
    case 3: return reduce_plain<uint32_t>(what, parts);
    case 4: return reduce_plain<int64_t>(what, parts);
    case 5: return reduce_plain<uint64_t>(what, parts);
    case 6:
      return reduce_as<float>(
          what, parts, [&](const unsigned char* at) { return f32_of_f16(bits(at)); },
          [&](unsigned char* at, float value) { put(at, f16_of_f32(value)); });
    case 7: return reduce_plain<float>(what, parts);
    case 8: return reduce_plain<double>(what, parts);
    default:
      return reduce_as<float>(
          what, parts, [&](const unsigned char* at) { return f32_of_bf16(bits(at)); },
          [&](unsigned char* at, float value) { put(at, bf16_of_f32(value)); });
  }
}

/// The operations of one group on one stream, done together.
class Run {
 public:
  explicit Run(std::vector<Op> ops) : ops_(std::move(ops)) {}

  void go() {
    ncclComm& comm = *ops_.front().comm;
    {
      const std::lock_guard lock(comm.mutex);
      if (comm.aborted) {
        return;
      }
      ++comm.running;
    }
    run();
    const std::lock_guard lock(comm.mutex);
    --comm.running;
    comm.ended.notify_all();
  }

 private:
  void run() {
    const ncclComm& comm = *ops_.front().comm;
    for (const Op& op : ops_) {
      expand(op);
    }
    while (!comm.aborted && comm.memory != nullptr && !step()) {
    }
    if (!comm.aborted) {
      for (const auto& one : finish_) {
        one();
      }
    }
  }

  struct Part {
    unsigned char* data;
    size_t left;
  };

  void send(int to, const unsigned char* data, size_t bytes) {
    if (bytes > 0) {
      sends_[to].push_back({const_cast<unsigned char*>(data), bytes});
    }
  }
  void receive(int from, unsigned char* data, size_t bytes) {
    if (bytes > 0) {
      receives_[from].push_back({data, bytes});
    }
  }

  /// Contributions of all at this rank, then `then` over them.
  void gather_and_reduce(const Op& op, const unsigned char* own, size_t bytes) {
    auto parts = std::make_shared<std::vector<std::vector<unsigned char>>>();
    parts->resize(static_cast<size_t>(op.comm->ranks));
    for (int r = 0; r < op.comm->ranks; ++r) {
      auto& part = (*parts)[static_cast<size_t>(r)];
      part.resize(bytes);
      if (r == op.comm->rank) {
        move_bytes(part.data(), own, bytes);
      } else {
        receive(r, part.data(), bytes);
      }
    }
    finish_.push_back([parts, op] { reduce(op, *parts); });
  }

  void expand(const Op& op) {
    const ncclComm& comm = *op.comm;
    const size_t bytes = op.count * kTypeBytes[op.type];
    const auto others = [&](auto each) {
      for (int r = 0; r < comm.ranks; ++r) {
        if (r != comm.rank) {
          each(r);
        }
      }
    };
    switch (op.what) {
      case What::all_reduce:
        others([&](int r) { send(r, op.in, bytes); });
        gather_and_reduce(op, op.in, bytes);
        break;
      case What::reduce:
        if (comm.rank == op.root) {
          gather_and_reduce(op, op.in, bytes);
        } else {
          send(op.root, op.in, bytes);
        }
        break;
      case What::broadcast:
        if (comm.rank == op.root) {
          others([&](int r) { send(r, op.in, bytes); });
          finish_.push_back([op, bytes] { move_bytes(op.out, op.in, bytes); });
        } else {
          receive(op.root, op.out, bytes);
        }
        break;
      case What::all_gather:
        others([&](int r) {
          send(r, op.in, bytes);
          receive(r, op.out + static_cast<size_t>(r) * bytes, bytes);
        });
        finish_.push_back([op, bytes, self = static_cast<size_t>(comm.rank)] {
          move_bytes(op.out + self * bytes, op.in, bytes);
        });
        break;
      case What::reduce_scatter:
        others([&](int r) { send(r, op.in + static_cast<size_t>(r) * bytes, bytes); });
        gather_and_reduce(op, op.in + static_cast<size_t>(comm.rank) * bytes, bytes);
        break;
      case What::send: send(op.root, op.in, bytes); break;
      case What::recv: receive(op.root, op.out, bytes); break;
    }
  }

  /// True when nothing is left.
  bool step() {
    const ncclComm& comm = *ops_.front().comm;
    bool moved = false;
    bool left = false;
    for (auto& [peer, parts] : sends_) {
      Channel& to = comm.channel(comm.rank, peer);
      left = left || !parts.empty();
      if (!parts.empty() && to.sent.load() == to.taken.load()) {
        Part& part = parts.front();
        to.length = std::min(part.left, kChunk);
        move_bytes(to.data, part.data, to.length);
        part.data += to.length;
        part.left -= to.length;
        to.sent.fetch_add(1);
        moved = true;
        if (part.left == 0) {
          parts.pop_front();
        }
      }
    }
    for (auto& [peer, parts] : receives_) {
      Channel& from = comm.channel(peer, comm.rank);
      left = left || !parts.empty();
      if (!parts.empty() && from.sent.load() != from.taken.load()) {
        Part& part = parts.front();
        const size_t bytes = std::min<size_t>(from.length, part.left);
        move_bytes(part.data, from.data, bytes);
        part.data += bytes;
        part.left -= bytes;
        from.taken.fetch_add(1);
        moved = true;
        if (part.left == 0) {
          parts.pop_front();
        }
      }
    }
    if (!moved && left) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return !left;
  }

  const std::vector<Op> ops_;
  std::map<int, std::deque<Part>> sends_;
  std::map<int, std::deque<Part>> receives_;
  std::vector<std::function<void()>> finish_;
};

void to_stream(CUstream_st* stream, std::function<void()> task) {
  using Enqueue = void (*)(CUstream_st*, void (*)(void*), void*);
  static const auto enqueue = reinterpret_cast<Enqueue>(
      ::dlsym(::dlopen("libcudart.so.12", RTLD_NOW | RTLD_NOLOAD), "fake_cuda_enqueue"));
  enqueue(
      stream,
      [](void* argument) {
        auto* one = static_cast<std::function<void()>*>(argument);
        (*one)();
        delete one;
      },
      new std::function<void()>(std::move(task)));
}

thread_local int depth = 0;
thread_local std::vector<Op> pending;

int launch() {
  std::vector<Op> ops;
  ops.swap(pending);
  while (!ops.empty()) {
    ncclComm* comm = ops.front().comm;
    CUstream_st* stream = ops.front().stream;
    std::vector<Op> together;
    std::vector<Op> rest;
    for (const Op& one : ops) {
      (one.comm == comm && one.stream == stream ? together : rest).push_back(one);
    }
    ops = rest;
    const auto start = [together, stream] {
      to_stream(stream, [together] { Run(together).go(); });
    };
    if (const char* slow = std::getenv("FAKE_NCCL_SLOW_LAUNCH")) {
      const std::lock_guard lock(comm->mutex);
      comm->state = kInProgress;
      comm->looks_left = std::atoi(slow);
      comm->delayed.push_back(start);
    } else {
      start();
    }
  }
  return kInProgress;
}

int put(const Op& op) {
  if (op.comm == nullptr || op.type < 0 || op.type > 9) {
    return kInvalidArgument;
  }
  if (op.comm->aborted || op.comm->state == kInProgress) {
    return kInvalidUsage;  // as the real one: a call under way must be waited for
  }
  Op what = op;
  if (op.op >= 5) {
    const std::lock_guard lock(op.comm->mutex);
    what.scale = op.comm->scales.at(op.op);
    what.op = 0;
  }
  pending.push_back(what);
  return depth > 0 ? kSuccess : launch();
}

const unsigned char* bytes_of(const void* memory) {
  return static_cast<const unsigned char*>(memory);
}
unsigned char* bytes_of(void* memory) { return static_cast<unsigned char*>(memory); }

void join(ncclComm* comm) {
  const size_t size = 4096 + sizeof(Channel) * static_cast<size_t>(comm->ranks * comm->ranks);
  const int file = ::open(comm->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(size)) == 0) {
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (file >= 0) {
    ::close(file);
  }
  if (memory == MAP_FAILED) {
    comm->state = kSystemError;
    return;
  }
  comm->memory = static_cast<unsigned char*>(memory);
  auto* header = static_cast<Header*>(memory);
  header->joined.fetch_add(1);
  while (header->joined.load() < comm->ranks) {
    if (comm->aborted) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  comm->state = kSuccess;
}

}  // namespace

FAKE_API int fake_nccl_aborts() { return aborts; }
FAKE_API int fake_nccl_groups() { return groups_made; }

FAKE_API int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return kSuccess;
}
FAKE_API const char* ncclGetErrorString(int result) {
  return result == 6 ? "remote process exited or there was a network error" : "some error";
}
FAKE_API const char* ncclGetLastError(ncclComm* /*comm*/) { return "said by the stand-in"; }

FAKE_API int ncclGetUniqueId(Id* id) {
  static std::atomic<int> number = 0;
  const char* folder = std::getenv("FAKE_NCCL_FOLDER");
  std::snprintf(id->bytes, sizeof id->bytes, "%s/fake-nccl-%d-%d", folder != nullptr ? folder : ".",
                static_cast<int>(::getpid()), number++);
  return kSuccess;
}

FAKE_API int ncclCommInitRankConfig(ncclComm** comm, int ranks, Id id, int rank, Config* config) {
  if (config == nullptr || config->magic != 0xcafebeef || config->version < 21800 ||
      config->size < 40 || config->blocking != 0 || id.bytes[0] == '\0' || rank >= ranks) {
    return kInvalidArgument;
  }
  if (std::getenv("FAKE_NCCL_DIES_JOINING") != nullptr) {
    ::raise(SIGKILL);
  }
  auto* made = new ncclComm();
  made->path = id.bytes;
  made->rank = rank;
  made->ranks = ranks;
  made->state = kInProgress;
  made->joiner = std::thread([made] { join(made); });
  groups_made.fetch_add(1);
  *comm = made;
  return kInProgress;
}

FAKE_API int ncclCommGetAsyncError(ncclComm* comm, int* state) {
  if (const char* file = std::getenv("FAKE_NCCL_ASYNC_ERROR")) {
    if (std::ifstream in(file); in >> *state) {
      return kSuccess;
    }
  }
  const std::lock_guard lock(comm->mutex);
  if (comm->looks_left > 0 && --comm->looks_left == 0) {
    for (const auto& one : comm->delayed) {
      one();
    }
    comm->delayed.clear();
    comm->state = kSuccess;
  }
  *state = comm->state;
  return kSuccess;
}

FAKE_API int ncclCommFinalize(ncclComm* comm) {
  const std::lock_guard lock(comm->mutex);
  comm->state = kInProgress;
  comm->looks_left = 2;
  return kInProgress;
}
FAKE_API int ncclCommDestroy(ncclComm* comm) {
  comm->joiner.join();
  ::unlink(comm->path.c_str());
  delete comm;
  return kSuccess;
}
FAKE_API int ncclCommAbort(ncclComm* comm) {
  {
    std::unique_lock lock(comm->mutex);
    comm->aborted = true;
    comm->ended.wait(lock, [comm] { return comm->running == 0; });
  }
  comm->joiner.join();
  ::unlink(comm->path.c_str());
  aborts.fetch_add(1);
  return kSuccess;  // it stays: its stream may still look at it
}

FAKE_API int ncclGroupStart() {
  ++depth;
  return kSuccess;
}
FAKE_API int ncclGroupEnd() { return --depth == 0 ? launch() : kSuccess; }

FAKE_API int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence,
                                      ncclComm* comm) {
  if (residence != 1) {
    return kInvalidArgument;
  }
  uint16_t bits = 0;
  float f32 = 0;
  double value = 0;
  if (type == 8) {
    std::memcpy(&value, scalar, sizeof value);
  } else if (type == 7) {
    std::memcpy(&f32, scalar, sizeof f32);
    value = f32;
  } else {
    std::memcpy(&bits, scalar, sizeof bits);
    value = type == 6 ? f32_of_f16(bits) : f32_of_bf16(bits);
  }
  const std::lock_guard lock(comm->mutex);
  *op = comm->next_op++;
  comm->scales[*op] = value;
  return kSuccess;
}
FAKE_API int ncclRedOpDestroy(int op, ncclComm* comm) {
  const std::lock_guard lock(comm->mutex);
  return comm->scales.erase(op) == 1 ? kSuccess : kInvalidArgument;
}

FAKE_API int ncclAllReduce(const void* in, void* out, size_t count, int type, int op,
                           ncclComm* comm, CUstream_st* stream) {
  return put({What::all_reduce, comm, stream, bytes_of(in), bytes_of(out), count, type, op});
}
FAKE_API int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root,
                        ncclComm* comm, CUstream_st* stream) {
  return put({What::reduce, comm, stream, bytes_of(in), bytes_of(out), count, type, op, root});
}
FAKE_API int ncclBroadcast(const void* in, void* out, size_t count, int type, int root,
                           ncclComm* comm, CUstream_st* stream) {
  return put({What::broadcast, comm, stream, bytes_of(in), bytes_of(out), count, type, 0, root});
}
FAKE_API int ncclAllGather(const void* in, void* out, size_t count, int type, ncclComm* comm,
                           CUstream_st* stream) {
  return put({What::all_gather, comm, stream, bytes_of(in), bytes_of(out), count, type});
}
FAKE_API int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op,
                               ncclComm* comm, CUstream_st* stream) {
  return put({What::reduce_scatter, comm, stream, bytes_of(in), bytes_of(out), count, type, op});
}
#ifndef FAKE_NCCL_LACKS_SEND
FAKE_API int ncclSend(const void* in, size_t count, int type, int peer, ncclComm* comm,
                      CUstream_st* stream) {
  return put({What::send, comm, stream, bytes_of(in), nullptr, count, type, 0, peer});
}
#endif
FAKE_API int ncclRecv(void* out, size_t count, int type, int peer, ncclComm* comm,
                      CUstream_st* stream) {
  return put({What::recv, comm, stream, nullptr, bytes_of(out), count, type, 0, peer});
}
