// SPDX-License-Identifier: Apache-2.0
// `headrace flow report`, and the lines about accuracy at the end of a run.
#include <fmt/format.h>

#include <string>

#include "headrace/cli/flow_internal.h"
#include "headrace/jobs/evaluation.h"
#include "headrace/jobs/run_report.h"

namespace headrace::cli {

namespace {

Result<int> report(const Arguments& arguments) {
  const base::Path runs =
      arguments.has("dir") ? base::Path(arguments.text("dir")) : flow::runs_folder();
  HR_TRY(const base::Path folder, flow::find_run(arguments.text("run"), runs));
  HR_TRY(const base::Path path, jobs::write_run_report(folder));
  if (arguments.flag("json")) {
    fmt::print("{}\n", Json::object({{"report", path.string()}}).dump());
  } else {
    fmt::print("{}\n", path.string());
  }
  return kExitOk;
}

}  // namespace

void print_accuracy(const base::Path& run_folder) {
  const auto evaluation = jobs::read_evaluation(run_folder);
  if (!evaluation.ok()) {
    return;  // a run without forecasts has none
  }
  if (const Json* summary = evaluation->find("summary")) {
    fmt::print("\n{}\n", summary->get_string("text"));
  }
  const auto path = jobs::write_run_report(run_folder);
  if (path.ok()) {
    fmt::print("report: {}\n", path->string());
  } else {
    fmt::print(stderr, "headrace: no report: {}\n", path.error().message());
  }
}

Command flow_report_command() {
  Command command;
  command.name = "flow report";
  command.summary = "Write the HTML report of a run and print its path.";
  command.details =
      "One file that needs no network: summary, accuracy against the naive methods, slowest and\n"
      "failed items, a searchable table, a plot per item.";
  command.examples = {"headrace flow report latest"};
  command.options = {
      {.name = "run",
       .help = "Run id, the beginning of one, its folder, or latest.",
       .required = true},
      {.name = "--dir", .help = "Folder of runs; HEADRACE_RUNS when not given (./runs)."}};
  command.run = [](const Arguments& arguments) {
    const Result<int> result = report(arguments);
    return result.ok() ? *result : report_error(result.error(), arguments.flag("json"));
  };
  return command;
}

}  // namespace headrace::cli
