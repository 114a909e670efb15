// SPDX-License-Identifier: Apache-2.0
// headrace flow run and resume, and the worker processes of both.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>

#include "headrace/base/file.h"
#include "headrace/base/log.h"
#include "headrace/cli/flow_internal.h"
#include "headrace/cli/mlflow.h"
#include "headrace/cli/terminal.h"
#include "headrace/flow/custom.h"
#include "headrace/flow/run.h"
#include "headrace/flow/run_list.h"
#include "headrace/flow/worker.h"
#include "headrace/jobs/activities.h"
#include "headrace/jobs/run_registries.h"

namespace headrace::cli {

namespace {

using flow::Report;
using flow::RunOptions;
using flow::RunResult;
using flow::Status;

/// What a person sees of a run that goes on: a bar for each ForEach, a line for each activity.
class Watcher {
 public:
  explicit Watcher(bool events) : events_(events) {}

  void attach(RunOptions* options) {
    options->on_report = [this](const Report& report) { on_report(report); };
    options->on_progress = [this](const flow::EngineProgress& progress) { on_progress(progress); };
  }

  void close() {
    if (bar_ != nullptr) {
      bar_->finish();
      bar_.reset();
    }
  }

 private:
  void on_report(const Report& report) {
    if (events_) {
      print_event(report);
      return;
    }
    switch (report.kind) {
      case Report::Kind::items:
        close();
        counts_ = {};
        bar_ = std::make_unique<Progress>(report.path, report.index);
        return;
      case Report::Kind::item:
        ++counts_.done;
        counts_.failed += report.status == Status::failed ? 1 : 0;
        counts_.cancelled += report.status == Status::cancelled ? 1 : 0;
        counts_.skipped += report.status == Status::skipped ? 1 : 0;
        counts_.running = std::max<int64_t>(0, counts_.running - 1);
        show();
        return;
      case Report::Kind::activity: on_activity(report); return;
      default: return;
    }
  }

  void on_activity(const Report& report) {
    if (report.activity->kind == flow::ActivityKind::for_each) {
      close();
    }
    if (report.activity->kind != flow::ActivityKind::work && !report.error &&
        report.activity->kind != flow::ActivityKind::for_each) {
      return;  // control activities are quick and many
    }
    const base::Micros worked = report.ended - report.started - report.paused;
    const double seconds = std::chrono::duration<double>(worked).count();
    base::log_info(fmt::format("{} {} in {}{}", report.path, status_name(report.status),
                               duration_text(seconds),
                               report.error ? ": " + report.error->message : ""));
  }

  void on_progress(const flow::EngineProgress& progress) {
    counts_.running = progress.items_running;
    counts_.waiting = progress.items_waiting_retry;
    show();
  }

  void show() {
    if (bar_ != nullptr) {
      bar_->update(counts_);
    }
  }

  static void print_event(const Report& report) {
    constexpr std::string_view kKinds[] = {"activity_started", "activity", "items", "item", "run"};
    Json event = Json::object({{"kind", kKinds[static_cast<size_t>(report.kind)]}});
    if (report.kind != Report::Kind::run) {
      event.set("path", report.path);
    }
    if (report.kind == Report::Kind::items) {
      event.set("count", report.index);
      event.set("at", base::utc_text(report.started, 6));
    } else {
      if (report.kind == Report::Kind::item) {
        event.set("key", report.key);
        event.set("index", report.index);
      }
      event.set("status", status_name(report.status));
      event.set("started", base::utc_text(report.started, 6));
      if (is_final(report.status)) {
        event.set("ended", base::utc_text(report.ended, 6));
        event.set("attempts", report.attempts);
        event.set("cpu_seconds", report.cpu_seconds);
      }
      if (report.error) {
        event.set("error", Json::object({{"code", report.error->code},
                                         {"message", report.error->message},
                                         {"target", report.error->target}}));
      }
    }
    fmt::print("{}\n", event.dump());
    std::fflush(stdout);  // a stream is read while it is written
  }

  const bool events_;
  std::unique_ptr<Progress> bar_;
  Progress::Counts counts_;
};

int exit_code_of(const RunResult& result) {
  if (result.interrupted) {
    return kExitInterrupted;
  }
  if (result.status == Status::cancelled) {
    return kExitCancelled;
  }
  return result.status == Status::succeeded ? kExitOk : kExitFailed;
}

/// How its items ended; those that were cancelled or never began are apart from those that failed.
ItemCounts item_counts(const flow::EngineProgress& items) {
  ItemCounts counts;
  counts.total = items.items_total;
  counts.succeeded = items.items_succeeded;
  counts.cancelled = items.items_cancelled;
  counts.skipped = items.items_skipped;
  counts.failed =
      items.items_ended - items.items_succeeded - items.items_cancelled - items.items_skipped;
  return counts;
}

std::string counts_text(const flow::EngineProgress& items) {
  if (items.items_total == 0) {
    return "";
  }
  const ItemCounts counts = item_counts(items);
  std::string text = fmt::format(": {} of {} items ended, {} failed", counts.ended(),
                                 items.items_total, counts.failed);
  if (counts.cancelled > 0) {
    text += fmt::format(", {} cancelled", counts.cancelled);
  }
  if (counts.skipped > 0) {
    text += fmt::format(", {} not started", counts.skipped);
  }
  return text;
}

/// Would all that failed fail again as things are?
bool fails_again(const base::Path& folder) {
  const auto state = flow::load_run(folder);
  if (!state.ok()) {
    return false;
  }
  bool any = false;
  bool all = true;
  const auto look = [&](Status status, const std::optional<flow::ActivityError>& error) {
    const bool same = error && error->fails_again;
    any = any || same;
    all = all && (same || (status != Status::failed && status != Status::cancelled));
  };
  for (const flow::ActivityState& activity : state->activities) {
    for (const flow::ItemState& item : activity.items) {
      look(item.status, item.error);
    }
    if (activity.items.empty()) {
      look(activity.status, activity.error);
    }
  }
  return any && all;
}

void print_result(const RunResult& result, const base::Path& folder, bool json) {
  const std::string reference = printable(flow::run_reference(folder));
  const flow::EngineProgress& items = result.progress;
  if (json) {
    const ItemCounts counts = item_counts(items);
    Json document = Json::object(
        {{"run_id", result.run_id},
         {"folder", folder.string()},
         {"status", result.interrupted ? "Interrupted" : std::string(status_name(result.status))},
         {"items", Json::object({{"total", items.items_total},
                                 {"ended", counts.ended()},
                                 {"failed", counts.failed},
                                 {"cancelled", counts.cancelled},
                                 {"skipped", counts.skipped}})},
         {"return_value", result.return_value}});
    if (result.error) {
      document.set("error", Json::object({{"code", result.error->code},
                                          {"message", result.error->message},
                                          {"target", result.error->target}}));
    }
    if (Json evaluation = evaluation_json(folder); !evaluation.is_null()) {
      document.set("evaluation", std::move(evaluation));
    }
    fmt::print("{}\n", document.dump());
    return;
  }
  fmt::print("run {} {}{}\nfolder: {}\n", result.run_id,
             result.interrupted ? "was interrupted" : status_name(result.status),
             counts_text(items), printable(folder.string()));
  if (result.error && !result.interrupted) {
    fmt::print(stderr, "headrace: {}\n", printable(result.error->message, true));
  }
  if (result.interrupted) {
    fmt::print("continue: headrace flow resume {}\n", reference);
    return;
  }
  print_accuracy(folder);
  // A later activity that waits for Completed lets the pipeline succeed in spite of failed items,
  // as in Data Factory: the exit code is the status's, but they must not go unseen.
  if (result.status != Status::failed && items.items_failed == 0) {
    return;
  }
  if (fails_again(folder)) {
    fmt::print(
        "the same inputs fail the same way: change them or the options first, then: headrace "
        "flow resume {} --retry-failed (and --accept-changes when the pipeline changed)\n",
        reference);
  } else {
    fmt::print("run again what failed: headrace flow resume {} --retry-failed\n", reference);
  }
}

/// `k=v` pairs over a file of parameters. Values stay texts: the declared type decides.
Result<Json> read_arguments(const Arguments& arguments) {
  Json all = Json::object();
  if (const std::string path = arguments.text("params"); !path.empty()) {
    HR_TRY(const auto text, base::read_input(path, int64_t{64} << 20));
    HR_TRY(all, parse_json(text, path));
    if (!all.is_object()) {
      return Error{Errc::invalid_argument,
                   path + " must hold one JSON object: parameter names and values"};
    }
  }
  for (const std::string& pair : arguments.texts("param")) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{Errc::invalid_argument,
                   fmt::format("-p {}: a parameter is given as NAME=VALUE", pair)};
    }
    all.set(pair.substr(0, equals), pair.substr(equals + 1));
  }
  return all;
}

Result<flow::FailureBudget> read_budget(const Arguments& arguments) {
  flow::FailureBudget budget;
  if (arguments.flag("fail-fast")) {
    budget.count = 1;
  }
  const std::string text = arguments.text("max-failures");
  if (text.empty()) {
    return budget;
  }
  double number = 0.0;
  const bool percent = text.ends_with('%');
  const char* end = text.data() + text.size() - (percent ? 1 : 0);
  const auto parsed = std::from_chars(text.data(), end, number);
  const bool fits = number > 0.0 && number <= (percent ? 100.0 : 1e9);  // NaN does not
  if (parsed.ec != std::errc() || parsed.ptr != end || !fits ||
      (!percent && number != std::floor(number))) {
    return Error{
        Errc::invalid_argument,
        fmt::format("--max-failures {}: expected a count such as 10 or a share such as 5%, at "
                    "most 100%",
                    text)};
  }
  if (percent) {
    budget.percent = number;
  } else {
    budget.count = static_cast<int64_t>(number);
  }
  return budget;
}

/// What is left to do with the models of a run that came to its end.
int finish_models(const RunResult& result, const base::Path& folder, bool json) {
  const int exit_code = exit_code_of(result);
  const std::vector<base::Path> registries = jobs::run_registries(folder);
  if (result.interrupted || registries.empty()) {
    return exit_code;
  }
  if (const auto noted = jobs::note_run_end(folder, registries); !noted.ok()) {
    base::log_warning("the end of the run is not in its models' lineage: " +
                      noted.error().message());
  }
  return push_at_end(result.run_id, registries, json, exit_code);
}

int finish(const Result<RunResult>& result, const base::Path& folder, const Arguments& arguments) {
  const bool json = arguments.flag("json");
  if (!result.ok()) {
    const int code = report_error(result.error(), json);
    return result.error().code() == Errc::mismatch ? kExitUsage : code;
  }
  if (!arguments.flag("json-events")) {
    print_result(*result, folder, json);
  }
  return finish_models(*result, folder, json || arguments.flag("json-events"));
}

Result<std::shared_ptr<const flow::Pipeline>> load(const Arguments& arguments) {
  HR_TRY(auto factory, flow::load_factory(arguments.text("pipeline")));
  auto found = factory.find(arguments.text("name"));
  std::vector<flow::Diagnostic> diagnostics = factory.diagnostics;
  if (found.ok()) {
    const auto more = flow::validate(**found, executable_types());
    diagnostics.insert(diagnostics.end(), more.begin(), more.end());
  }
  // What only matters in Data Factory itself is `validate`'s to say.
  std::erase_if(diagnostics, [](const flow::Diagnostic& one) {
    return one.code == "W-POLICY" || one.code == "W-LIMIT" || one.code == "W-SELF";
  });
  print_diagnostics(diagnostics);
  if (flow::has_errors(diagnostics)) {
    return Error{Errc::invalid_argument,
                 arguments.text("pipeline") + " is not valid; nothing was started"};
  }
  return found;
}

RunOptions run_options(const Arguments& arguments, const base::Path& folder) {
  RunOptions options;
  options.folder = folder;
  options.slots = static_cast<int>(arguments.integer("slots").value_or(0));
  if (const auto seconds = arguments.number("grace")) {
    options.grace = std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000.0));
  }
  install_interrupt_handler();
  options.interrupt_fd = interrupt_fd();
  return options;
}

int run_flow(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  const auto pipeline = load(arguments);
  if (!pipeline.ok()) {
    return report_error(pipeline.error(), json);
  }
  auto values = read_arguments(arguments);
  const auto budget = read_budget(arguments);
  if (!values.ok() || !budget.ok()) {
    return report_error(values.ok() ? budget.error() : values.error(), json);
  }
  flow::RunRequest request;
  request.pipeline = *pipeline;
  request.pipeline_path = (*pipeline)->source->name();
  request.arguments = *std::move(values);
  request.shared_variables = arguments.flag("adf-variables");
  request.budget = *budget;
  request.circuit_breaker = !arguments.flag("no-circuit-breaker");
  request.run_id = flow::new_run_id();
  const std::string given = arguments.text("dir");
  const base::Path folder =
      given.empty() ? flow::runs_folder() / request.run_id : base::Path(given);
  RunOptions options = run_options(arguments, folder);
  Watcher watcher(arguments.flag("json-events"));
  watcher.attach(&options);
  const auto result = flow::start_run(request, options);
  watcher.close();
  return finish(result, folder, arguments);
}

int resume_flow(const Arguments& arguments) {
  const auto folder = flow::find_run(arguments.text("run"));
  if (!folder.ok()) {
    return report_error(folder.error(), arguments.flag("json"));
  }
  RunOptions options = run_options(arguments, *folder);
  Watcher watcher(arguments.flag("json-events"));
  watcher.attach(&options);
  const auto result = flow::resume_run({.retry_failed = arguments.flag("retry-failed"),
                                        .accept_changes = arguments.flag("accept-changes"),
                                        .circuit_breaker = !arguments.flag("no-circuit-breaker")},
                                       options);
  watcher.close();
  return finish(result, *folder, arguments);
}

Option flag(std::string name, std::string help) {
  Option option;
  option.name = std::move(name);
  option.help = std::move(help);
  option.kind = OptionKind::flag;
  return option;
}

Option text(std::string name, std::string help) {
  Option option;
  option.name = std::move(name);
  option.help = std::move(help);
  return option;
}

std::vector<Option> driving_options() {
  Option slots = text("--slots",
                      "items that run at once at most; 0: the cores of this machine, as when not "
                      "given (a ForEach's batchCount bounds it too)");
  slots.kind = OptionKind::integer;
  slots.at_least = 0;
  slots.at_most = flow::kSlotsMax;
  Option grace = text("--grace",
                      "seconds between SIGTERM and SIGKILL of a command that is cancelled or over "
                      "its timeout; default 10");
  grace.kind = OptionKind::number;
  grace.at_least = 0;
  grace.at_most = 3600;
  return {slots, grace,
          flag("--no-circuit-breaker",
               "go through all items of a ForEach, also when the first ones (5, or as many as "
               "slots) all fail with the same error"),
          flag("--json-events",
               "print what happens as JSON lines on standard output, once it is durable")};
}

Command run_command() {
  Command command;
  command.name = "flow run";
  command.summary = "run a pipeline";
  command.details =
      "PIPELINE is a Data Factory pipeline: a file, or a repository's folder. Everything is "
      "written "
      "to a journal before it counts: killed at any moment, the run goes on with `headrace flow "
      "resume`, and no item that had ended runs again. Ctrl-C stops within a second.\n"
      "Exit codes: 0 Succeeded, 1 Failed, 2 the pipeline or an argument is not valid, 3 Cancelled, "
      "130 interrupted.";
  command.examples = {"headrace flow run examples/commands/pipeline.json",
                      "headrace flow run examples/commands/pipeline.json -p count=5 --slots 2",
                      "headrace flow run examples/commands/pipeline.json --max-failures 10%"};
  Option pipeline = text("pipeline", "file or folder with the pipeline");
  pipeline.required = true;
  Option param = text("-p,--param", "a parameter as NAME=VALUE; arrays and objects as JSON");
  param.repeated = true;
  command.options = {
      pipeline,
      text("--name", "which pipeline, when there are several"),
      param,
      text("-P,--params", "a JSON file with parameters; -p wins"),
      text("--dir", "folder of the run; HEADRACE_RUNS/RUN_ID when not given (./runs/RUN_ID)"),
      text("--max-failures", "stop a ForEach after this many failed items, or this share: 10, 5%"),
      flag("--fail-fast", "the same as --max-failures 1"),
      flag("--adf-variables",
           "SetVariable in a parallel ForEach writes one shared slot, as in Data Factory")};
  for (Option& option : driving_options()) {
    command.options.push_back(std::move(option));
  }
  command.run = run_flow;
  return command;
}

Command resume_command() {
  Command command;
  command.name = "flow resume";
  command.summary = "go on with a run that was killed, interrupted or has failed items";
  command.details =
      "RUN is an id, the beginning of one, a folder, or \"latest\". Items that had succeeded are "
      "not "
      "run again; those in flight are. A run that has ended stays as it is, unless --retry-failed "
      "is "
      "given.";
  command.examples = {"headrace flow resume latest", "headrace flow resume latest --retry-failed"};
  Option run = text("run", "the run");
  run.required = true;
  command.options = {
      run, flag("--retry-failed", "run again what failed"),
      flag("--accept-changes",
           "go on although the pipeline's file has changed: work whose inputs are the "
           "same is kept")};
  for (Option& option : driving_options()) {
    command.options.push_back(std::move(option));
  }
  command.run = resume_flow;
  return command;
}

Command worker_command() {
  Command command;
  command.name = "flow worker";
  command.summary = "serve calls of an engine";
  command.hidden = true;
  Option fd = text("--fd", "number of the socket");
  fd.kind = OptionKind::integer;
  fd.required = true;
  command.options = {fd};
  command.run = [](const Arguments& arguments) {
    return flow::serve_worker(static_cast<int>(arguments.integer("fd").value_or(-1)),
                              executable_types());
  };
  return command;
}

}  // namespace

flow::ActivityTable executable_types() {
  flow::ActivityTable types = jobs::activity_table();
  types.add(flow::custom_type());
  return types;
}

void print_diagnostics(const std::vector<flow::Diagnostic>& diagnostics) {
  for (const flow::Diagnostic& diagnostic : diagnostics) {
    fmt::print(stderr, "{}\n", printable(flow::diagnostic_text(diagnostic), true));
  }
}

std::vector<Command> flow_commands() {
  std::vector<Command> commands = {run_command(), resume_command()};
  for (Command& command : flow_inspect_commands()) {
    commands.push_back(std::move(command));
  }
  commands.push_back(worker_command());
  return commands;
}

}  // namespace headrace::cli
