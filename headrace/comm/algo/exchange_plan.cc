// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/exchange_plan.h"

#include <algorithm>
#include <numeric>

#include "headrace/comm/transport/shm_channel.h"

namespace headrace::comm {

namespace {

constexpr size_t kChunkBytesMin = size_t{16} << 10;
constexpr size_t kStepsWanted = 4;  // enough to overlap copying in, reducing and copying out

/// Make of `call` the moves of one kind; each function below fills a plan for it.
class Planner {
 public:
  Planner(const Call& call, int rank, int ranks)
      : call_(call),
        rank_(static_cast<size_t>(rank)),
        root_(static_cast<size_t>(call.root)),
        ranks_(static_cast<size_t>(ranks)),
        element_(dtype_bytes(call.dtype)) {
    plan_.send.resize(ranks_);
    plan_.take_result.resize(ranks_);
    plan_.take_sent.resize(ranks_);
  }

  ExchangePlan plan() {
    switch (call_.kind) {
      case Kind::barrier: break;
      case Kind::all_reduce:
      case Kind::reduce:
        reduce_parts(equal_parts(call_.count, static_cast<int>(ranks_), element_));
        break;
      case Kind::reduce_scatter: reduce_scatter(); break;
      case Kind::broadcast: broadcast(); break;
      case Kind::all_gather: all_gather(); break;
      case Kind::all_to_all: all_to_all(); break;
      case Kind::gather: gather(); break;
      case Kind::scatter: scatter(); break;
      case Kind::send:
      case Kind::recv: break;  // messages are no collectives
    }
    return std::move(plan_);
  }

 private:
  ConstPiece in(uint64_t offset, uint64_t count) const {
    return {call_.in + offset * element_, count * element_};
  }
  Piece out(uint64_t offset, uint64_t count) const {
    return {call_.out + offset * element_, count * element_};
  }

  void send_parts(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& offsets) {
    for (size_t p = 0; p < ranks_; ++p) {
      if (p != rank_) {
        plan_.send[p] = in(offsets[p], counts[p]);
      }
    }
    plan_.own = in(offsets[rank_], counts[rank_]);
    plan_.result_bytes = counts[rank_] * element_;
    plan_.reduces = true;
  }

  void reduce_parts(const std::vector<uint64_t>& counts) {
    const auto offsets = offsets_of(counts);
    const bool wants = call_.kind == Kind::all_reduce || rank_ == root_;
    send_parts(counts, offsets);
    plan_.publishes = true;
    plan_.publish_to = call_.kind == Kind::reduce ? call_.root : -1;
    if (wants) {
      plan_.result = out(offsets[rank_], counts[rank_]);
      for (size_t p = 0; p < ranks_; ++p) {
        if (p != rank_) {
          plan_.take_result[p] = out(offsets[p], counts[p]);
        }
      }
    }
  }

  void reduce_scatter() {
    send_parts(call_.counts, offsets_of(call_.counts, call_.in_offsets));
    plan_.result = out(0, call_.counts[rank_]);
  }

  void broadcast() {
    if (rank_ == root_) {
      plan_.own = in(0, call_.count);
      plan_.result_bytes = plan_.own.bytes;
      plan_.publishes = true;
      plan_.result = call_.out == call_.in ? Piece{} : out(0, call_.count);
    } else {
      plan_.take_result[root_] = out(0, call_.count);
    }
  }

  void all_gather() {
    const auto offsets = offsets_of(call_.counts, call_.out_offsets);
    plan_.own = in(0, call_.counts[rank_]);
    plan_.result_bytes = plan_.own.bytes;
    plan_.publishes = true;
    plan_.result = out(offsets[rank_], call_.counts[rank_]);
    for (size_t p = 0; p < ranks_; ++p) {
      if (p != rank_) {
        plan_.take_result[p] = out(offsets[p], call_.counts[p]);
      }
    }
  }

  void all_to_all() {
    const auto from = offsets_of(call_.send_counts, call_.in_offsets);
    const auto to = offsets_of(call_.recv_counts, call_.out_offsets);
    for (size_t p = 0; p < ranks_; ++p) {
      if (p != rank_) {
        plan_.send[p] = in(from[p], call_.send_counts[p]);
        plan_.take_sent[p] = out(to[p], call_.recv_counts[p]);
      }
    }
    plan_.own = in(from[rank_], call_.send_counts[rank_]);
    plan_.result = out(to[rank_], call_.send_counts[rank_]);
    plan_.result_bytes = plan_.own.bytes;
    plan_.needs_agreement = true;
  }

  void gather() {
    const auto offsets = offsets_of(call_.counts, call_.out_offsets);
    if (rank_ != root_) {
      plan_.send[root_] = in(0, call_.counts[rank_]);
      return;
    }
    for (size_t p = 0; p < ranks_; ++p) {
      if (p != rank_) {
        plan_.take_sent[p] = out(offsets[p], call_.counts[p]);
      }
    }
    plan_.own = in(0, call_.counts[rank_]);
    plan_.result = out(offsets[rank_], call_.counts[rank_]);
    plan_.result_bytes = plan_.own.bytes;
  }

  void scatter() {
    const auto offsets = offsets_of(call_.counts, call_.in_offsets);
    if (rank_ != root_) {
      plan_.take_sent[root_] = out(0, call_.counts[rank_]);
      return;
    }
    for (size_t p = 0; p < ranks_; ++p) {
      if (p != rank_) {
        plan_.send[p] = in(offsets[p], call_.counts[p]);
      }
    }
    plan_.own = in(offsets[rank_], call_.counts[rank_]);
    plan_.result = out(0, call_.counts[rank_]);
    plan_.result_bytes = plan_.own.bytes;
  }

  const Call& call_;
  size_t rank_;
  size_t root_;
  size_t ranks_;
  size_t element_;
  ExchangePlan plan_;
};

/// Bytes of the longest piece of any rank, where all ranks know it; else of this rank.
size_t longest_piece(const Call& call, const ExchangePlan& plan, int ranks) {
  const size_t element = dtype_bytes(call.dtype);
  size_t longest = plan.result_bytes;
  switch (call.kind) {
    case Kind::barrier: return 0;
    case Kind::all_reduce:
    case Kind::reduce: return equal_parts(call.count, ranks, element).front() * element;
    case Kind::broadcast: return call.count * element;
    case Kind::all_to_all:
      for (const ConstPiece& one : plan.send) {
        longest = std::max(longest, one.bytes);
      }
      for (const Piece& one : plan.take_sent) {
        longest = std::max(longest, one.bytes);
      }
      return longest;
    default: return *std::max_element(call.counts.begin(), call.counts.end()) * element;
  }
}

}  // namespace

std::vector<uint64_t> offsets_of(const std::vector<uint64_t>& counts,
                                 const std::vector<uint64_t>& given) {
  if (!given.empty()) {
    return given;
  }
  std::vector<uint64_t> offsets(counts.size() + 1, 0);  // and all
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  return offsets;
}

std::vector<uint64_t> equal_parts(uint64_t count, int ranks, size_t element_bytes) {
  const auto n = static_cast<uint64_t>(ranks);
  const uint64_t line = kLineBytes / element_bytes;
  const uint64_t lines = (count + line - 1) / line;
  const uint64_t part = (lines + n - 1) / n * line;
  std::vector<uint64_t> parts(n);
  for (uint64_t p = 0; p < n; ++p) {
    const uint64_t begin = std::min(count, p * part);
    parts[p] = std::min(count, begin + part) - begin;
  }
  return parts;
}

ExchangePlan plan_exchange(const Call& call, int rank, int ranks, size_t chunk_bytes_max) {
  ExchangePlan plan = Planner(call, rank, ranks).plan();
  const size_t longest = longest_piece(call, plan, ranks);
  // All ranks must cut alike, so where they do not know the longest piece they cut at the most.
  size_t chunk = chunk_bytes_max;
  if (!plan.needs_agreement) {
    chunk = std::clamp(longest / kStepsWanted, std::min(kChunkBytesMin, chunk_bytes_max),
                       chunk_bytes_max);
  }
  plan.chunk_bytes = std::max(chunk / kLineBytes, size_t{1}) * kLineBytes;
  plan.steps = static_cast<uint32_t>((longest + plan.chunk_bytes - 1) / plan.chunk_bytes);
  return plan;
}

ExchangePlan plan_direct(const Call& call, int rank, int ranks) {
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  const bool to_all = call.kind == Kind::all_reduce;
  ExchangePlan plan;
  plan.send.resize(static_cast<size_t>(ranks));
  plan.take_result.resize(static_cast<size_t>(ranks));
  plan.take_sent.resize(static_cast<size_t>(ranks));
  plan.reduces = true;
  for (int p = 0; p < ranks; ++p) {
    if (p != rank && (to_all || p == call.root)) {
      plan.send[static_cast<size_t>(p)] = {call.in, bytes};
    }
  }
  if (to_all || rank == call.root) {
    plan.own = {call.in, bytes};
    plan.result = {call.out, bytes};
    plan.result_bytes = bytes;
  }
  plan.chunk_bytes = bytes;
  plan.steps = 1;
  return plan;
}

std::optional<size_t> one_piece_bytes(const Call& call) {
  const size_t element = dtype_bytes(call.dtype);
  switch (call.kind) {
    case Kind::barrier: return 0;
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::broadcast: return call.count * element;
    case Kind::all_gather:
    case Kind::gather: return *std::max_element(call.counts.begin(), call.counts.end()) * element;
    case Kind::reduce_scatter:
    case Kind::scatter:
      return std::accumulate(call.counts.begin(), call.counts.end(), uint64_t{0}) * element;
    case Kind::all_to_all:
    case Kind::send:
    case Kind::recv: break;
  }
  return std::nullopt;
}

}  // namespace headrace::comm
