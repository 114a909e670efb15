// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/algo/shm_small_internal.h"

namespace headrace::comm {

namespace {

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

ShmSmall::ShmSmall(const Call& call, ShmChannel& channel, ShmSetState& state, size_t bytes,
                   bool rings_later)
    : ShmOperation(call, channel, state),
      inline_(bytes <= kInlineBytes),
      rings_later_(rings_later),
      bytes_(bytes) {}

bool ShmSmall::waits_for(int other) const {
  switch (call().kind) {
    case Kind::broadcast:
    case Kind::scatter: return other == call().root;
    case Kind::reduce:
    case Kind::gather: return call().root == channel_.rank();
    default: return true;
  }
}

bool ShmSmall::waits_for_all() const {
  const Kind kind = call().kind;
  return kind == Kind::barrier || kind == Kind::all_reduce || kind == Kind::all_gather ||
         kind == Kind::reduce_scatter;
}

std::byte* ShmSmall::piece(int rank) const {
  return inline_ ? channel_.line(rank, sequence_).payload : channel_.small_slot(rank, sequence_);
}

void ShmSmall::put() {
  const uint64_t count = put_count(call(), channel_.rank(), channel_.ranks());
  std::byte* to = piece(channel_.rank());
  if (!call().in_offsets.empty() && count > 0) {
    put_parts(to);
  } else if (is_reduction(call().kind) && call().prescale != 1.0) {
    scale_elements(call().dtype, call().prescale, call().in, to, count);
  } else {
    copy_piece(to, call().in, count * dtype_bytes(call().dtype));
  }
}

/// Of a call whose parts do not lie one behind the other.
void ShmSmall::put_parts(std::byte* to) {
  const size_t element = dtype_bytes(call().dtype);
  for (size_t r = 0; r < call().counts.size(); ++r) {
    const uint64_t count = call().counts[r];
    const std::byte* from = call().in + call().in_offsets[r] * element;
    if (is_reduction(call().kind) && call().prescale != 1.0) {
      scale_elements(call().dtype, call().prescale, from, to, count);
    } else {
      copy_piece(to, from, count * element);
    }
    to += count * element;
  }
}

void ShmSmall::take() {
  const size_t element = dtype_bytes(call().dtype);
  const int rank = channel_.rank();
  const int ranks = channel_.ranks();
  if (is_reduction(call().kind)) {
    if (call().kind == Kind::reduce && rank != call().root) {
      return;
    }
    const bool scatter = call().kind == Kind::reduce_scatter;
    const size_t offset = scatter ? sum_before(call().counts, rank) * element : 0;
    std::array<const std::byte*, kNodeRanksMax> sources;
    for (int r = 0; r < ranks; ++r) {
      sources[static_cast<size_t>(r)] = piece(r) + offset;
    }
    reduce_tree({.in = call().dtype,
                 .out = call().result_dtype(),
                 .op = call().op,
                 .scale = call().postscale},
                std::span(sources).first(static_cast<size_t>(ranks)), call().out,
                scatter ? call().counts[static_cast<size_t>(rank)] : call().count);
  } else if (call().kind == Kind::broadcast) {
    copy_piece(call().out, rank == call().root ? call().in : piece(call().root),
               call().count * element);
  } else if (call().kind == Kind::scatter) {
    copy_piece(call().out, piece(call().root) + sum_before(call().counts, rank) * element,
               call().counts[static_cast<size_t>(rank)] * element);
  } else if (call().kind == Kind::all_gather ||
             (call().kind == Kind::gather && rank == call().root)) {
    const std::vector<uint64_t>& offsets = call().out_offsets;
    std::byte* to = call().out;
    for (int r = 0; r < ranks; ++r) {
      const auto index = static_cast<size_t>(r);
      const size_t bytes = call().counts[index] * element;
      copy_piece(offsets.empty() ? to : call().out + offsets[index] * element, piece(r), bytes);
      to += bytes;
    }
  }
}

Step ShmSmall::step() {
  if (!announced_) {
    if (!may_write()) {
      return Step::stuck;
    }
    tell();
    put();  // close before the flag: whoever looks for it takes the line away in between
    raise_flag();
    announced_ = true;
  }
  while (next_ < channel_.ranks()) {
    const bool waits = next_ != channel_.rank() && waits_for(next_);
    const Step there = waits ? look_at(next_) : Step::moved;
    if (there == Step::moved) {
      ++next_;
    } else if (there == Step::stuck && !rung_) {
      // Not before there is time for it: the fence of a ring waits until the flag has left this
      // core, and whoever comes last can read the others' flags meanwhile.
      channel_.ring_others();
      rung_ = true;
    } else {
      return there;
    }
  }
  if (!inline_) {
    channel_.expect_slot(sequence_ + 1, bytes_);
  }
  take();
  channel_.mine().done.store(static_cast<uint32_t>(sequence_ + 1), std::memory_order_release);
  if (waits_for_all()) {
    // All are in this operation, so past the one before; and nobody waits for the end of this one
    // unless it is two operations ahead. It would see it at its next look, 50 ms later, if it went
    // to sleep in the very moment in which this rank does not see it: no fence for that.
    state_.others_done = std::max(state_.others_done, sequence_);
    if (!rings_later_) {
      channel_.ring_others(rung_ ? Fence::no : Fence::yes);
    }
  } else {
    channel_.ring_others();
  }
  return Step::done;
}

}  // namespace headrace::comm
