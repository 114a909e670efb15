// SPDX-License-Identifier: Apache-2.0
// The runs of a folder at a glance, and how a run is named on a command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/flow/run_state.h"

namespace headrace::flow {

/// What a run is at now. `stopped`: no engine drives it, and it can be resumed. `unknown`: its
/// journal is too long to read for a listing, and there is no summary. `unreadable`: its folder has
/// a journal that cannot be read.
enum class RunStanding : uint8_t {
  running,
  succeeded,
  failed,
  cancelled,
  stopped,
  unknown,
  unreadable
};
/// "running", "succeeded", ...
HR_API std::string_view standing_name(RunStanding standing);

struct RunSummary {
  base::Path folder;
  std::string run_id;
  std::string pipeline;  ///< name
  RunStanding standing = RunStanding::unreadable;
  base::Micros started{0};
  base::Micros last_event{0};  ///< the end when it has ended
  bool counted = false;        ///< false: the journal is long and was not read for the items
  int64_t items_total = 0;
  int64_t items_ended = 0;
  int64_t items_failed = 0;
  int64_t items_cancelled = 0;
  int64_t items_skipped = 0;  ///< never begun
  base::Micros idle{0};       ///< between start and last event, while no engine drove it
  std::string problem;        ///< of an unreadable one
};

/// Folders in `runs` that hold a journal, the one written to last first.
HR_API std::vector<base::Path> run_folders(const base::Path& runs = runs_folder());

/// One run. Quick: what its last engine left in RUN/summary.json counts as long as the journal has
/// not grown since; else the journal is replayed when it has at most `replay_bytes_max` bytes, and
/// of a longer one only the first record is read. Never fails: see `unreadable`.
HR_API RunSummary summarise_run(const base::Path& run_folder,
                                int64_t replay_bytes_max = int64_t{32} << 20);

/// How a run is named on a command line, quoted for a shell: its id when it lies in ./runs and
/// HEADRACE_RUNS names no other place, else its absolute folder, which works anywhere.
HR_API std::string run_reference(const base::Path& run_folder);

}  // namespace headrace::flow
