// SPDX-License-Identifier: Apache-2.0
// What a run's folder tells about it: status, activities, items, outputs and errors, read without
// touching the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"

namespace headrace::flow {

/// Status of runs, activities and items, with Data Factory's spelling (`status_name`).
enum class Status : uint8_t {
  queued,
  in_progress,
  succeeded,
  failed,
  skipped,
  canceling,
  cancelled
};

/// "Queued", "InProgress", "Succeeded", "Failed", "Skipped", "Canceling", "Cancelled".
HR_API std::string_view status_name(Status status);
/// Succeeded, Failed, Skipped or Cancelled.
HR_API bool is_final(Status status);

/// Why an activity, an item or a run failed.
struct ActivityError {
  std::string code;                        ///< "2500", "InvalidTemplate", "invalid_argument", ...
  std::string message;                     ///< what, where, with which values
  std::string failure_type = "UserError";  ///< or "SystemError"
  std::string target;                      ///< name of the activity that failed first
  bool fails_again = false;                ///< the same inputs fail the same way
};

/// While no engine drove a run: from its last event to its being taken up again.
struct Pause {
  base::Micros begin{0};
  base::Micros end{0};  ///< 0: not yet
};
using Pauses = std::vector<Pause>;
/// How much of the time between `from` and `to` lies in pauses.
HR_API base::Micros paused_within(const Pauses& pauses, base::Micros from, base::Micros to);

/// One ForEach item. Times are since the epoch; absent when it has not come to that.
struct ItemState {
  std::string key;  ///< names the item's folder, see item_folder_name
  int64_t index = 0;
  Status status = Status::queued;
  int attempts = 0;  ///< of the activity that needed most; 1 = everything at the first try
  std::optional<base::Micros> started;
  std::optional<base::Micros> ended;
  double cpu_seconds = 0.0;    ///< user + system of all its attempts
  int64_t peak_rss_bytes = 0;  ///< largest resident set of a process that worked on it
  Json outputs;                ///< object: name of an inner activity -> its output
  std::optional<ActivityError> error;
  std::string log;  ///< log of the last attempt, relative to the run folder; the file exists only
                    ///< when something was printed

  /// Seconds between `started` and `ended` (or `now`) without pauses; 0 when not started.
  double duration_seconds(base::Micros now, const Pauses& pauses = {}) const {
    const base::Micros end = ended.value_or(now);
    return started ? std::chrono::duration<double>(end - *started -
                                                   paused_within(pauses, *started, end))
                         .count()
                   : 0.0;
  }
};

/// One activity of the pipeline. Activities inside If, Switch and Until follow their container;
/// activities inside a ForEach are told per item.
struct ActivityState {
  std::string name;
  std::string type;
  std::string path;  ///< "train", "gate/promote", "poll[3]/get": the way through its containers
  Status status = Status::queued;
  int attempts = 0;
  std::optional<base::Micros> started;
  std::optional<base::Micros> ended;
  Json output;  ///< what expressions see under `.output`; "***" when secure
  std::optional<ActivityError> error;
  std::vector<ItemState> items;  ///< of a ForEach, by index; empty until its items are known
};

struct RunState {
  std::string run_id;
  std::string pipeline;      ///< name
  base::Path pipeline_path;  ///< the document it was started from
  Json parameters;           ///< object, after defaults and coercion; secure values are "***"
  Json variables;            ///< object
  Json return_value;         ///< pipelineReturnValue, null when never set
  Status status = Status::queued;
  base::Micros started{0};
  std::optional<base::Micros> ended;
  base::Micros last_event{0};  ///< when the journal was last written to
  int slots = 0;
  int resumes = 0;                       ///< how often it was continued
  Pauses pauses;                         ///< between these
  std::optional<std::string> driven_by;  ///< the engine that holds the run now; absent: nobody
  std::optional<ActivityError> error;
  std::vector<ActivityState> activities;

  /// Seconds from one time to another in which an engine drove the run.
  double worked_seconds(base::Micros from, base::Micros to) const {
    return std::chrono::duration<double>(to - from - paused_within(pauses, from, to)).count();
  }

  /// Activity by path; nullptr when absent.
  const ActivityState* find(std::string_view path) const {
    for (const ActivityState& activity : activities) {
      if (activity.path == path) {
        return &activity;
      }
    }
    return nullptr;
  }
};

/// Where runs live when nothing else is said: HEADRACE_RUNS, else "./runs".
HR_API base::Path runs_folder();

/// Folder of a run given by id, by a unique beginning of an id, by its folder, or "latest".
/// `not_found` lists what is there.
HR_API Result<base::Path> find_run(std::string_view run, const base::Path& runs = runs_folder());

/// Replay the journal of a run, read-only; safe while an engine is writing it (a torn tail is left
/// out). `not_found`: no journal in this folder. `corrupt`: it is damaged. `mismatch`: written by
/// another version of the engine.
HR_API Result<RunState> load_run(const base::Path& run_folder);

/// The same with those items alone whose key is `key`, and without outputs and names of logs: in a
/// fraction of the time and memory when the items are millions.
HR_API Result<RunState> load_run_item(const base::Path& run_folder, std::string_view key);

}  // namespace headrace::flow
