// SPDX-License-Identifier: Apache-2.0
// Offsets of docs/formats/board.md, as structs that lie in shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace headrace::base {

inline constexpr char kBoardMagic[] = "HRBOARD1";
inline constexpr uint64_t kBoardBytes = uint64_t{1} << 20;
inline constexpr uint32_t kBoardSlots = 1024;
inline constexpr uint32_t kBoardHistograms = 256;
inline constexpr uint64_t kBoardSlotBytes = 64;
inline constexpr uint64_t kBoardHistogramBytes = 576;  // 64 buckets, sum, count, rest of the line

struct BoardHeader {
  char magic[8];
  uint32_t header_bytes;
  uint32_t entry_bytes;
  uint64_t total_bytes;
  uint64_t catalogue_offset;
  uint64_t slots_offset;
  uint64_t histograms_offset;
  uint32_t entries_max;
  uint32_t slots;
  uint32_t histograms;
  std::atomic<uint32_t> entries;  // grows with release; pairs with the acquire in read_board
  int64_t pid;
  uint64_t start_ticks;
  char boot_id[40];
  char run[64];
  char host[64];
  int32_t rank;
  int32_t local_rank;
  uint32_t role;
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> heartbeats;
  std::atomic<uint64_t> heartbeat_ns;
};
static_assert(sizeof(BoardHeader) <= 4096 && offsetof(BoardHeader, pid) == 64);
static_assert(offsetof(BoardHeader, rank) == 248 && offsetof(BoardHeader, heartbeat_ns) == 272);

struct BoardEntry {
  char name[64];
  char labels[48];
  char unit[8];
  uint8_t type;
  uint8_t stripes;  // slots it takes: 1 or 8
  uint8_t reserved[2];
  uint32_t place;  // index of the slot or histogram
};
static_assert(sizeof(BoardEntry) == 128 && offsetof(BoardEntry, place) == 124);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace headrace::base
