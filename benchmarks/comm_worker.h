// SPDX-License-Identifier: Apache-2.0
// One rank of comm_collectives.py: sleeps on a pipe of its own until it is told what to time, so
// that the ranks of all peers can be there at once and only one of them uses the machine.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace comm_worker {

/// f32 or bf16 elements; `count` of the smaller side, as in MPI.
struct Peer {
  virtual ~Peer() = default;
  virtual int rank() = 0;
  virtual int size() = 0;
  virtual void barrier() = 0;
  virtual void all_reduce(void* inout, size_t count, bool bf16) = 0;
  virtual void reduce_scatter(void* in, void* out, size_t count) = 0;
  virtual void all_gather(void* in, void* out, size_t count) = 0;
  virtual void all_to_all(void* in, void* out, size_t count) = 0;
};

/// Pages that are there, 4 KiB aligned.
class Memory {
 public:
  explicit Memory(size_t bytes) : data_(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)) {
    std::memset(data_, 0, (bytes + 4095) / 4096 * 4096);
  }
  ~Memory() { std::free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_;
};

inline double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Seconds of `times` calls of `once` after one that is not timed.
inline double timed(Peer& peer, int times, const std::function<void()>& once) {
  once();
  peer.barrier();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    once();
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - began;
  return wall.count();
}

/// "time KIND TYPE BYTES TIMES": bytes of the smaller side of this rank.
inline double time_one(Peer& peer, const std::vector<std::string>& words) {
  const std::string& kind = words[1];
  const bool bf16 = words[2] == "bf16";
  const size_t bytes = std::stoull(words[3]);
  const size_t count = bytes / (bf16 ? 2 : 4);
  const int times = std::stoi(words[4]);
  const auto ranks = static_cast<size_t>(peer.size());
  if (kind == "all_reduce") {
    const Memory inout(bytes);
    return timed(peer, times, [&] { peer.all_reduce(inout.get(), count, bf16); });
  }
  const bool to_all = kind == "all_to_all";
  const Memory in(to_all || kind == "all_gather" ? bytes : bytes * ranks);
  const Memory out(kind == "all_gather" ? bytes * ranks : bytes);
  return timed(peer, times, [&] {
    if (kind == "reduce_scatter") {
      peer.reduce_scatter(in.get(), out.get(), count);
    } else if (kind == "all_gather") {
      peer.all_gather(in.get(), out.get(), count);
    } else {
      peer.all_to_all(in.get(), out.get(), count / ranks);
    }
  });
}

/// "list TIMES COUNT...": an all_reduce of each count of f32, one after the other.
inline double time_list(Peer& peer, const std::vector<std::string>& words) {
  std::vector<size_t> counts;
  std::vector<std::unique_ptr<Memory>> tensors;
  for (size_t i = 2; i < words.size(); ++i) {
    counts.push_back(std::stoull(words[i]));
    tensors.push_back(std::make_unique<Memory>(counts.back() * 4));
  }
  return timed(peer, std::stoi(words[1]), [&] {
    for (size_t i = 0; i < counts.size(); ++i) {
      peer.all_reduce(tensors[i]->get(), counts[i], false);
    }
  });
}

/// Read commands from FOLDER/RANK.in until "quit"; answer each with a line in FOLDER/out: the rank,
/// seconds of the calls, CPU seconds of the whole command.
inline int serve(Peer& peer, const std::string& folder) {
  const std::string self = std::to_string(peer.rank());
  const int out = open((folder + "/out").c_str(), O_WRONLY | O_CLOEXEC);
  const auto answer = [&](const std::string& text) {
    const std::string line = self + " " + text + "\n";
    return write(out, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  };
  std::ifstream in(folder + "/" + self + ".in");
  if (out < 0 || !in || !answer("ready")) {
    return 3;
  }
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
      words.push_back(word);
    }
    if (words.empty() || words[0] == "quit") {
      break;
    }
    const double cpu = cpu_seconds();
    double wall = 0;
    if (words[0] == "time") {
      wall = time_one(peer, words);
    } else if (words[0] == "list") {
      wall = time_list(peer, words);
    } else {
      answer("unknown");
      continue;
    }
    std::ostringstream text;
    text << wall << " " << cpu_seconds() - cpu;
    answer(text.str());
  }
  return 0;
}

}  // namespace comm_worker
