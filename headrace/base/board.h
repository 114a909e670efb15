// SPDX-License-Identifier: Apache-2.0
// The metrics board: counters, gauges and histograms of a process on one shared-memory page that
// any process of the user can read at any time. Layout: docs/formats/board.md.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::base {

enum class MetricType : uint8_t { counter = 1, gauge = 2, histogram = 3 };

/// What a metric is called and means. `name` is "plane.noun", at most 63 bytes; `unit` is
/// "seconds", "bytes", "ratio" or "" (a count), at most 7 bytes. A counter of seconds holds
/// nanoseconds, a histogram of seconds counts in microseconds.
struct MetricInfo {
  std::string_view name;
  MetricType type;
  std::string_view unit;
  std::string_view help;
};

/// Grows only. Copyable; valid as long as its board (a default one counts nowhere). `add` is one
/// relaxed addition: no lock, no system call.
class HR_API Counter {
 public:
  Counter();
  explicit Counter(std::atomic<uint64_t>* first, uint32_t stripes = 1)
      : first_(first), mask_(stripes - 1) {}
  void add(uint64_t count = 1) { cell()->fetch_add(count, std::memory_order_relaxed); }
  void add(std::chrono::nanoseconds time) { add(static_cast<uint64_t>(time.count())); }

 private:
  std::atomic<uint64_t>* cell() const { return mask_ == 0 ? first_ : first_ + stripe() * 8; }
  uint32_t stripe() const;

  std::atomic<uint64_t>* first_;
  uint32_t mask_ = 0;
};

/// The last value set; absent until then. NaN makes it absent again.
class HR_API Gauge {
 public:
  Gauge();
  explicit Gauge(std::atomic<uint64_t>* cell) : cell_(cell) {}
  void set(double value);
  void raise(double value);  ///< keep the maximum

 private:
  std::atomic<uint64_t>* cell_;
};

/// 64 buckets, two to an octave, from 1 step up (a microsecond, a byte); any two can be added.
class HR_API Histogram {
 public:
  static constexpr int kBuckets = 64;
  Histogram();
  explicit Histogram(std::atomic<uint64_t>* cells) : cells_(cells) {}
  void observe(uint64_t steps);
  void observe(std::chrono::microseconds time) {
    observe(static_cast<uint64_t>(std::max<int64_t>(0, time.count())));
  }
  /// Add the buckets and the sum of another one.
  void add(std::span<const uint64_t, kBuckets> buckets, uint64_t sum);
  static int bucket_of(uint64_t steps);
  /// Values in bucket `index` are below this many steps; the last bucket has no bound (infinity).
  static double upper_bound(int index);

 private:
  std::atomic<uint64_t>* cells_;  // buckets, then sum, then count
};

enum class BoardRole : uint8_t { process, rank, launcher, instance, loader_child, agent, driver };
enum class BoardState : uint8_t { starting, running, waiting, closing };

struct BoardOptions {
  /// Folder for the board; empty: /dev/shm/headrace-UID/RUN, or below the folder for temporary
  /// files when /dev/shm is missing or has less than 16 MiB.
  Path folder;
  std::string run = "none";  ///< run id, at most 63 bytes
  int rank = -1;
  int local_rank = -1;
  BoardRole role = BoardRole::process;
  bool keep = false;  ///< leave the file when the board goes, for whoever folds it
};

/// This process's board. Thread-safe. After fork() without exec the child's handles count nowhere.
class HR_API Board {
 public:
  static Result<std::unique_ptr<Board>> create(const BoardOptions& options);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// Handle of a metric; the same (name, labels) gives the same place. `labels` is `key="value"`
  /// pairs joined by commas, at most 47 bytes, values from closed sets. When the board is full, or
  /// the name is taken by another type, the handle counts nowhere, `watch.overflow` grows and one
  /// warning is logged: counting never fails. `striped` spreads a hot counter over 8 cache lines.
  Counter counter(const MetricInfo& info, std::string_view labels = {}, bool striped = false);
  Gauge gauge(const MetricInfo& info, std::string_view labels = {});
  Histogram histogram(const MetricInfo& info, std::string_view labels = {});

  void set_state(BoardState state);
  void beat();  ///< the process is alive: heartbeat counter and time
  const Path& path() const;

 private:
  struct State;
  explicit Board(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// What a board says at one moment.
struct BoardSnapshot {
  struct Metric {
    std::string name;
    std::string unit;
    std::string labels;
    MetricType type = MetricType::counter;
    uint64_t count = 0;  ///< counter value; number of observations of a histogram
    double value = 0.0;  ///< gauge value (absent gauges are left out); sum of a histogram in steps
    std::array<uint64_t, Histogram::kBuckets> buckets = {};
  };
  int64_t pid = -1;
  uint64_t start_ticks = 0;  ///< with the pid and the boot id: which process that was
  std::string boot_id;
  std::string run;
  std::string host;
  int rank = -1;
  int local_rank = -1;
  BoardRole role = BoardRole::process;
  BoardState state = BoardState::starting;
  uint64_t heartbeats = 0;
  uint64_t heartbeat_ns = 0;  ///< CLOCK_MONOTONIC of the last one
  std::vector<Metric> metrics;
};

/// Read a board from its bytes (aligned to 8), which may be alive or damaged: `corrupt` names what
/// is out of bounds. `name` is for messages.
HR_API Result<BoardSnapshot> read_board(std::span<const std::byte> bytes, std::string_view name);
/// Read the board in a file.
HR_API Result<BoardSnapshot> read_board_file(const Path& path);

}  // namespace headrace::base
