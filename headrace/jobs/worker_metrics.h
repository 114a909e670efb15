// SPDX-License-Identifier: Apache-2.0
// What a worker counts of the items it forecasts, on its board.
#pragma once

#include "headrace/base/board.h"
#include "headrace/jobs/local_plan.h"
#include "headrace/jobs/series_table.h"

namespace headrace::jobs {

class WorkerMetrics {
 public:
  /// `board` may be null: then nothing is counted.
  explicit WorkerMetrics(base::Board* board);

  void count_read(const SeriesTable& table);
  void count_trained(const LocalOutcome& outcome);
  void count_failed() { failed_.add(); }

 private:
  base::Counter read_bytes_;
  base::Counter rows_;
  base::Counter skipped_row_groups_;
  base::Counter ok_;
  base::Counter fallback_;
  base::Counter failed_;
  base::Histogram train_seconds_;
};

}  // namespace headrace::jobs
