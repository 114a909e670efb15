// SPDX-License-Identifier: Apache-2.0
// Our side of comm_collectives.py, and what it is compared with on this machine itself.
//   comm_headrace rank FOLDER RANK RANKS    serve commands (comm_worker.h)
//   comm_headrace tcp FOLDER RANK RANKS     the same, over TCP between all ranks
//   comm_headrace start FOLDER RANK RANKS   meet all ranks, print the seconds it took, leave
//   comm_headrace cycles FOLDER RANK RANKS  the same, ten times, and the best
//   comm_headrace limit FOLDER              serve "time copy f32 BYTES TIMES": two threads, each
//                                           copying that much past the caches
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "comm_worker.h"

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <thread>

#include "headrace/base/clock.h"
#include "headrace/comm/context.h"

namespace {

using headrace::Dtype;
using headrace::comm::Buffer;
using headrace::comm::Config;
using headrace::comm::Context;
using headrace::comm::Op;
using headrace::comm::StoreTable;
using headrace::comm::Transport;

/// Keys as files; a name appears with its whole contents.
StoreTable folder_store(const std::string& folder) {
  const auto path_of = [folder](const std::string& key) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '_');
    return folder + "/store_" + name;
  };
  return {
      .set = [path_of](const std::string& key, const std::string& value) -> headrace::Result<void> {
        const std::string path = path_of(key);
        std::ofstream(path + ".new", std::ios::binary) << value;
        std::filesystem::rename(path + ".new", path);
        return {};
      },
      .get = [path_of](const std::string& key,
                       headrace::base::Deadline deadline) -> headrace::Result<std::string> {
        const std::string path = path_of(key);
        while (!std::filesystem::exists(path)) {
          if (deadline.passed()) {
            return headrace::Error{headrace::Errc::timeout, "no " + key};
          }
          headrace::base::sleep_for(std::chrono::microseconds(500));
        }
        std::ifstream file(path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
      },
  };
}

std::unique_ptr<Context> meet(char** arguments, const std::string& job,
                              Transport transport = Transport::automatic) {
  Config config = {.rank = std::stoi(arguments[3]), .world_size = std::stoi(arguments[4])};
  config.job = job;
  config.transport = transport;
  config.init_timeout = std::chrono::seconds(60);
  config.timeout = std::chrono::seconds(60);
  auto context = Context::init(config, folder_store(arguments[2]));
  if (!context.ok()) {
    std::fprintf(stderr, "%s\n", context.error().message().c_str());
    std::exit(4);
  }
  return std::move(*context);
}

class Headrace : public comm_worker::Peer {
 public:
  explicit Headrace(Context& context) : set_(context.world()) {}
  int rank() override { return set_.rank(); }
  int size() override { return set_.size(); }
  void barrier() override { check(set_.barrier({.blocking = true})); }
  void all_reduce(void* inout, size_t count, bool bf16) override {
    Buffer buffer = f32(inout, count);
    buffer.dtype = bf16 ? Dtype::bf16 : Dtype::f32;
    check(set_.all_reduce(buffer, Op::sum, {.blocking = true}));
  }
  void reduce_scatter(void* in, void* out, size_t count) override {
    check(set_.reduce_scatter(f32(in, count * ranks()), f32(out, count), Op::sum,
                              {.blocking = true}));
  }
  void all_gather(void* in, void* out, size_t count) override {
    check(set_.all_gather(f32(in, count), f32(out, count * ranks()), {.blocking = true}));
  }
  void all_to_all(void* in, void* out, size_t count) override {
    check(set_.all_to_all(f32(in, count * ranks()), f32(out, count * ranks()), {.blocking = true}));
  }

 private:
  static Buffer f32(void* data, size_t count) {
    return {.data = data, .count = count, .dtype = Dtype::f32};
  }
  size_t ranks() const { return static_cast<size_t>(set_.size()); }
  static void check(const headrace::comm::Work& work) {
    const auto ended = work.wait();
    if (!ended.ok()) {
      std::fprintf(stderr, "%s\n", ended.error().message().c_str());
      std::exit(5);
    }
  }
  headrace::comm::ProcessSet& set_;
};

/// Two threads that copy, as if they were two ranks that read and write their buffers once.
class Limit : public comm_worker::Peer {
 public:
  int rank() override { return 0; }
  int size() override { return 1; }
  void barrier() override {}
  void all_reduce(void*, size_t, bool) override {}
  void reduce_scatter(void*, void*, size_t) override {}
  void all_gather(void*, void*, size_t) override {}
  /// `in` and `out` are of one thread; the other has its own.
  void all_to_all(void* in, void* out, size_t count) override {
    if (other_in_ == nullptr || bytes_ != count * 4) {
      bytes_ = count * 4;
      other_in_ = std::make_unique<comm_worker::Memory>(bytes_);
      other_out_ = std::make_unique<comm_worker::Memory>(bytes_);
    }
    const std::jthread other([&] { copy(other_in_->get(), other_out_->get()); });
    copy(in, out);
  }

 private:
  void copy(const void* in, void* out) const {
#if defined(__SSE2__)
    const auto* from = static_cast<const __m128i*>(in);
    auto* to = static_cast<__m128i*>(out);
    for (size_t i = 0; i < bytes_ / sizeof(__m128i); ++i) {
      _mm_stream_si128(to + i, _mm_load_si128(from + i));
    }
    _mm_sfence();
#else
    std::memcpy(out, in, bytes_);
#endif
  }
  size_t bytes_ = 0;
  std::unique_ptr<comm_worker::Memory> other_in_;
  std::unique_ptr<comm_worker::Memory> other_out_;
};

double seconds_of(const std::function<void()>& what) {
  const auto began = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "limit") {
    Limit peer;
    return comm_worker::serve(peer, argv[2]);
  }
  if (argc != 5) {
    std::fprintf(stderr, "usage: comm_headrace rank|tcp|start|cycles FOLDER RANK RANKS\n");
    return 2;
  }
  if (what == "rank" || what == "tcp") {
    const auto context =
        meet(argv, "benchmark", what == "tcp" ? Transport::tcp : Transport::automatic);
    Headrace peer(*context);
    return comm_worker::serve(peer, argv[2]);
  }
  double best = 1e9;
  for (int cycle = 0; cycle < (what == "cycles" ? 10 : 1); ++cycle) {
    best = std::min(best, seconds_of([&] { meet(argv, "cycle" + std::to_string(cycle)); }));
  }
  std::printf("%.6f\n", best);
  return 0;
}
