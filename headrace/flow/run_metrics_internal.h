// SPDX-License-Identifier: Apache-2.0
// Feeds the board of an engine while it drives a run.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "headrace/base/board.h"
#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/process_metrics.h"
#include "headrace/base/result.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/worker_pool.h"

namespace headrace::flow {

/// Counts on a board of its own, or nowhere when none could be made: that is one warning, never an
/// error of the run. Not thread-safe.
class RunMetrics {
 public:
  /// `run_id` "" counts nowhere.
  explicit RunMetrics(const std::string& run_id);
  ~RunMetrics();
  RunMetrics(const RunMetrics&) = delete;
  RunMetrics& operator=(const RunMetrics&) = delete;

  bool on() const { return board_ != nullptr; }
  base::Histogram journal_sync_seconds() const;
  base::Histogram pool_start_seconds() const;

  void attempt_begins(const StartAttempt& start);
  void told(const Report& report);
  /// Work was taken over instead of done: it says nothing about the time that the rest takes.
  void reused() { rate_known_ = false; }
  /// Once a second; `at` is monotonic.
  bool due(base::Micros at) const { return on() && at >= update_at_; }
  base::Micros update_at() const { return update_at_; }
  void update(const Engine& engine, const WorkerPool& pool, base::Micros at);
  /// Write the last numbers to RUN/metrics.json.
  Result<void> keep(const base::Path& run_folder);

 private:
  base::Counter counter(const base::MetricInfo& info, std::string_view labels = {}) const;
  base::Gauge gauge(const base::MetricInfo& info, std::string_view labels = {}) const;
  void update_items(const Engine& engine, base::Micros at);
  void update_pool(const WorkerPool& pool);
  void fold_gone();

  std::unique_ptr<base::Board> board_;
  base::ProcessMetrics process_;
  base::Micros update_at_{0};
  EngineProgress counted_;
  std::array<base::Micros, kWorkerUses.size()> counted_times_ = {};
  bool rate_known_ = false;  ///< since the two below
  base::Micros rate_from_{0};
  int64_t rate_items_ = 0;
  std::array<base::Counter, 4> items_;     // succeeded, failed, skipped, cancelled
  std::array<base::Counter, 4> attempts_;  // by StartAttempt::Reason
  std::array<base::Gauge, 3> states_;      // queued, running, waiting_retry
  std::array<base::Gauge, kWorkerUses.size()> instances_;
  std::array<base::Counter, 3> worker_seconds_;  // busy, idle, starting
  base::Histogram item_seconds_;
  base::Histogram queue_seconds_;
  base::Gauge eta_seconds_;
  base::Gauge progress_ratio_;
};

}  // namespace headrace::flow
