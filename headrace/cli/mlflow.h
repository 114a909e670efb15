// SPDX-License-Identifier: Apache-2.0
// Hand-over of models to MLflow, whose client is Python's: a child process, bounded and stopped at
// once by Ctrl-C.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::cli {

/// How long the end of a run waits for MLflow at most (docs/registry.md).
inline constexpr std::chrono::seconds kPushLimit{120};

/// `python -m headrace.mlflow WORDS...`, its streams ours, for as long as it takes; returns its
/// exit code, or kExitInterrupted.
Result<int> run_mlflow(const std::vector<std::string>& words);

/// At the end of run `run`: hand its models in `registries` over, when MLFLOW_TRACKING_URI is set.
/// What was pushed goes to stdout (stderr with `json`). It never fails the run: whatever goes wrong
/// is one line on stderr. Returns `exit_code`, or kExitInterrupted after Ctrl-C.
int push_at_end(const std::string& run, std::span<const base::Path> registries, bool json,
                int exit_code);

}  // namespace headrace::cli
