// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <span>

#include "headrace/base/futex.h"
#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/algo/shm_quick_internal.h"

namespace headrace::comm {

namespace {

std::byte* piece(const ShmChannel& channel, int rank, uint64_t sequence, size_t bytes) {
  return bytes <= kInlineBytes ? channel.line(rank, sequence).payload
                               : channel.small_slot(rank, sequence);
}

bool all_there(const ShmChannel& channel, uint64_t sequence, uint64_t flag, int looks) {
  for (int rank = 0; rank < channel.ranks(); ++rank) {
    const std::atomic<uint64_t>& theirs = channel.line(rank, sequence).flag;
    while (theirs.load(std::memory_order_acquire) != flag) {
      if (looks-- == 0) {
        return false;
      }
      base::spin_pause();
    }
  }
  return true;
}

}  // namespace

bool try_quick(const QuickReduce& what, const ShmChannel& channel, ShmSetState& state, int looks) {
  const uint64_t sequence = state.sequence;
  const int rank = channel.rank();
  const size_t bytes = what.count * dtype_bytes(what.dtype);
  const Op told = what.averages ? Op::average : what.op;
  const uint64_t flag =
      flag_of(Call::fingerprint_of(Kind::all_reduce, told, what.dtype, 0, what.count, Wire16::none),
              sequence);
  channel.announcement(rank, sequence)
      .write(sequence, Kind::all_reduce, told, what.dtype, 0, what.count, Wire16::none, {});
  // Close before the flag: whoever looks for it takes the line away in between.
  if (bytes > 0) {
    std::memcpy(piece(channel, rank, sequence, bytes), what.in, bytes);
  }
  channel.line(rank, sequence).flag.store(flag, std::memory_order_release);
  if (!all_there(channel, sequence, flag, looks)) {
    return false;
  }
  if (bytes > kInlineBytes) {
    channel.expect_slot(sequence + 1, bytes);
  }
  std::array<const std::byte*, kNodeRanksMax> sources;
  const auto ranks = static_cast<size_t>(channel.ranks());
  for (size_t r = 0; r < ranks; ++r) {
    sources[r] = piece(channel, static_cast<int>(r), sequence, bytes);
  }
  reduce_tree({.in = what.dtype, .out = what.dtype, .op = what.op, .scale = what.postscale},
              std::span(sources).first(ranks), what.out, what.count);
  channel.mine().done.store(static_cast<uint32_t>(sequence + 1), std::memory_order_release);
  state.others_done = sequence;  // all are in this one, so past the one before
  state.last_flag[sequence & 1] = flag;
  state.sequence = sequence + 1;
  return true;
}

}  // namespace headrace::comm
