// SPDX-License-Identifier: Apache-2.0
// The engine's side of its workers: starts them when they are needed, hands them calls, replaces
// those that die, ends attempts that must not go on.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/board.h"
#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/flow/channel_internal.h"
#include "headrace/flow/engine.h"

namespace headrace::flow {

struct WorkerPoolOptions {
  /// argv of a worker; "{fd}" stands for the number of its socket.
  std::vector<std::string> command;
  base::Path run_folder;
  HelloFrame hello;
  int slots = 1;
  base::Histogram start_seconds = {};  ///< from the start of a process until it takes calls
};

/// What a worker process does with its time.
enum class WorkerUse : uint8_t { starting, idle, busy, draining };
inline constexpr std::array<std::string_view, 4> kWorkerUses = {"starting", "idle", "busy",
                                                                "draining"};

/// One worker process per slot. Not thread-safe; never blocks but while a process starts.
class WorkerPool {
 public:
  struct Ended {
    uint64_t attempt = 0;
    int slot = 0;
    Outcome outcome;
    double seconds = 0.0;
    base::Micros began{0};  ///< monotonic
    std::string log;
  };

  /// Its descriptors are watched by `epoll`, which must outlive it, with the slot's number as
  /// `data.u32`.
  static WorkerPool make(WorkerPoolOptions options, int epoll);
  WorkerPool(WorkerPool&&) noexcept;
  WorkerPool& operator=(WorkerPool&&) noexcept;
  ~WorkerPool();  ///< kills what is left

  /// Hand a call to the worker of a free slot; starts one when there is none. An error when no
  /// process can be started.
  Result<void> call(int slot, const CallFrame& frame);
  /// End the attempt that runs in a slot: SIGTERM, after the grace time SIGKILL. It is reported as
  /// lost, or as what it managed to answer.
  void stop(int slot);
  /// Take what a slot's worker sent; to be called when `epoll` says so. Never waits.
  void on_event(int slot, std::vector<Ended>* ended);
  /// Act on what is due.
  void on_time();
  /// When `on_time` must be called.
  std::optional<base::Micros> next_deadline() const;

  /// Let idle workers go, then kill what still runs after `grace`. Running attempts are lost.
  void shut_down(std::chrono::milliseconds grace);

  int64_t processes() const;
  /// By WorkerUse: processes now, and time of all processes up to now.
  std::array<int64_t, kWorkerUses.size()> uses() const;
  std::array<base::Micros, kWorkerUses.size()> times() const;

 private:
  struct State;
  explicit WorkerPool(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::flow
