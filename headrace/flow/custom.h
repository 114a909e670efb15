// SPDX-License-Identifier: Apache-2.0
// The activity type Custom: a shell command.
#pragma once

#include <cstdint>

#include "headrace/base/export.h"
#include "headrace/flow/activity.h"

namespace headrace::flow {

/// Whoever must know of a running command: the worker that it runs in.
class CommandMonitor {
 public:
  virtual ~CommandMonitor() = default;
  /// A command runs in process group `group`; 0: it has ended.
  virtual void command_group(int64_t group) = 0;
  /// Readable when there may be a request to stop.
  virtual int control_fd() const = 0;
  /// Take what is there; true when the command shall end.
  virtual bool stop_requested() = 0;
  virtual int64_t grace_ms() const = 0;
};

/// Custom with its properties (`command`, `folderPath`, `extendedProperties`, ...). `command` runs
/// as `/bin/sh -c` in a fresh folder that holds a copy of `folderPath` and activity.json. Output:
/// {"exitcode", "outputs": [log], "customOutput": JSON of the last line "##headrace-output {...}"}.
/// An exit code other than 0 fails with error code "2500". `monitor` may be null; it must outlive
/// the type.
HR_API ActivityType custom_type(CommandMonitor* monitor = nullptr);

}  // namespace headrace::flow
