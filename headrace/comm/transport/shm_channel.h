// SPDX-License-Identifier: Apache-2.0
// The shared memory of one process set on one node: who writes what where, and how to wait for it.
//
// Every word has one writer. A rank announces operation i of the set in its flag line of parity i,
// puts small contributions beside it and large ones, chunk by chunk, into a ring of slots, and
// counts what it has done in its progress line; the others read. Counters only grow (they wrap at
// 2^32). docs/internals/comm.md has the layout and why reuse of lines and slots is safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "headrace/comm/algo/call.h"
#include "headrace/comm/transport/node_bells.h"

namespace headrace::comm {

inline constexpr size_t kInlineBytes = kLineBytes - sizeof(uint64_t);
inline constexpr int kNodeRanksMax = 1024;

/// Sizes of the parts of the memory; equal on all ranks.
struct ShmGeometry {
  int ranks = 1;
  size_t small_bytes = size_t{64} << 10;   ///< contributions up to here are put in one piece
  size_t chunk_bytes = size_t{128} << 10;  ///< at most, of the part of one rank
  uint32_t depth = 2;                      ///< chunks of a ring

  /// Chunks that keep a ring of all ranks within the second cache of a core, unless the sizes are
  /// given (rounded up to what the layout needs).
  static ShmGeometry choose(int ranks, size_t small_bytes = 0, size_t chunk_bytes = 0);
  size_t segment_bytes() const;
};

/// What a rank says of its operation, for those who find that theirs is another.
struct Announcement {
  void write(uint64_t number, Kind what, Op how, Dtype of, int from, uint64_t elements,
             Wire16 travels, std::string_view called) {
    sequence = number;
    count = elements;
    kind = static_cast<uint8_t>(what);
    op = static_cast<uint8_t>(how);
    dtype = static_cast<uint8_t>(of);
    wire16 = static_cast<uint8_t>(travels);
    root = from;
    const size_t letters = called.copy(name, sizeof name - 1);
    name[letters] = '\0';
  }

  uint64_t sequence;
  uint64_t count;
  uint8_t kind;
  uint8_t op;
  uint8_t dtype;
  uint8_t wire16;
  int32_t root;
  char name[104];  // cut off, with a zero at the end
};
static_assert(sizeof(Announcement) == 2 * kLineBytes);

/// First failure of a set. `state`: 0 none, 1 being written, 2 there.
struct ShmFault {
  std::atomic<uint32_t> state;
  int32_t rank;
  int32_t code;
  char text[1012];
};
static_assert(sizeof(ShmFault) == 1024);

struct alignas(kLineBytes) FlagLine {
  std::atomic<uint64_t> flag;  ///< fingerprint of the operation, with its number mixed in
  std::byte payload[kInlineBytes];
};

struct alignas(kLineBytes) ProgressLine {
  std::atomic<uint32_t> done;     ///< operations
  std::atomic<uint32_t> put;      ///< chunks of all operations: contribution is in the slot
  std::atomic<uint32_t> reduced;  ///< own part is reduced, its result in the slot
  std::atomic<uint32_t> taken;    ///< results of the others are copied out
  std::atomic<uint32_t> closed;   ///< not 0: this rank takes part no longer
  std::atomic<uint32_t> called;   ///< operations that this rank has called the others to
};

/// Whether a sleeper is seen for sure that has begun to sleep before it could see what was
/// published; without, it may sleep until its next look.
enum class Fence : uint8_t { no, yes };

/// View of the memory as one rank sees it. Owns nothing; any thread of the rank may read, one at a
/// time may write.
class ShmChannel {
 public:
  /// `places`: of each rank of the set among the ranks of the node.
  ShmChannel(std::byte* memory, const ShmGeometry& geometry, int rank, NodeBells bells,
             std::vector<int> places);

  /// How messages call the ranks: by their numbers in the world, of each rank here.
  void call_ranks(std::vector<int> world_ranks) { world_ranks_ = std::move(world_ranks); }
  int told(int rank) const {
    return world_ranks_.empty() ? rank : world_ranks_[static_cast<size_t>(rank)];
  }

  int rank() const { return rank_; }
  int ranks() const { return geometry_.ranks; }
  const ShmGeometry& geometry() const { return geometry_; }

  ShmFault& fault() const { return *reinterpret_cast<ShmFault*>(memory_); }
  FlagLine& line(int rank, uint64_t sequence) const {
    return reinterpret_cast<FlagLine*>(of_rank(rank))[sequence & 1];
  }
  Announcement& announcement(int rank, uint64_t sequence) const {
    return reinterpret_cast<Announcement*>(of_rank(rank) + kAnnouncementsAt)[sequence & 1];
  }
  ProgressLine& progress(int rank) const {
    return *reinterpret_cast<ProgressLine*>(of_rank(rank) + kProgressAt);
  }
  ProgressLine& mine() const { return progress(rank_); }
  /// Where threads of `rank` sleep that wait for others to begin an operation of this set.
  BellLine& call_bell(int rank) const {
    return *reinterpret_cast<BellLine*>(of_rank(rank) + kCallBellAt);
  }
  std::byte* small_slot(int rank, uint64_t sequence) const {
    return of_rank(rank) + kPageBytes + (sequence & 1) * geometry_.small_bytes;
  }
  /// Sub-slot `part` of chunk `chunk` (a running number) of `rank`: for another rank's part its
  /// contribution, for its own part the result.
  std::byte* chunk_slot(int rank, uint32_t chunk, int part) const;

  /// This rank will soon write the small slot of the next operation as far as `bytes`: have the
  /// core fetch it from where it was read last while there is time.
  void expect_slot(uint64_t sequence, size_t bytes) const;

  /// Wake whoever of the others sleeps, after something was published.
  void ring_others(Fence fence = Fence::yes) const;
  bool shares_core_with(int rank) const {
    return rank >= 0 && bells_.shares_core_with(places_[static_cast<size_t>(rank)]);
  }
  /// Wake all that wait for an operation to begin (call_bell).
  void ring_calls() const;
  const NodeBells& bells() const { return bells_; }

  static constexpr size_t kPageBytes = 4096;

 private:
  // Of a rank: two flag lines, progress, a bell, two announcements, then slots from a page of their
  // own.
  static constexpr size_t kProgressAt = 2 * sizeof(FlagLine);
  static constexpr size_t kCallBellAt = kProgressAt + sizeof(ProgressLine);
  static constexpr size_t kAnnouncementsAt = kCallBellAt + sizeof(BellLine);
  static_assert(kAnnouncementsAt + 2 * sizeof(Announcement) <= kPageBytes);

  std::byte* of_rank(int rank) const {
    return memory_ + header_bytes_ + rank_bytes_ * size_t(rank);
  }

  std::byte* memory_;
  ShmGeometry geometry_;
  int rank_;
  size_t header_bytes_;
  size_t rank_bytes_;
  NodeBells bells_;
  std::vector<int> places_;
  std::vector<int> world_ranks_;
};

}  // namespace headrace::comm
