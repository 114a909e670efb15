// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "headrace/base/metric_names.h"
#include "headrace/comm/comm_metrics_internal.h"

namespace headrace::comm {

namespace {

std::string op_label(size_t kind) {
  return fmt::format(
      "op=\"{}\"", kind == kCountedKinds - 1 ? "negotiation" : kind_name(static_cast<Kind>(kind)));
}

}  // namespace

CommMetrics::CommMetrics(std::shared_ptr<base::Board> board, int world_size, uint64_t generation)
    : board_(std::move(board)) {
  const int peers = std::min(world_size, kPeersMost);
  peer_wait_seconds_.resize(static_cast<size_t>(peers) + 1);
  if (board_ == nullptr) {
    return;
  }
  for (size_t kind = 0; kind < kCountedKinds; ++kind) {
    const std::string label = op_label(kind);
    ops_[kind] = board_->counter(base::metric("comm.ops"), label);
    wait_seconds_[kind] = board_->counter(base::metric("comm.wait_seconds"), label);
    op_seconds_[kind] = board_->histogram(base::metric("comm.op_seconds"), label);
  }
  constexpr const char* kWays[] = {
      R"(dir="tx",transport="shm")",
      R"(dir="rx",transport="shm")",
      R"(dir="tx",transport="tcp")",
      R"(dir="rx",transport="tcp")",
  };
  for (size_t i = 0; i < bytes_.size(); ++i) {
    bytes_[i] = board_->counter(base::metric("comm.bytes"), kWays[i]);
  }
  for (int peer = 0; peer < peers; ++peer) {
    peer_wait_seconds_[static_cast<size_t>(peer)] =
        board_->counter(base::metric("comm.peer_wait_seconds"), fmt::format("peer=\"{}\"", peer));
  }
  if (world_size > peers) {
    peer_wait_seconds_.back() =
        board_->counter(base::metric("comm.peer_wait_seconds"), "peer=\"other\"");
  }
  fused_tensors_ = board_->counter(base::metric("comm.fused_tensors"));
  board_->gauge(base::metric("comm.generation")).set(static_cast<double>(generation));
}

void CommMetrics::ended(size_t kind, uint64_t count, const MovedBytes& bytes, bool tcp) {
  ops_[kind].add(count);
  bytes_[tcp ? 2 : 0].add(bytes.in);
  bytes_[tcp ? 3 : 1].add(bytes.out);
}

void CommMetrics::waited(size_t kind, int world_rank, base::Micros time) {
  wait_seconds_[kind].add(std::chrono::nanoseconds(time));
  if (world_rank >= 0) {
    const size_t last = peer_wait_seconds_.size() - 1;
    peer_wait_seconds_[std::min(static_cast<size_t>(world_rank), last)].add(
        std::chrono::nanoseconds(time));
  }
}

void CommMetrics::failed(Errc code) {
  if (on()) {
    board_->counter(base::metric("comm.errors"), fmt::format("code=\"{}\"", errc_name(code))).add();
  }
}

SetTally::Flushed SetTally::counted(size_t kind) const {
  const auto of = [](const Cell& cell) {
    return Flushed{
        cell.ops.load(std::memory_order_relaxed),
        {cell.in.load(std::memory_order_relaxed), cell.out.load(std::memory_order_relaxed)}};
  };
  Flushed now = of(cells_[kind]);
  if (kind == static_cast<size_t>(Kind::all_reduce)) {
    const Flushed more = of(all_reduces_);
    now.ops += more.ops;
    now.bytes.in += more.bytes.in;
    now.bytes.out += more.bytes.in;
  }
  return now;
}

void SetTally::flush() {
  if (!metrics_->on()) {
    return;
  }
  const base::MutexLock lock(mutex_);
  for (size_t kind = 0; kind < kCountedKinds; ++kind) {
    Flushed& before = flushed_[kind];
    const Flushed now = counted(kind);
    if (now.ops != before.ops || now.bytes.in != before.bytes.in ||
        now.bytes.out != before.bytes.out) {
      metrics_->ended(kind, now.ops - before.ops,
                      {now.bytes.in - before.bytes.in, now.bytes.out - before.bytes.out}, tcp_);
      before = now;
    }
  }
}

}  // namespace headrace::comm
