// SPDX-License-Identifier: Apache-2.0
// The lines about accuracy at the end of a run.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "headrace/cli/flow_internal.h"
#include "headrace/cli/terminal.h"
#include "headrace/jobs/evaluation.h"
#include "headrace/jobs/run_report.h"

namespace headrace::cli {

Json evaluation_json(const base::Path& run_folder) {
  const auto evaluation = jobs::read_evaluation(run_folder);
  const Json* summary = evaluation.ok() ? evaluation->find("summary") : nullptr;
  Json out;
  if (summary != nullptr) {
    out = Json::object();
    for (const Json::Member& member : summary->members()) {
      if (member.first != "text") {
        out.set(member.first, member.second);
      }
    }
  }
  return out;
}

void print_accuracy(const base::Path& run_folder) {
  const auto evaluation = jobs::read_evaluation(run_folder);
  if (!evaluation.ok()) {
    return;  // a run without forecasts has none
  }
  if (const Json* summary = evaluation->find("summary")) {
    std::fflush(stdout);
    if (const std::string warning = summary->get_string("warning"); !warning.empty()) {
      fmt::print(stderr, "warning: {}\n", printable(warning, true));
    }
    fmt::print("\n{}\n", printable(summary->get_string("text"), true));
  }
  const auto path = jobs::write_run_report(run_folder);
  if (path.ok()) {
    say(stdout, "report: {}\n", path->string());
  } else {
    fmt::print(stderr, "headrace: no report: {}\n", printable(path.error().message(), true));
  }
}

}  // namespace headrace::cli
