// SPDX-License-Identifier: Apache-2.0
// What the files of `headrace flow` share.
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
  int64_t failed = 0;
  int64_t cancelled = 0;
  int64_t running = 0;
  int64_t skipped = 0;  ///< nothing of them ran
  int64_t ended() const { return succeeded + failed + cancelled; }
};
ItemCounts count_items(const std::vector<flow::ItemState>& items);

std::vector<Command> flow_inspect_commands();
Command flow_list_command();
Command flow_logs_command();

/// The run named by the positional RUN, loaded; `folder` becomes its place.
/// `invalid_argument` when --item is given and empty: a script's variable that is not set.
Result<void> check_item_key(const Arguments& arguments);
Result<flow::RunState> load_named_run(const Arguments& arguments, base::Path* folder);

/// Options and commands in one line each.
Option option(std::string name, std::string help, OptionKind kind = OptionKind::text);
Option required(Option made);
/// The positional RUN; the newest run when it is not given.
Option run_option();
Command make(std::string name, std::string summary, std::vector<std::string> examples,
             std::vector<Option> options, int (*run)(const Arguments&));

/// The summary of its evaluation, without the text for people; null for a run without.
Json evaluation_json(const base::Path& run_folder);

/// Accuracy and report of a run that holds evaluated forecasts; nothing for others.
void print_accuracy(const base::Path& run_folder);

}  // namespace headrace::cli
