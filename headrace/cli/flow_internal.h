// SPDX-License-Identifier: Apache-2.0
// What the two files of `headrace flow` share.
#pragma once

#include <string>
#include <vector>

#include "headrace/cli/command.h"
#include "headrace/flow/activity.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/run_state.h"

namespace headrace::cli {

/// Everything that a pipeline may execute: the product's own types and Custom.
flow::ActivityTable executable_types();

/// Print findings to stderr, one a line.
void print_diagnostics(const std::vector<flow::Diagnostic>& diagnostics);

/// Items of a run, counted.
struct ItemCounts {
  int64_t total = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;  ///< and cancelled
  int64_t running = 0;
  int64_t skipped = 0;
  int64_t ended() const { return succeeded + failed + skipped; }
};
ItemCounts count_items(const std::vector<flow::ItemState>& items);

std::vector<Command> flow_inspect_commands();

/// Accuracy and report of a run that holds evaluated forecasts; nothing for others.
void print_accuracy(const base::Path& run_folder);

}  // namespace headrace::cli
