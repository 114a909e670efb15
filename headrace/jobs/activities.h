// SPDX-License-Identifier: Apache-2.0
// The native activity types of the product: what `flow` may call in a warm worker.
#pragma once

#include "headrace/base/export.h"
#include "headrace/flow/activity.h"

namespace headrace::jobs {

/// HeadraceForecast (docs/flow.md lists its properties) with the operations
///   items     ids in a table                                   -> {"items": [...], "count": n}
///   train     scope "global": a model of all series            -> {"model": REF, ...}
///             scope "local": one item's model, chosen, registered and its forecast stored
///   evaluate  compare the run's forecasts with what came and with the naive methods, write
///             forecasts, metrics and the report                -> {"mase": ..., "report": PATH,
///             ...}
/// and NoOp, which returns its properties (for measuring the engine).
HR_API flow::ActivityTable activity_table();

}  // namespace headrace::jobs
