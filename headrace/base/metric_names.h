// SPDX-License-Identifier: Apache-2.0
// The metrics of the planes that exist, each with its meaning: one table, so that docs and
// exporters know them all.
#pragma once

#include "headrace/base/board.h"

namespace headrace::base {

// clang-format off
inline constexpr MetricInfo kMetrics[] = {
    {"process.cpu_seconds", MetricType::counter, "seconds", "CPU time, user and system"},
    {"process.resident_bytes", MetricType::gauge, "bytes", "resident memory"},
    {"process.threads", MetricType::gauge, "", "threads"},
    {"process.open_fds", MetricType::gauge, "", "open descriptors"},
    {"process.start_time_seconds", MetricType::gauge, "seconds", "start, since the epoch"},
    {"process.major_faults", MetricType::counter, "", "page faults that read from disk"},
    {"flow.items", MetricType::counter, "", "finished items, by status"},
    {"flow.items_state", MetricType::gauge, "", "items in a state: queued, running, waiting_retry"},
    {"flow.item_seconds", MetricType::histogram, "seconds", "time of one item"},
    {"flow.queue_seconds", MetricType::histogram, "seconds", "time an item waited for an instance"},
    {"flow.attempts", MetricType::counter, "", "attempts, by reason"},
    {"flow.eta_seconds", MetricType::gauge, "seconds", "expected time to the end"},
    {"flow.progress_ratio", MetricType::gauge, "ratio", "share of items that are finished"},
    {"flow.pool_instances", MetricType::gauge, "", "instances of a pool, by state"},
    {"flow.pool_start_seconds", MetricType::histogram, "seconds", "start of an instance"},
    {"flow.worker_seconds", MetricType::counter, "seconds", "time of instances, by use"},
    {"flow.journal_sync_seconds", MetricType::histogram, "seconds", "one commit of the journal"},
    {"flow.cost_units", MetricType::counter, "", "cost by the price table"},
    {"forecast.series", MetricType::counter, "", "series trained, by result"},
    {"forecast.train_seconds", MetricType::histogram, "seconds", "training of one model"},
    {"forecast.steps", MetricType::counter, "", "optimiser steps"},
    {"forecast.mase", MetricType::histogram, "ratio", "MASE of a series in thousandths"},
    {"forecast.skill_ratio", MetricType::gauge, "ratio", "share better than seasonal naive"},
    {"forecast.predict_rows", MetricType::counter, "", "rows of forecasts written"},
    {"registry.versions", MetricType::counter, "", "versions registered"},
    {"registry.bytes", MetricType::counter, "bytes", "artifacts written"},
    {"registry.commit_seconds", MetricType::histogram, "seconds", "one transaction"},
    {"registry.lock_wait_seconds", MetricType::histogram, "seconds", "wait for the writer's lock"},
    {"registry.push_pending", MetricType::gauge, "", "versions not yet pushed to MLflow"},
    {"registry.push_failed", MetricType::gauge, "", "versions that could not be pushed"},
};
// clang-format on

/// Never defined: reaching it makes `metric` no constant, so that a wrong name does not compile.
MetricInfo no_such_metric();

/// Entry of a name in the table.
consteval MetricInfo metric(std::string_view name) {
  for (const MetricInfo& info : kMetrics) {
    if (info.name == name) {
      return info;
    }
  }
  return no_such_metric();
}

}  // namespace headrace::base
