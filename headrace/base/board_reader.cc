// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "headrace/base/board.h"
#include "headrace/base/board_layout_internal.h"

namespace headrace::base {

namespace {

/// Text of a fixed field, which may lack its end.
template <size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}

/// `count` things of `each` bytes at `offset` lie inside `total`, aligned to 8.
bool inside(uint64_t offset, uint64_t count, uint64_t each, uint64_t total) {
  return offset % 8 == 0 && offset <= total && count <= (total - offset) / each;
}

Result<void> check_header(const BoardHeader& head, uint64_t total, std::string_view name) {
  const auto bad = [&](const std::string& what) {
    return Error{Errc::corrupt,
                 std::string(name) + " is no metrics board or a damaged one: " + what};
  };
  if (std::memcmp(head.magic, kBoardMagic, sizeof head.magic) != 0) {
    return bad("it does not begin with HRBOARD1");
  }
  if (head.header_bytes < sizeof(BoardHeader) || head.entry_bytes != sizeof(BoardEntry) ||
      head.total_bytes != total) {
    return bad("its sizes are not those of this version");
  }
  if (!inside(head.catalogue_offset, head.entries_max, sizeof(BoardEntry), total) ||
      !inside(head.slots_offset, head.slots, kBoardSlotBytes, total) ||
      !inside(head.histograms_offset, head.histograms, kBoardHistogramBytes, total)) {
    return bad("an area reaches beyond its end");
  }
  return {};
}

/// One metric; false when it is an absent gauge.
Result<bool> read_metric(const BoardHeader& head, std::span<const std::byte> bytes,
                         const BoardEntry& entry, BoardSnapshot::Metric* metric) {
  metric->name = text_of(entry.name);
  metric->labels = text_of(entry.labels);
  metric->unit = text_of(entry.unit);
  metric->type = static_cast<MetricType>(entry.type);
  const bool wide = metric->type == MetricType::histogram;
  const uint32_t places = wide ? head.histograms : head.slots;
  const bool known =
      entry.type >= 1 && entry.type <= 3 && (entry.stripes == 1 || entry.stripes == 8);
  if (!known || entry.place >= places || entry.stripes > places - entry.place) {
    return Error{Errc::corrupt, "metric \"" + metric->name + "\" has no place on the board"};
  }
  const uint64_t offset = wide ? head.histograms_offset + entry.place * kBoardHistogramBytes
                               : head.slots_offset + entry.place * kBoardSlotBytes;
  const auto* cells = reinterpret_cast<const std::atomic<uint64_t>*>(bytes.data() + offset);
  const auto load = [cells](size_t i) { return cells[i].load(std::memory_order_relaxed); };
  if (wide) {
    for (size_t i = 0; i < metric->buckets.size(); ++i) {
      metric->buckets[i] = load(i);
      metric->count += metric->buckets[i];  // so that the buckets always add up to the count
    }
    metric->value = static_cast<double>(load(Histogram::kBuckets));
  } else if (metric->type == MetricType::gauge) {
    metric->value = std::bit_cast<double>(load(0));
    return !std::isnan(metric->value);
  } else {
    for (size_t stripe = 0; stripe < entry.stripes; ++stripe) {
      metric->count += load(stripe * (kBoardSlotBytes / sizeof(uint64_t)));
    }
  }
  return true;
}

}  // namespace

Result<BoardSnapshot> read_board(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < sizeof(BoardHeader)) {
    return Error{Errc::corrupt, std::string(name) + " is no metrics board: it has only " +
                                    std::to_string(bytes.size()) + " bytes"};
  }
  const auto& head = *reinterpret_cast<const BoardHeader*>(bytes.data());
  HR_TRY(check_header(head, bytes.size(), name));
  BoardSnapshot out;
  out.pid = head.pid;
  out.start_ticks = head.start_ticks;
  out.boot_id = text_of(head.boot_id);
  out.run = text_of(head.run);
  out.host = text_of(head.host);
  out.rank = head.rank;
  out.local_rank = head.local_rank;
  out.role = static_cast<BoardRole>(head.role);
  out.state = static_cast<BoardState>(head.state.load(std::memory_order_relaxed));
  out.heartbeats = head.heartbeats.load(std::memory_order_relaxed);
  out.heartbeat_ns = head.heartbeat_ns.load(std::memory_order_relaxed);
  const uint32_t count = head.entries.load(std::memory_order_acquire);  // pairs with find_or_add
  if (count > head.entries_max) {
    return Error{Errc::corrupt, std::string(name) + ": " + std::to_string(count) +
                                    " metrics in a catalogue of " +
                                    std::to_string(head.entries_max)};
  }
  const auto* entries = reinterpret_cast<const BoardEntry*>(bytes.data() + head.catalogue_offset);
  for (uint32_t i = 0; i < count; ++i) {
    BoardSnapshot::Metric metric;
    HR_TRY(const bool present, read_metric(head, bytes, entries[i], &metric), std::string(name));
    if (present) {
      out.metrics.push_back(std::move(metric));
    }
  }
  return out;
}

Result<BoardSnapshot> read_board_file(const Path& path) {
  HR_TRY(const auto fd, open_file(path, O_RDONLY));
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0 || info.st_size <= 0 || info.st_size > (int64_t{1} << 30)) {
    return Error{Errc::corrupt, path.string() + " has not the size of a metrics board"};
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* pages = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (pages == MAP_FAILED) {
    return errno_error(errno, "reading " + path.string());
  }
  Result<BoardSnapshot> out =
      read_board({static_cast<const std::byte*>(pages), size}, path.string());
  ::munmap(pages, size);
  return out;
}

}  // namespace headrace::base
