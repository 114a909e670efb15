// SPDX-License-Identifier: Apache-2.0
// The activity type Custom: a shell command.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/flow/activity.h"
#include "headrace/flow/pipeline.h"
#include "headrace/proc/child.h"

namespace headrace::flow {

/// Whoever must know of a running command: the worker that it runs in.
class CommandMonitor {
 public:
  virtual ~CommandMonitor() = default;
  /// Where the group of a command is told before anything of the command runs.
  virtual proc::GroupNotice* group_notice() = 0;
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

/// Names of the variables that a command with these properties is given, beside its environment.
std::vector<std::string> command_variables(const Json& type_properties);

/// An attempt that was cut short.
struct CutShort {
  const Activity* activity = nullptr;
  std::string item_key;
  int attempt = 1;
};

/// Kill what commands of these attempts have left running: their worker was killed before it could.
/// The number of processes that were there still, perhaps dying already; `timeout` (names them)
/// when some are after `limit`. Attempts of other activities are passed over. What began with an
/// environment of its own is not found. What they were called with (activity.json) goes from their
/// folders.
Result<int64_t> kill_left_commands(const std::string& run_id, const base::Path& run_folder,
                                   std::vector<CutShort> attempts, proc::Millis limit);

}  // namespace headrace::flow
