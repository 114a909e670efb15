// SPDX-License-Identifier: Apache-2.0
// The metrics that something counts, each with its meaning: one table, so that docs and exporters
// know them all.
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
    {"flow.items", MetricType::counter, "", "items that ended, by status"},
    {"flow.items_state", MetricType::gauge, "", "items by state: queued, running, waiting_retry"},
    {"flow.item_seconds", MetricType::histogram, "seconds", "time of one item that began"},
    {"flow.queue_seconds", MetricType::histogram, "seconds", "time an attempt waited for a worker"},
    {"flow.attempts", MetricType::counter, "", "attempts: first, retry, lost, resumed"},
    {"flow.eta_seconds", MetricType::gauge, "seconds", "expected time to the end"},
    {"flow.progress_ratio", MetricType::gauge, "ratio", "share of items that ended"},
    {"flow.pool_instances", MetricType::gauge, "", "workers: starting, idle, busy, draining"},
    {"flow.pool_start_seconds", MetricType::histogram, "seconds", "until a new worker takes calls"},
    {"flow.worker_seconds", MetricType::counter, "seconds", "time of workers: busy, idle, starting"},
    {"flow.journal_sync_seconds", MetricType::histogram, "seconds", "one commit of the journal"},
    {"comm.ops", MetricType::counter, "", "collectives that ended without an error, by op"},
    {"comm.bytes", MetricType::counter, "bytes", "of buffers: tx put in, rx got; by transport"},
    {"comm.op_seconds", MetricType::histogram, "seconds", "of those that did not end at once"},
    {"comm.wait_seconds", MetricType::counter, "seconds", "asleep for other ranks, by op"},
    {"comm.peer_wait_seconds", MetricType::counter, "seconds", "the same, by rank waited for"},
    {"comm.fused_tensors", MetricType::counter, "", "tensors that shared an operation"},
    {"comm.errors", MetricType::counter, "", "process sets that failed, by code"},
    {"comm.generation", MetricType::gauge, "", "membership that the process is in"},
    {"lake.read_bytes", MetricType::counter, "bytes", "read of tables"},
    {"lake.rows", MetricType::counter, "", "rows of tables that became series"},
    {"lake.skipped_row_groups", MetricType::counter, "", "row groups that statistics left unread"},
    {"forecast.series", MetricType::counter, "", "items forecast: ok, fallback, failed"},
    {"forecast.train_seconds", MetricType::histogram, "seconds", "to train, choose and forecast one"},
    {"registry.versions", MetricType::counter, "", "versions registered"},
    {"registry.bytes", MetricType::counter, "bytes", "artifacts written"},
    {"registry.commit_seconds", MetricType::histogram, "seconds", "one transaction"},
    {"registry.lock_wait_seconds", MetricType::histogram, "seconds", "wait for the writer's lock"},
    {"watch.overflow", MetricType::counter, "", "metrics that found no place on their board"},
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
