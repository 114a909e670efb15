// SPDX-License-Identifier: Apache-2.0
// Whether the kernel has killed for lack of memory: counters of the control group and of the
// machine.
#pragma once

#include <cstdint>

#include "headrace/base/file.h"

namespace headrace::proc {

/// Sum of "oom_kill" counts: of the memory control group that `membership` (text form of
/// /proc/self/cgroup) names below `root` (v2 memory.events, v1 memory.oom_control) and of the
/// machine (`vmstat`, /proc/vmstat). 0 where nothing can be read. It only grows.
int64_t out_of_memory_kills(const base::Path& membership = "/proc/self/cgroup",
                            const base::Path& root = "/sys/fs/cgroup",
                            const base::Path& vmstat = "/proc/vmstat");

}  // namespace headrace::proc
