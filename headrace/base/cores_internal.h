// SPDX-License-Identifier: Apache-2.0
// The parts of usable_cores() that a test can point at a made-up machine.
#pragma once

#include <optional>

#include "headrace/base/file.h"

namespace headrace::base {

/// CPU quota of the control group that `membership` (text form of /proc/self/cgroup) names below
/// `root` (/sys/fs/cgroup), in cores, the least of the group and its ancestors; v1 and v2. nullopt
/// without a quota.
std::optional<double> cgroup_core_quota(const Path& membership, const Path& root);

}  // namespace headrace::base
