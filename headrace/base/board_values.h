// SPDX-License-Identifier: Apache-2.0
// What a board says, for people: names, and times in seconds.
#pragma once

#include "headrace/base/board.h"
#include "headrace/base/export.h"
#include "headrace/base/json.h"

namespace headrace::base {

/// {"flow.items{status=\"succeeded\"}": 12, ...}. A histogram is {"count", "sum", "p50", "p95"};
/// quantiles are exact to their bucket, at worst half too large.
HR_API Json board_values(const BoardSnapshot& board);

}  // namespace headrace::base
