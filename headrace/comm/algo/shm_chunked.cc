// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/algo/shm_chunked_internal.h"

namespace headrace::comm {

namespace {

/// Results of all ranks together that are larger leave the caches before they are read again.
size_t last_cache_bytes() {
  // Some machines tell the cache of a whole socket, of which a job has a part.
  constexpr int64_t kMost = int64_t{32} << 20;
  constexpr int64_t kUnknown = int64_t{16} << 20;
  static const int64_t told = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return static_cast<size_t>(told > 0 ? std::min(told, kMost) : kUnknown);
}

/// Bytes [offset, offset + limit) of a piece, cut to what there is.
size_t part_of(size_t bytes, size_t offset, size_t limit) {
  return offset >= bytes ? 0 : std::min(limit, bytes - offset);
}

}  // namespace

ShmChunked::ShmChunked(const Call& call, ShmChannel& channel, ShmSetState& state)
    : ShmOperation(call, channel, state),
      plan_(plan_exchange(call, channel.rank(), channel.ranks(), channel.geometry().chunk_bytes)),
      base_(state.chunks),
      steps_(plan_.steps),
      past_caches_(plan_.steps * plan_.chunk_bytes * static_cast<size_t>(channel.ranks()) *
                       static_cast<size_t>(channel.ranks()) >
                   last_cache_bytes()) {
  if (plan_.reduces) {
    sources_.resize(static_cast<size_t>(channel.ranks()));
    if (call.prescale != 1.0) {
      scaled_.resize(plan_.chunk_bytes);
    }
  }
}

bool ShmChunked::all_at(Counter counter, uint32_t wanted) {
  for (int other = 0; other < channel_.ranks(); ++other) {
    if (other == channel_.rank()) {
      continue;
    }
    const uint32_t value = (channel_.progress(other).*counter).load(std::memory_order_acquire);
    if (static_cast<int32_t>(value - wanted) < 0) {
      missing_ = other;
      return false;
    }
  }
  return true;
}

void ShmChunked::count(Counter counter, uint32_t value) {
  (channel_.mine().*counter).store(base_ + value, std::memory_order_release);
}

/// See that all are in the same operation; the number of steps is the greatest of all ranks.
bool ShmChunked::agree() {
  for (; next_ < channel_.ranks(); ++next_) {
    if (next_ == channel_.rank()) {
      continue;
    }
    const Step there = look_at(next_);
    if (there != Step::moved) {
      return false;
    }
    if (plan_.needs_agreement) {
      if (!expects_what_comes(next_)) {
        return false;
      }
      uint32_t steps = 0;
      std::memcpy(&steps, channel_.line(next_, sequence_).payload, sizeof steps);
      steps_ = std::max(steps_, steps);
    }
  }
  agreed_ = true;
  state_.others_done = std::max(state_.others_done, sequence_);
  return true;
}

/// Where ranks have sizes of their own, each says in its small slot what it sends to whom.
void ShmChunked::tell_sizes() {
  std::byte* to = channel_.small_slot(channel_.rank(), sequence_);
  for (const ConstPiece& piece : plan_.send) {
    const uint64_t bytes = piece.bytes;
    std::memcpy(to, &bytes, sizeof bytes);
    to += sizeof bytes;
  }
}

bool ShmChunked::expects_what_comes(int from) {
  const auto self = static_cast<size_t>(channel_.rank());
  const uint64_t expected = plan_.take_sent[static_cast<size_t>(from)].bytes;
  uint64_t sent = 0;
  std::memcpy(&sent, channel_.small_slot(from, sequence_) + self * sizeof sent, sizeof sent);
  if (sent == expected) {
    return true;
  }
  fail(from, fmt::format("in operation {}, {}, rank {} sends {} bytes to rank {}, which expects {}",
                         sequence_, description_of(channel_.rank()), from, sent, self, expected));
  return false;
}

bool ShmChunked::may_put() {
  const uint32_t free_at = base_ + put_ + 1 - channel_.geometry().depth;
  // Within an operation that reduces, contributions are read by the reduction. Before it, by
  // whatever the operation before did.
  const bool within = put_ >= channel_.geometry().depth;
  return all_at(plan_.reduces && within ? &ProgressLine::reduced : &ProgressLine::taken, free_at);
}

bool ShmChunked::may_reduce() {
  const uint32_t chunk = base_ + reduced_ + 1;
  return (!plan_.reduces || all_at(&ProgressLine::put, chunk)) &&
         (!plan_.publishes || all_at(&ProgressLine::taken, chunk - channel_.geometry().depth));
}

bool ShmChunked::may_take() {
  const uint32_t chunk = base_ + taken_ + 1;
  for (size_t q = 0; q < plan_.take_result.size(); ++q) {
    const ProgressLine& other = channel_.progress(static_cast<int>(q));
    const bool result = plan_.take_result[q].bytes > 0;
    if (!result && plan_.take_sent[q].bytes == 0) {
      continue;
    }
    const auto& counter = result ? other.reduced : other.put;
    if (static_cast<int32_t>(counter.load(std::memory_order_acquire) - chunk) < 0) {
      missing_ = static_cast<int>(q);
      return false;
    }
  }
  return true;
}

void ShmChunked::put() {
  const size_t offset = plan_.chunk_bytes * put_;
  const auto ranks = static_cast<size_t>(channel_.ranks());
  for (size_t i = 1; i < ranks; ++i) {
    const size_t to = (static_cast<size_t>(channel_.rank()) + i) % ranks;  // not all to one first
    const ConstPiece& piece = plan_.send[to];
    const size_t bytes = part_of(piece.bytes, offset, plan_.chunk_bytes);
    if (bytes == 0) {
      continue;
    }
    std::byte* slot = channel_.chunk_slot(channel_.rank(), base_ + put_, static_cast<int>(to));
    if (plan_.reduces && call().prescale != 1.0) {
      scale_elements(call().dtype, call().prescale, piece.data + offset, slot,
                     bytes / dtype_bytes(call().dtype));
    } else {
      std::memcpy(slot, piece.data + offset, bytes);
    }
  }
}

void ShmChunked::reduce() {
  const size_t offset = plan_.chunk_bytes * reduced_;
  const size_t bytes = part_of(plan_.result_bytes, offset, plan_.chunk_bytes);
  if (bytes == 0) {
    return;
  }
  const int rank = channel_.rank();
  const uint32_t chunk = base_ + reduced_;
  const std::byte* result = plan_.own.data + offset;
  std::byte* slot = plan_.publishes ? channel_.chunk_slot(rank, chunk, rank) : nullptr;
  if (plan_.reduces) {
    if (call().prescale != 1.0) {
      scale_elements(call().dtype, call().prescale, result, scaled_.data(),
                     bytes / dtype_bytes(call().dtype));
      result = scaled_.data();
    }
    for (int r = 0; r < channel_.ranks(); ++r) {
      sources_[static_cast<size_t>(r)] = r == rank ? result : channel_.chunk_slot(r, chunk, rank);
    }
    // Into the slot, which the caches hold, and from there to the user's memory.
    const size_t element = dtype_bytes(call().dtype);
    const size_t out_offset = offset / element * dtype_bytes(call().result_dtype());
    std::byte* to = slot != nullptr ? slot : plan_.result.data + out_offset;
    reduce_tree({.in = call().dtype,
                 .out = call().result_dtype(),
                 .op = call().op,
                 .scale = call().postscale},
                sources_, to, bytes / element);
    if (slot == nullptr) {
      return;
    }
    result = to;
  } else if (slot != nullptr) {
    std::memcpy(slot, result, bytes);
  }
  if (plan_.result.data != nullptr && plan_.result.data + offset != result) {
    copy_bytes(plan_.result.data + offset, result, bytes, past_caches_);
  }
}

void ShmChunked::take() {
  const size_t offset = plan_.chunk_bytes * taken_;
  const auto ranks = static_cast<size_t>(channel_.ranks());
  const int rank = channel_.rank();
  for (size_t i = 1; i < ranks; ++i) {
    const size_t from = (static_cast<size_t>(rank) + i) % ranks;
    const bool is_result = plan_.take_result[from].bytes > 0;
    const Piece& piece = is_result ? plan_.take_result[from] : plan_.take_sent[from];
    const size_t bytes = part_of(piece.bytes, offset, plan_.chunk_bytes);
    if (bytes > 0) {
      const auto source = static_cast<int>(from);
      copy_bytes(piece.data + offset,
                 channel_.chunk_slot(source, base_ + taken_, is_result ? source : rank), bytes,
                 past_caches_);
    }
  }
}

bool ShmChunked::advance(Stage stage) {
  switch (stage) {
    case Stage::put:
      // Before all have agreed only as far as this rank's own pieces go.
      if (put_ == steps_ || !may_put()) {
        return false;
      }
      put();
      count(&ProgressLine::put, ++put_);
      break;
    case Stage::reduced:
      if (!agreed_ || reduced_ == put_ || !may_reduce()) {
        return false;
      }
      reduce();
      count(&ProgressLine::reduced, ++reduced_);
      break;
    case Stage::taken:
      if (taken_ == reduced_ || !may_take()) {
        return false;
      }
      take();
      count(&ProgressLine::taken, ++taken_);
  }
  channel_.ring_others();
  return true;
}

Step ShmChunked::step() {
  bool moved = false;
  if (!announced_) {
    if (!may_write()) {
      return Step::stuck;
    }
    std::memcpy(channel_.line(channel_.rank(), sequence_).payload, &plan_.steps,
                sizeof plan_.steps);
    if (plan_.needs_agreement) {
      tell_sizes();
    }
    tell();
    raise_flag();
    channel_.ring_others();
    announced_ = true;
    moved = true;
  }
  while (true) {
    if (!agreed_ && !agree() && error_) {
      return Step::failed;
    }
    const bool taken = advance(Stage::taken);
    const bool reduced = advance(Stage::reduced);
    const bool put = advance(Stage::put);
    if (agreed_ && taken_ == steps_) {
      break;
    }
    if (!taken && !reduced && !put) {
      if (!agreed_) {
        missing_ = next_;  // the stages wait for others that wait for this one
      }
      return moved ? Step::moved : Step::stuck;
    }
    moved = true;
  }
  state_.chunks = base_ + steps_;
  channel_.mine().done.store(static_cast<uint32_t>(sequence_ + 1), std::memory_order_release);
  channel_.ring_others();
  return Step::done;
}

}  // namespace headrace::comm
