// SPDX-License-Identifier: Apache-2.0
// The handle of a collective on its way.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::comm {

struct WorkState;

/// A collective that was submitted. Copyable; all copies are the same one. Thread-safe. The buffers
/// of the call are in use until it is done.
class HR_API Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  /// One that was done without an error before anybody could ask.
  static Work ended(uint64_t sequence);

  bool valid() const { return state_ != nullptr; }
  bool done() const;
  /// Wait until it is done; its error, if it has one. With `limit`: `timeout` when that is over,
  /// and the operation goes on.
  Result<void> wait(std::optional<std::chrono::milliseconds> limit = {}) const;
  /// Of an operation on a GPU: what is put on `stream` (a cudaStream_t) from now on begins after
  /// it; the caller does not wait for it. An error that comes later is told by the next operation
  /// of the set. Of one on the CPU: wait().
  Result<void> wait_on_stream(uintptr_t stream) const;
  /// Call `then` once with the outcome, on the thread that ends the operation, or here when it is
  /// done already. It must not block and must not submit.
  void on_done(std::function<void(const Result<void>&)> then) const;
  /// Number of the operation within its process set.
  uint64_t sequence() const;
  /// Of a recv that is done: the rank of the set that sent it; -1 otherwise.
  int source() const;

 private:
  std::shared_ptr<WorkState> state_;
  std::optional<uint64_t> sequence_;  // where it is not the state's
};

}  // namespace headrace::comm
