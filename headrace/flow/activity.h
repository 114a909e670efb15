// SPDX-License-Identifier: Apache-2.0
// What the engine knows of an activity type: a name, a check before the run, and the function a
// worker calls.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/flow/secrets.h"

namespace headrace::flow {

/// One attempt of one activity, as a worker process gets it. All expressions are evaluated.
struct ActivityCall {
  std::string run_id;
  std::string activity;        ///< name in the pipeline
  std::string type;            ///< e.g. "HeadraceForecast"
  std::string item_key;        ///< key of the ForEach item; empty outside a ForEach
  int attempt = 1;             ///< 1 for the first try
  Json type_properties;        ///< evaluated
  bool secure_input = false;   ///< policy.secureInput: the properties belong into no file
  bool secure_output = false;  ///< policy.secureOutput: neither does what it gives and prints
  Secrets secrets;             ///< to be hidden in whatever is written
  bool metrics = false;        ///< what this process counts on a board of this run (role instance,
                               ///< kept) is added to the run's numbers
  base::Path run_folder;       ///< the run's folder
  base::Path item_folder;      ///< where this item may keep files and logs
  base::Path pipeline_folder;  ///< folder of the pipeline document: relative paths in properties
                               ///< start here
};

/// Do the work; the returned JSON is what expressions see under `.output`. An Error fails the
/// attempt: its code and message become the activity's error. Called in a worker process, one call
/// at a time. stdout and stderr of the process go to the item's log. `HR_TRY` away; never throw.
using ActivityFunction = std::function<Result<Json>(const ActivityCall&)>;

/// Check literal typeProperties before anything runs (values that are expressions are left out of
/// `properties`). Errors are shown with the position of the activity.
/// `names` are those of all properties, also of such as are expressions and so not in `properties`.
using ActivityCheck =
    std::function<Result<void>(const Json& properties, std::span<const std::string> names)>;

struct ActivityType {
  std::string type;
  bool hidden = false;  ///< for tests and measurements: can be run and is not offered
  ActivityFunction run;
  ActivityCheck check;                ///< may be empty
  std::vector<std::string> required;  ///< typeProperties that must be present
  std::vector<std::string>
      optional;  ///< others that are known; anything else is a warning with the nearest name
};

/// Native activity types by name. `jobs/activities.cc` fills one for the product; tests fill their
/// own.
class HR_API ActivityTable {
 public:
  void add(ActivityType type);
  const ActivityType* find(std::string_view type) const;
  std::vector<std::string> names() const;  ///< without hidden ones

 private:
  std::map<std::string, ActivityType, std::less<>> types_;
};

}  // namespace headrace::flow
