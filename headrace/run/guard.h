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
/// waits for the launcher's end, kills every process of this user that has the job's id in its
/// environment (HEADRACE_JOB), and removes the job's private folder.
class HR_API Guard {
 public:
  /// `program` is this binary; the guard is its command `run-guard JOB FOLDER`.
  static Result<Guard> start(const std::string& program, const std::string& job,
                             const base::Path& folder);
  /// Let it clean up now, and wait for that.
  void finish();

 private:
  explicit Guard(proc::Child child) : child_(std::move(child)) {}
  proc::Child child_;
};

/// What the guard's process does: wait for the end of standard input, then clean up. The exit code.
HR_API int run_guard(const std::string& job, const base::Path& folder);

/// A new folder for this user alone (mode 0700), below TMPDIR or the system's folder for such.
HR_API Result<base::Path> make_private_folder();

/// A new id: 32 hexadecimal digits.
HR_API std::string new_job_id();

}  // namespace headrace::run
