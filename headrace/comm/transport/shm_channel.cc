// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/shm_channel.h"

#include <algorithm>
#include <utility>

namespace headrace::comm {

namespace {

constexpr size_t kPageBytes = ShmChannel::kPageBytes;
constexpr size_t kHeaderBytes = kPageBytes;  // the fault

/// Fetch the line for writing. Does nothing where there is no such instruction.
void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1, 3);
#endif
}

// As many lines as a core fetches at once.
constexpr size_t kExpectedBytes = 16 * kLineBytes;

size_t pages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

size_t bytes_of_rank(const ShmGeometry& geometry) {
  return kPageBytes + pages(2 * geometry.small_bytes) +
         pages(geometry.depth * static_cast<size_t>(geometry.ranks) * geometry.chunk_bytes);
}

}  // namespace

ShmGeometry ShmGeometry::choose(int ranks, size_t small_bytes, size_t chunk_bytes) {
  // One rank's slots are written by it and read by all others: what counts is that the slots of
  // all ranks for one chunk stay in the caches.
  constexpr size_t kRingBytes = size_t{2} << 20;
  ShmGeometry geometry;
  geometry.ranks = ranks;
  const auto n = static_cast<size_t>(ranks);
  const size_t fair = kRingBytes / (geometry.depth * n * std::max<size_t>(n / 2, 1));
  geometry.chunk_bytes = std::clamp(fair / kPageBytes * kPageBytes, kPageBytes, size_t{128} << 10);
  // Every rank reads all contributions of a small operation; beyond some ranks that costs more
  // than to share the work.
  // Whole lines: the second slot begins where the first ends.
  const size_t share = (size_t{128} << 10) / std::max<size_t>(n, 2);
  const size_t sizes = pages(n * sizeof(uint64_t));  // of an all_to_all, for each rank
  geometry.small_bytes = std::max(sizes, share / kLineBytes * kLineBytes);
  if (small_bytes > 0) {
    geometry.small_bytes =
        std::max(sizes, (small_bytes + kLineBytes - 1) / kLineBytes * kLineBytes);
  }
  if (chunk_bytes > 0) {
    geometry.chunk_bytes = pages(chunk_bytes);
  }
  return geometry;
}

size_t ShmGeometry::segment_bytes() const {
  return kHeaderBytes + static_cast<size_t>(ranks) * bytes_of_rank(*this);
}

ShmChannel::ShmChannel(std::byte* memory, const ShmGeometry& geometry, int rank, NodeBells bells,
                       std::vector<int> places)
    : memory_(memory),
      geometry_(geometry),
      rank_(rank),
      header_bytes_(kHeaderBytes),
      rank_bytes_(bytes_of_rank(geometry)),
      bells_(bells),
      places_(std::move(places)) {}

std::byte* ShmChannel::chunk_slot(int rank, uint32_t chunk, int part) const {
  const size_t index =
      static_cast<size_t>(chunk % geometry_.depth) * static_cast<size_t>(geometry_.ranks) +
      static_cast<size_t>(part);
  return of_rank(rank) + kPageBytes + pages(2 * geometry_.small_bytes) +
         index * geometry_.chunk_bytes;
}

void ShmChannel::expect_slot(uint64_t sequence, size_t bytes) const {
  const std::byte* slot = small_slot(rank_, sequence);
  for (size_t at = 0; at < std::min(bytes, kExpectedBytes); at += kLineBytes) {
    fetch_to_write(slot + at);
  }
}

void ShmChannel::ring_others(Fence fence) const {
  if (fence == Fence::yes) {
    NodeBells::fence();
  }
  for (int other = 0; other < geometry_.ranks; ++other) {
    if (other != rank_) {
      bells_.ring(places_[static_cast<size_t>(other)]);
    }
  }
}

void ShmChannel::ring_calls() const {
  NodeBells::fence();
  for (int rank = 0; rank < geometry_.ranks; ++rank) {
    ring_bell(call_bell(rank), false);
  }
}

}  // namespace headrace::comm
