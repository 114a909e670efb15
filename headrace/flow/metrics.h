// SPDX-License-Identifier: Apache-2.0
// The numbers of a run: flow.* and process.* of its engine, and what its workers count.
#pragma once

#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"

namespace headrace::flow {

/// {"at": UTC, "live": bool, "values": {"flow.items{status=\"succeeded\"}": 12, ...}}: of a run
/// that is driven on this machine what its boards say now, else what its last engine left in
/// RUN/metrics.json; null when there is neither. Times are in seconds. A histogram is {"count",
/// "sum", "p50", "p95"}; quantiles are exact to their bucket, at worst half too large.
HR_API Json run_metrics(const base::Path& run_folder, std::string_view run_id);

}  // namespace headrace::flow
