// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/algo/shm_small_internal.h"

namespace headrace::comm {

namespace {

bool is_reduction(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

uint64_t sum_before(const std::vector<uint64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, uint64_t{0});
}

/// Elements that `rank` puts.
uint64_t put_count(const Call& call, int rank, int ranks) {
  switch (call.kind) {
    case Kind::barrier: return 0;
    case Kind::broadcast: return rank == call.root ? call.count : 0;
    case Kind::scatter: return rank == call.root ? sum_before(call.counts, ranks) : 0;
    case Kind::reduce_scatter: return sum_before(call.counts, ranks);
    case Kind::all_gather:
    case Kind::gather: return call.counts[static_cast<size_t>(rank)];
    default: return call.count;
  }
}

void copy_piece(std::byte* out, const std::byte* in, size_t bytes) {
  if (bytes > 0 && out != in) {
    std::memmove(out, in, bytes);
  }
}

}  // namespace

ShmSmall::ShmSmall(const Call& call, ShmChannel& channel, ShmSetState& state, size_t bytes)
    : ShmOperation(call, channel, state), inline_(bytes <= kInlineBytes) {}

bool ShmSmall::waits_for(int other) const {
  switch (call_.kind) {
    case Kind::broadcast:
    case Kind::scatter: return other == call_.root;
    case Kind::reduce:
    case Kind::gather: return call_.root == channel_.rank();
    default: return true;
  }
}

std::byte* ShmSmall::piece(int rank) const {
  return inline_ ? channel_.line(rank, sequence_).payload : channel_.small_slot(rank, sequence_);
}

void ShmSmall::put() {
  const uint64_t count = put_count(call_, channel_.rank(), channel_.ranks());
  std::byte* to = piece(channel_.rank());
  if (is_reduction(call_.kind) && call_.prescale != 1.0) {
    scale_elements(call_.dtype, call_.prescale, call_.in, to, count);
  } else {
    copy_piece(to, call_.in, count * dtype_bytes(call_.dtype));
  }
}

void ShmSmall::take() {
  const size_t element = dtype_bytes(call_.dtype);
  const int rank = channel_.rank();
  const int ranks = channel_.ranks();
  if (is_reduction(call_.kind)) {
    if (call_.kind == Kind::reduce && rank != call_.root) {
      return;
    }
    const bool scatter = call_.kind == Kind::reduce_scatter;
    const size_t offset = scatter ? sum_before(call_.counts, rank) * element : 0;
    std::array<const std::byte*, kNodeRanksMax> sources;
    for (int r = 0; r < ranks; ++r) {
      sources[static_cast<size_t>(r)] = piece(r) + offset;
    }
    reduce_tree(
        {.in = call_.dtype, .out = call_.result_dtype(), .op = call_.op, .scale = call_.postscale},
        std::span(sources).first(static_cast<size_t>(ranks)), call_.out,
        scatter ? call_.counts[static_cast<size_t>(rank)] : call_.count);
  } else if (call_.kind == Kind::broadcast) {
    copy_piece(call_.out, rank == call_.root ? call_.in : piece(call_.root), call_.count * element);
  } else if (call_.kind == Kind::scatter) {
    copy_piece(call_.out, piece(call_.root) + sum_before(call_.counts, rank) * element,
               call_.counts[static_cast<size_t>(rank)] * element);
  } else if (call_.kind == Kind::all_gather || (call_.kind == Kind::gather && rank == call_.root)) {
    std::byte* to = call_.out;
    for (int r = 0; r < ranks; ++r) {
      const size_t bytes = call_.counts[static_cast<size_t>(r)] * element;
      copy_piece(to, piece(r), bytes);
      to += bytes;
    }
  }
}

Step ShmSmall::step() {
  if (!announced_) {
    if (!may_write()) {
      return Step::stuck;
    }
    put();
    announce();
    announced_ = true;
  }
  for (; next_ < channel_.ranks(); ++next_) {
    if (next_ == channel_.rank() || !waits_for(next_)) {
      continue;
    }
    const Step there = look_at(next_);
    if (there != Step::moved) {
      return there;
    }
  }
  take();
  // Who waits for all others has seen them past the operation before.
  channel_.mine().done.store(static_cast<uint32_t>(sequence_ + 1), std::memory_order_release);
  channel_.ring_others();
  return Step::done;
}

}  // namespace headrace::comm
