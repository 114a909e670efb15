// SPDX-License-Identifier: Apache-2.0
// Run pipelines: the thin driver that owns clock, journal and workers around the pure engine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/run_state.h"

namespace headrace::flow {

/// How a run is driven; not part of what it is.
struct RunOptions {
  base::Path folder;  ///< the run's; made by start_run
  int slots = 0;      ///< worker processes at most, to kSlotsMax; 0: the cores this process may use
  /// argv of a worker process; "{fd}" stands for the number of its socket. It must call
  /// serve_worker.
  std::vector<std::string> worker_command = {"/proc/self/exe", "flow", "worker", "--fd", "{fd}"};
  std::chrono::milliseconds grace{10'000};  ///< between SIGTERM and SIGKILL of a stopped attempt
  /// How long a slot may fail to start its worker before the run ends, resumable, with the cause.
  std::chrono::milliseconds worker_patience{60'000};
  bool metrics = true;    ///< count on a board in shared memory, and leave RUN/metrics.json
  int interrupt_fd = -1;  ///< readable: stop at once and leave a run that can be resumed
  /// What has ended and is durable, in order.
  std::function<void(const Report& report)> on_report;
  /// At most ten times a second.
  std::function<void(const EngineProgress& progress)> on_progress;
};

struct RunRequest {
  std::shared_ptr<const Pipeline> pipeline;
  base::Path pipeline_path;         ///< of its document, absolute or relative
  Json arguments = Json::object();  ///< of its parameters
  bool shared_variables = false;    ///< as Data Factory: SetVariable in parallel items races
  FailureBudget budget = {};        ///< of every ForEach without its own
  bool circuit_breaker = true;      ///< see EngineOptions
  std::string run_id;               ///< "" = a new GUID
};

struct ResumeRequest {
  bool retry_failed = false;    ///< run again what failed and what came after it; what else
                                ///< succeeded with equal inputs is kept
  bool accept_changes = false;  ///< go on with the changed pipeline file
  bool circuit_breaker = true;  ///< false: from here on none; true: as the run was started
};

struct RunResult {
  std::string run_id;
  Status status = Status::in_progress;  ///< not final when interrupted
  std::optional<ActivityError> error;
  bool interrupted = false;
  Json return_value;
  EngineProgress progress;
};

/// May a run begin in this folder? `already_exists`: it holds one; `invalid_argument`: it holds
/// what is no part of a run, but for `document`, the pipeline. Writes nothing.
HR_API Result<void> check_folder(const base::Path& run_folder, const base::Path& document = {});

/// Start a run and drive it to its end, or until interrupted. Errors: `invalid_argument` for its
/// arguments, those of check_folder(), `busy`, and what the disk says
/// (`out_of_space`: the run can be resumed later).
HR_API Result<RunResult> start_run(const RunRequest& request, const RunOptions& options);

/// Go on with a run that ended early. Items that succeeded are not run again. A run that has ended
/// is returned as it is, but for `retry_failed`. `mismatch`: the pipeline file changed.
HR_API Result<RunResult> resume_run(const ResumeRequest& request, const RunOptions& options);

/// Ask the engine that drives the run to cancel it (or one item, by key, that runs or is queued)
/// and wait until the journal says so. `not_found`: nobody drives it, no loop has such an item, or
/// it ended otherwise before; `timeout`. A request that failed is taken back.
HR_API Result<void> cancel_run(const base::Path& run_folder, std::string_view item,
                               std::chrono::milliseconds timeout);

/// A random GUID.
HR_API std::string new_run_id();

}  // namespace headrace::flow
