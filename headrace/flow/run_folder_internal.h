// SPDX-License-Identifier: Apache-2.0
// What lies in a run's folder beside the journal: the lock of the engine that drives it, requests
// to cancel, the output of workers, its summary.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/file_lock.h"
#include "headrace/base/result.h"
#include "headrace/flow/journal.h"

namespace headrace::flow {

/// Take the right to drive the run; `busy` names who has it.
Result<base::FileLock> lock_run(const base::Path& run_folder, std::string_view command);
/// Who drives the run now; nullopt: nobody.
std::optional<std::string> lock_holder(const base::Path& run_folder);

/// A file that the engine watches for.
base::Path cancel_path(const base::Path& run_folder);
/// Ask the engine to cancel the run, or one item. Several requests before the engine looks add up.
Result<void> request_cancel(const base::Path& run_folder, std::string_view item);
/// Forget requests that nobody has taken.
void drop_cancel_requests(const base::Path& run_folder);
/// Requests since the last call: keys of items; an empty one means the run.
std::vector<std::string> take_cancel_requests(const base::Path& run_folder);

/// Leave RUN/summary.json, which `summarise_run` reads in place of the journal that it belongs to:
/// the journal as it is now, all of it on the disk, and what its replay would come to.
Result<void> keep_summary(const base::Path& run_folder, const RunHeader& header,
                          const Engine& engine, base::Micros last_event);

/// `invalid_argument` when the folder has no journal and holds what is no part of a run that did
/// not begin, but for `document`, the pipeline: it is somebody else's.
Result<void> check_unused(const base::Path& run_folder, const base::Path& document);

/// Where the worker of a slot writes until its attempt ends.
base::Path worker_output_path(const base::Path& run_folder, int slot);
/// What an attempt may leave of its output.
struct LogPrivacy {
  bool secure_output = false;  ///< one line that says so is all
  Secrets secrets;             ///< "***"
};

/// Move what is in `output` to an attempt's log, then empty it; nothing happens when it is empty.
/// Of more than 16 MiB the head and the tail are kept. False: nothing was there.
Result<bool> move_output_to_log(int output_fd, const base::Path& log, const LogPrivacy& privacy);

}  // namespace headrace::flow
