// SPDX-License-Identifier: Apache-2.0
// The process that cleans up behind a launcher or an agent, however that one ended.
#pragma once

#include <string>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/proc/child.h"

namespace headrace::run {

/// Ranks die with their launcher (Linux' parent-death signal), but not what they started. A guard
/// waits for the launcher's end, kills every process of this user that has the guard's id in its
/// environment (HEADRACE_GUARD), and removes the job's private folder.
class HR_API Guard {
 public:
  /// `program` is this binary; the guard is its command `run-guard ID FOLDER`. Where it does not
  /// start, `folder` is removed at once.
  static Result<Guard> start(const std::string& program, const base::Path& folder);
  /// For the environment of the ranks.
  const std::string& id() const { return id_; }
  /// Let it clean up now, and wait for that.
  void finish();

 private:
  Guard(std::string id, proc::Child child) : id_(std::move(id)), child_(std::move(child)) {}
  std::string id_;
  proc::Child child_;
};

/// What the guard's process does: wait for the end of standard input, then clean up. The exit code.
HR_API int run_guard(const std::string& id, const base::Path& folder);

/// A new folder for this user alone (mode 0700), below TMPDIR or the system's folder for such.
HR_API Result<base::Path> make_private_folder();

/// 32 hexadecimal digits that were never used before.
HR_API std::string new_id();

}  // namespace headrace::run
