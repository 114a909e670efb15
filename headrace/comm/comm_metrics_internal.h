// SPDX-License-Identifier: Apache-2.0
// What ranks count of their collectives, as comm.* on a process's board.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/base/board.h"
#include "headrace/base/clock.h"
#include "headrace/base/thread.h"
#include "headrace/comm/algo/call.h"

namespace headrace::comm {

/// As counters tell operations apart: the kinds, and what ranks do to agree.
inline constexpr size_t kCountedKinds = static_cast<size_t>(Kind::recv) + 2;
inline size_t counted_kind(const Call& call) {
  return call.negotiates ? kCountedKinds - 1 : static_cast<size_t>(call.kind);
}

/// Handles of one context. Thread-safe.
class CommMetrics {
 public:
  /// Ranks of the world that have a counter of their own; the others share one.
  static constexpr int kPeersMost = 64;

  /// `board` may be null: then nothing is counted.
  CommMetrics(std::shared_ptr<base::Board> board, int world_size, uint64_t generation);

  bool on() const { return board_ != nullptr; }
  /// Operations that ended without an error, and the bytes of their buffers.
  void ended(size_t kind, uint64_t count, const MovedBytes& bytes, bool tcp);
  void took(size_t kind, base::Micros time) { op_seconds_[kind].observe(time); }
  void waited(size_t kind, int world_rank, base::Micros time);
  void failed(Errc code);
  void fused(uint64_t tensors) { fused_tensors_.add(tensors); }

 private:
  const std::shared_ptr<base::Board> board_;
  std::array<base::Counter, kCountedKinds> ops_;
  std::array<base::Counter, kCountedKinds> wait_seconds_;
  std::array<base::Histogram, kCountedKinds> op_seconds_;
  std::array<base::Counter, 4> bytes_;  // tx and rx over shared memory, then over TCP
  std::vector<base::Counter> peer_wait_seconds_;
  base::Counter fused_tensors_;
};

/// What a set has done, for its counters. An atomic addition costs as much as the rest of a small
/// operation's bookkeeping: it is counted here, where one thread at a time writes, and added to the
/// board by flush().
class SetTally {
 public:
  SetTally(std::shared_ptr<CommMetrics> metrics, bool tcp)
      : metrics_(std::move(metrics)), tcp_(tcp) {}
  ~SetTally() { flush(); }

  /// One thread at a time, as add_all_reduce.
  void add(size_t kind, const MovedBytes& bytes) {
    Cell& cell = cells_[kind];
    grow(cell.ops, 1);
    grow(cell.in, bytes.in);
    grow(cell.out, bytes.out);
  }
  /// One that puts in as much as it gets.
  void add_all_reduce(uint64_t bytes) {
    grow(all_reduces_.ops, 1);
    grow(all_reduces_.in, bytes);
  }
  /// Any thread.
  void flush() HR_EXCLUDES(mutex_);
  CommMetrics& metrics() const { return *metrics_; }

 private:
  struct alignas(32) Cell {
    std::atomic<uint64_t> ops = 0;
    std::atomic<uint64_t> in = 0;
    std::atomic<uint64_t> out = 0;
  };
  struct Flushed {
    uint64_t ops = 0;
    MovedBytes bytes;
  };
  static void grow(std::atomic<uint64_t>& cell, uint64_t by) {
    cell.store(cell.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  Flushed counted(size_t kind) const;

  Cell all_reduces_;  // of add_all_reduce; `out` is `in`
  const std::shared_ptr<CommMetrics> metrics_;
  const bool tcp_;
  std::array<Cell, kCountedKinds> cells_;
  base::Mutex mutex_;  // leaf
  std::array<Flushed, kCountedKinds> flushed_ HR_GUARDED_BY(mutex_);
};

}  // namespace headrace::comm
