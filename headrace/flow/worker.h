// SPDX-License-Identifier: Apache-2.0
// A warm worker process: takes one call after the other from the engine.
#pragma once

#include <functional>

#include "headrace/base/export.h"
#include "headrace/flow/activity.h"

namespace headrace::flow {

/// For tests of what happens when somebody dies at the worst moment.
struct WorkerFaults {
  /// Called in the worker when a command has begun and the engine has not been told.
  std::function<void()> command_began;
};

/// Serve calls that come in on the socket `fd` until the engine closes it; returns the exit code.
/// Standard output and error must be the same appending file: after each call what is in it becomes
/// the attempt's log. When the engine dies the process ends at once, and with it a running command.
HR_API int serve_worker(int fd, const ActivityTable& types, WorkerFaults faults = {});

}  // namespace headrace::flow
