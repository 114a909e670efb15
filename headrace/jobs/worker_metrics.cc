// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/worker_metrics.h"

#include <chrono>

#include "headrace/base/metric_names.h"

namespace headrace::jobs {

WorkerMetrics::WorkerMetrics(base::Board* board) {
  if (board == nullptr) {
    return;
  }
  read_bytes_ = board->counter(base::metric("lake.read_bytes"));
  rows_ = board->counter(base::metric("lake.rows"));
  skipped_row_groups_ = board->counter(base::metric("lake.skipped_row_groups"));
  ok_ = board->counter(base::metric("forecast.series"), "result=\"ok\"");
  fallback_ = board->counter(base::metric("forecast.series"), "result=\"fallback\"");
  failed_ = board->counter(base::metric("forecast.series"), "result=\"failed\"");
  train_seconds_ = board->histogram(base::metric("forecast.train_seconds"));
}

void WorkerMetrics::count_read(const SeriesTable& table) {
  read_bytes_.add(static_cast<uint64_t>(table.bytes_read));
  skipped_row_groups_.add(static_cast<uint64_t>(table.row_groups_total - table.row_groups_read));
  for (const forecast::Series& series : table.set.series) {
    rows_.add(static_cast<uint64_t>(series.length()));
  }
}

void WorkerMetrics::count_trained(const LocalOutcome& outcome) {
  (outcome.model.method == forecast::Method::deepar ? ok_ : fallback_).add();
  train_seconds_.observe(std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::duration<double>(outcome.seconds)));
}

}  // namespace headrace::jobs
