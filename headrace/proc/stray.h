// SPDX-License-Identifier: Apache-2.0
// Processes that nobody owns any more: whoever started them was killed. Found by what stands in
// their environment.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/proc/child.h"

namespace headrace::proc {

/// "NAME=value" of a process, as they were when its program began.
using Environment = std::vector<std::string_view>;

/// Value of a variable; "" when it is not there.
HR_API std::string_view value_in(const Environment& environment, std::string_view name);

/// Kill (SIGKILL) every process of this user for which `is_stray` holds, but not this one, until
/// none is left; the number killed. `timeout` when some are still there after `limit`. Not found is
/// what began with an environment of its own (`env -i`).
HR_API Result<int64_t> kill_strays(const std::function<bool(const Environment&)>& is_stray,
                                   Millis limit);

}  // namespace headrace::proc
