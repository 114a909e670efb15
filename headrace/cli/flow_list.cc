// SPDX-License-Identifier: Apache-2.0
// headrace flow list: the runs of a folder.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "headrace/base/clock.h"
#include "headrace/cli/flow_internal.h"
#include "headrace/cli/terminal.h"
#include "headrace/flow/run_list.h"

namespace headrace::cli {

namespace {

using base::Micros;
using flow::RunStanding;
using flow::RunSummary;

/// From the start to the end, to now, or to when it stopped, as long as an engine drove it.
double seconds_of(const RunSummary& run, Micros now) {
  const Micros end = run.standing == RunStanding::running ? now : run.last_event;
  return std::chrono::duration<double>(std::max(Micros(0), end - run.started - run.idle)).count();
}

Json run_json(const RunSummary& run, Micros now) {
  Json one = Json::object({{"name", run.folder.filename().string()},
                           {"folder", run.folder.string()},
                           {"state", flow::standing_name(run.standing)}});
  if (run.standing == RunStanding::unreadable) {
    one.set("error", run.problem);
    return one;
  }
  one.set("run_id", run.run_id);
  one.set("pipeline", run.pipeline);
  one.set("items", run.counted ? Json::object({{"total", run.items_total},
                                               {"ended", run.items_ended},
                                               {"failed", run.items_failed},
                                               {"cancelled", run.items_cancelled},
                                               {"skipped", run.items_skipped}})
                               : Json());
  one.set("started", base::utc_text(run.started, 6));
  one.set("seconds", run.counted || run.standing == RunStanding::running
                         ? Json(seconds_of(run, now))
                         : Json());
  one.set("idle_seconds",
          run.counted ? Json(std::chrono::duration<double>(run.idle).count()) : Json());
  one.set("resume", run.standing == RunStanding::stopped
                        ? Json("headrace flow resume " + flow::run_reference(run.folder))
                        : Json());
  return one;
}

void add_row(const RunSummary& run, Micros now, TextTable* table) {
  const std::string name = run.folder.filename().string();
  const std::string state(flow::standing_name(run.standing));
  if (run.standing == RunStanding::unreadable) {
    table->add({name, "", state});
    return;
  }
  const bool counted = run.counted;
  table->add({name, run.pipeline, state,
              counted ? fmt::format("{}/{}", run.items_ended, run.items_total) : "?",
              counted ? std::to_string(run.items_failed) : "?",
              counted ? std::to_string(run.items_cancelled) : "?", base::utc_text(run.started),
              counted || run.standing == RunStanding::running ? duration_text(seconds_of(run, now))
                                                              : "?"});
}

int list_runs(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  const base::Path runs = flow::runs_folder();
  const std::vector<base::Path> folders = flow::run_folders(runs);
  const auto limit = static_cast<size_t>(arguments.integer("limit").value_or(0));
  const size_t count = limit == 0 ? folders.size() : std::min(limit, folders.size());
  const Micros now = base::system_clock().wall();
  Json list = Json::array();
  TextTable table({"run", "pipeline", "state", "items", "failed", "cancelled", "started", "took"});
  bool stopped = false;
  for (size_t i = 0; i < count; ++i) {
    const RunSummary run = flow::summarise_run(folders[i]);
    stopped = stopped || run.standing == RunStanding::stopped;
    if (json) {
      list.push_back(run_json(run, now));
    } else {
      add_row(run, now, &table);
    }
  }
  if (json) {
    fmt::print("{}\n", Json::object({{"runs", std::move(list)}}).dump());
    return kExitOk;
  }
  if (folders.empty()) {
    fmt::print(stderr, "no runs in {} (HEADRACE_RUNS names another folder)\n",
               printable(runs.string()));
    return kExitOk;
  }
  fmt::print("{}", table.text());
  if (stopped) {
    fmt::print(stderr, "what is stopped goes on with: headrace flow resume RUN\n");
  }
  if (count < folders.size()) {
    fmt::print(stderr, "{} more; --limit 0 shows all\n", folders.size() - count);
  }
  return kExitOk;
}

}  // namespace

Command flow_list_command() {
  Option limit = option("--limit", "runs at most; 0 = all", OptionKind::integer);
  limit.default_text = "20";
  limit.at_least = 0;
  Command command =
      make("flow list", "list the runs of a folder, the one written to last first",
           {"headrace flow list", "headrace flow list --limit 0 --json"}, {limit}, list_runs);
  command.details =
      "The folder is HEADRACE_RUNS, else ./runs. State: running, succeeded, failed, cancelled, "
      "stopped (no engine drives it; it can be resumed), unknown, or unreadable. It is quick: a "
      "run's last engine left a summary.json, and the journal is replayed only when it has grown "
      "since, and has at most 32 MiB. A longer one without a summary is unknown, its items show as "
      "?: `headrace flow status` reads it all.";
  return command;
}

}  // namespace headrace::cli
