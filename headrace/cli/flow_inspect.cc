// SPDX-License-Identifier: Apache-2.0
// headrace flow status, cancel, validate, report; headrace expr.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/random.h"
#include "headrace/cli/flow_internal.h"
#include "headrace/cli/terminal.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/expression.h"
#include "headrace/flow/metrics.h"
#include "headrace/flow/run.h"
#include "headrace/flow/run_list.h"
#include "headrace/jobs/run_report.h"

namespace headrace::cli {

namespace {

using base::Micros;
using flow::ActivityState;
using flow::ItemState;
using flow::RunState;
using flow::Status;

double seconds_between(Micros begin, Micros end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Seconds until a ForEach is through, from the mean time of its items; -1: nothing is known.
double estimate_left(const RunState& run, const ActivityState& activity, Micros now) {
  double spent = 0.0;
  int64_t ended = 0;
  double begun = 0.0;
  int64_t open = 0;
  for (const ItemState& item : activity.items) {
    if (is_final(item.status)) {
      spent += item.duration_seconds(now, run.pauses);
      ended += item.started ? 1 : 0;
    } else {
      ++open;
      begun += item.duration_seconds(now, run.pauses);
    }
  }
  if (ended == 0 || open == 0) {
    return -1.0;
  }
  const double mean = spent / static_cast<double>(ended);
  return std::max(0.0, mean * static_cast<double>(open) - begun) / std::max(1, run.slots);
}

std::string items_text(const ActivityState& activity, bool stopped) {
  const ItemCounts counts = count_items(activity.items);
  std::string line = fmt::format("{}/{}", counts.ended(), counts.total);
  if (counts.failed > 0) {
    line += fmt::format(", {} failed", counts.failed);
  }
  if (counts.cancelled > 0) {
    line += fmt::format(", {} cancelled", counts.cancelled);
  }
  if (counts.skipped > 0) {
    line += fmt::format(", {} not started", counts.skipped);
  }
  if (counts.running > 0) {
    line +=
        fmt::format(", {} {}", counts.running, stopped ? "in flight when it stopped" : "running");
  }
  return line;
}

Json error_json(const std::optional<flow::ActivityError>& error) {
  return error ? Json::object({{"code", error->code},
                               {"message", error->message},
                               {"failure_type", error->failure_type},
                               {"target", error->target}})
               : Json();
}

Json time_json(const std::optional<Micros>& time) {
  return time ? Json(base::utc_text(*time, 6)) : Json();
}

Json item_json(const ItemState& item) {
  return Json::object({{"key", item.key},
                       {"index", item.index},
                       {"status", status_name(item.status)},
                       {"attempts", item.attempts},
                       {"started", time_json(item.started)},
                       {"ended", time_json(item.ended)},
                       {"cpu_seconds", item.cpu_seconds},
                       {"peak_rss_bytes", item.peak_rss_bytes},
                       {"outputs", item.outputs},
                       {"error", error_json(item.error)},
                       {"log", item.log}});
}

/// No engine drives it and it is not over: nothing of it runs, whatever its journal says last.
bool is_stopped(const RunState& run) { return !run.driven_by && !is_final(run.status); }

std::string resume_command(const base::Path& folder) {
  return "headrace flow resume " + flow::run_reference(folder);
}

/// As people read it: of a stopped run nothing is in progress.
std::string status_text(Status status, bool stopped) {
  return stopped && status == Status::in_progress ? "stopped" : std::string(status_name(status));
}

Json status_json(const RunState& run, const base::Path& folder, bool with_items, Micros now) {
  const bool stopped = is_stopped(run);
  Json activities = Json::array();
  for (const ActivityState& activity : run.activities) {
    Json one = Json::object({{"path", activity.path},
                             {"type", activity.type},
                             {"status", status_name(activity.status)},
                             {"attempts", activity.attempts},
                             {"started", time_json(activity.started)},
                             {"ended", time_json(activity.ended)},
                             {"output", activity.output},
                             {"error", error_json(activity.error)}});
    if (!activity.items.empty()) {
      const ItemCounts counts = count_items(activity.items);
      one.set("items", Json::object({{"total", counts.total},
                                     {"succeeded", counts.succeeded},
                                     {"failed", counts.failed},
                                     {"cancelled", counts.cancelled},
                                     {"running", stopped ? 0 : counts.running},
                                     {"in_flight_when_stopped", stopped ? counts.running : 0},
                                     {"skipped", counts.skipped}}));
      const double left = stopped ? -1.0 : estimate_left(run, activity, now);
      one.set("eta_seconds", left < 0.0 ? Json() : Json(left));
      if (with_items) {
        Json items = Json::array();
        for (const ItemState& item : activity.items) {
          items.push_back(item_json(item));
        }
        one.set("item_list", std::move(items));
      }
    }
    activities.push_back(std::move(one));
  }
  const Micros until = run.ended.value_or(stopped ? run.last_event : now);
  return Json::object({{"run_id", run.run_id},
                       {"folder", folder.string()},
                       {"pipeline", run.pipeline},
                       {"pipeline_path", run.pipeline_path.string()},
                       {"status", status_name(run.status)},
                       {"stopped", stopped},
                       {"resume", stopped ? Json(resume_command(folder)) : Json()},
                       {"started", base::utc_text(run.started, 6)},
                       {"ended", time_json(run.ended)},
                       {"seconds", run.worked_seconds(run.started, until)},
                       {"idle_seconds", seconds_between(run.started, until) -
                                            run.worked_seconds(run.started, until)},
                       {"slots", run.slots},
                       {"resumes", run.resumes},
                       {"driven_by", run.driven_by ? Json(*run.driven_by) : Json()},
                       {"parameters", run.parameters},
                       {"variables", run.variables},
                       {"return_value", run.return_value},
                       {"error", error_json(run.error)},
                       {"metrics", flow::run_metrics(folder, run.run_id)},
                       {"activities", std::move(activities)}});
}

void print_status(const RunState& run, const base::Path& folder, Micros now) {
  const bool over = is_final(run.status);
  const bool stopped = is_stopped(run);
  const Micros until = run.ended.value_or(stopped ? run.last_event : now);
  const double worked = run.worked_seconds(run.started, until);
  const double idle = seconds_between(run.started, until) - worked;
  std::string age = over ? "took " + duration_text(worked)
                         : "begun " + duration_text(seconds_between(run.started, now)) + " ago";
  if (!run.pauses.empty()) {
    age += over ? "" : ", worked on for " + duration_text(worked);
    age += fmt::format(", without {} between stop and resume", duration_text(idle));
  }
  fmt::print("run {} of {}: {}, {}\nfolder: {}\n", run.run_id, printable(run.pipeline),
             status_text(run.status, stopped), age, printable(folder.string()));
  if (run.driven_by) {
    fmt::print("driven by {} with {} slots\n", printable(*run.driven_by), run.slots);
  } else if (stopped) {
    fmt::print("nobody drives it; continue: {}\n", printable(resume_command(folder)));
  }
  std::vector<std::string> header = {"activity", "type", "status", "items", "attempts", "time"};
  if (run.driven_by) {
    header.emplace_back("left");
  }
  TextTable table(std::move(header));
  for (const ActivityState& activity : run.activities) {
    const double left = is_final(activity.status) ? -1.0 : estimate_left(run, activity, now);
    const Micros end = activity.ended.value_or(until);
    table.add({activity.path, activity.type, status_text(activity.status, stopped),
               activity.items.empty() ? "" : items_text(activity, stopped),
               activity.attempts > 0 ? std::to_string(activity.attempts) : "",
               activity.started ? duration_text(run.worked_seconds(*activity.started, end)) : "",
               left < 0.0 ? "" : duration_text(left)});
  }
  fmt::print("{}", table.text());
  if (run.error) {
    fmt::print("error: {}\n", printable(run.error->message, true));
  }
}

void print_items(const RunState& run, Micros now) {
  const bool stopped = is_stopped(run);
  const Micros until = stopped ? run.last_event : now;
  TextTable table({"item", "status", "attempts", "time", "error"});
  for (const ActivityState& activity : run.activities) {
    for (const ItemState& item : activity.items) {
      const bool cut = stopped && item.status == Status::in_progress;
      table.add({item.key,
                 cut ? "in flight when it stopped" : std::string(status_name(item.status)),
                 std::to_string(item.attempts),
                 item.started ? duration_text(item.duration_seconds(until, run.pauses)) : "",
                 item.error ? item.error->message : ""});
    }
  }
  fmt::print("{}", table.text());
}

int show_status(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  base::Path folder;
  const auto run = load_named_run(arguments, &folder);
  if (!run.ok()) {
    return report_error(run.error(), json);
  }
  const Micros now = base::system_clock().wall();
  if (json) {
    fmt::print("{}\n", status_json(*run, folder, arguments.flag("items"), now).dump());
    return kExitOk;
  }
  print_status(*run, folder, now);
  if (arguments.flag("items")) {
    print_items(*run, now);
  }
  return kExitOk;
}

int cancel(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  if (const auto known = check_item_key(arguments); !known.ok()) {
    return report_error(known.error(), json);
  }
  const auto folder = flow::find_run(arguments.text("run"));
  if (!folder.ok()) {
    return report_error(folder.error(), json);
  }
  const double seconds = arguments.number("timeout").value_or(60.0);
  const auto done =
      flow::cancel_run(*folder, arguments.text("item"),
                       std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0)));
  if (!done.ok()) {
    return report_error(done.error(), json);
  }
  if (json) {
    fmt::print("{}\n", Json::object({{"cancelled", true}}).dump());
  }
  return kExitOk;
}

/// What keeps a document from being read, with its place out of the message.
flow::Diagnostic unreadable(const Error& error, const std::string& path) {
  constexpr std::string_view kMark = ": E-SYNTAX: ";
  const std::string& message = error.message();
  if (const size_t at = message.find(kMark); at != std::string::npos) {
    return {flow::Severity::error, "E-SYNTAX", message.substr(0, at),
            message.substr(at + kMark.size())};
  }
  return {flow::Severity::error, "E-FILE", path, message};
}

int validate(const Arguments& arguments) {
  std::vector<flow::Diagnostic> all;
  int64_t pipelines = 0;
  int64_t activities = 0;
  for (const std::string& path : arguments.texts("path")) {
    auto factory = flow::load_factory(path);
    if (!factory.ok()) {
      all.push_back(unreadable(factory.error(), path));
      continue;
    }
    all.insert(all.end(), factory->diagnostics.begin(), factory->diagnostics.end());
    for (const auto& pipeline : factory->pipelines) {
      const auto more = flow::validate(*pipeline, executable_types());
      all.insert(all.end(), more.begin(), more.end());
      ++pipelines;
      activities += pipeline->activity_count;
    }
  }
  const bool good = !flow::has_errors(all);
  if (arguments.flag("json")) {
    Json list = Json::array();
    for (const flow::Diagnostic& one : all) {
      list.push_back(
          Json::object({{"severity", one.severity == flow::Severity::error ? "error" : "warning"},
                        {"code", one.code},
                        {"where", one.where},
                        {"message", one.message}}));
    }
    fmt::print("{}\n", Json::object({{"valid", good}, {"findings", std::move(list)}}).dump());
  } else {
    for (const flow::Diagnostic& one : all) {
      fmt::print("{}\n",
                 printable(one.where.empty() ? one.message : flow::diagnostic_text(one), true));
    }
    if (good) {
      fmt::print("{} pipeline{}, {} activit{}: valid\n", pipelines, pipelines == 1 ? "" : "s",
                 activities, activities == 1 ? "y" : "ies");
    }
  }
  return good ? kExitOk : kExitUsage;
}

int write_report(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  base::Path folder;
  const auto run = load_named_run(arguments, &folder);
  if (!run.ok()) {
    return report_error(run.error(), json);
  }
  const std::string given = arguments.text("out");
  if (const auto place = base::check_replaceable(given); !given.empty() && !place.ok()) {
    return report_error(place.error(), json);
  }
  const auto path = jobs::write_run_report(folder, given);
  if (!path.ok()) {
    return report_error(path.error(), json);
  }
  if (json) {
    fmt::print("{}\n", Json::object({{"report", path->string()}}).dump());
  } else {
    fmt::print("{}\n", printable(path->string()));
  }
  return kExitOk;
}

/// A context out of one JSON object: pipeline, parameters, variables, activities, item.
class FileContext final : public flow::Context {
 public:
  explicit FileContext(Json values) : values_(std::move(values)), rng_(random_seed()) {}

  Result<flow::Value> pipeline() override {
    Json object = values_.find("pipeline") != nullptr ? *values_.find("pipeline") : Json::object();
    if (object.is_object() && object.find("parameters") == nullptr) {
      const Json* parameters = values_.find("parameters");
      object.set("parameters", parameters != nullptr ? *parameters : Json::object());
    }
    return flow::Value(std::move(object));
  }
  Result<flow::Value> parameter(std::string_view name) override { return get("parameters", name); }
  Result<flow::Value> variable(std::string_view name) override { return get("variables", name); }
  Result<flow::Value> activity(std::string_view name) override { return get("activities", name); }
  Result<flow::Value> item(std::string_view) override {
    const Json* value = values_.find("item");
    if (value == nullptr) {
      return Error{Errc::not_found, "the context has no 'item'"};
    }
    return flow::Value::borrow(*value);
  }
  Micros now() override { return now_; }
  uint64_t random() override { return rng_.next(); }

 private:
  static uint64_t random_seed() {
    uint64_t seed = 0;
    base::random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
    return seed;
  }
  Result<flow::Value> get(std::string_view group, std::string_view name) {
    const Json* all = values_.find(group);
    const Json* value = all != nullptr ? all->find(name) : nullptr;
    if (value == nullptr) {
      return Error{Errc::not_found, fmt::format("the context has no '{}' in '{}'", name, group)};
    }
    return flow::Value::borrow(*value);
  }

  Json values_;
  Micros now_ = base::system_clock().wall();
  base::Rng rng_;
};

Result<Json> evaluate(const Arguments& arguments) {
  Json values = Json::object();
  if (const std::string path = arguments.text("context"); !path.empty()) {
    HR_TRY(const auto text, base::read_input(path, int64_t{64} << 20));
    HR_TRY(values, parse_json(text, path, {.tolerant = true, .depth_max = 256}));
  }
  const std::string text = arguments.text("expression");
  if (!flow::Expression::is_expression(text)) {
    return Json(text);
  }
  HR_TRY(const auto expression, flow::Expression::parse(text));
  FileContext context(std::move(values));
  return expression.evaluate(context);
}

int expr(const Arguments& arguments) {
  const auto value = evaluate(arguments);
  if (!value.ok()) {
    const int code = report_error(value.error(), arguments.flag("json"));
    return code == kExitOk ? kExitFailed : kExitUsage;
  }
  if (arguments.flag("json") || !value->is_string()) {
    fmt::print("{}\n", value->dump());
  } else {
    const bool person = ::isatty(STDOUT_FILENO) == 1;  // a program gets the text as it is
    fmt::print("{}\n", person ? printable(value->string(), true) : value->string());
  }
  return kExitOk;
}

}  // namespace

Option option(std::string name, std::string help, OptionKind kind) {
  Option made;
  made.name = std::move(name);
  made.help = std::move(help);
  made.kind = kind;
  return made;
}

Option required(Option made) {
  made.required = true;
  return made;
}

/// The positional RUN; the newest run when it is not given.
Option run_option() {
  Option run = option("run", "id, beginning of an id, folder, or \"latest\"");
  run.default_text = "latest";
  return run;
}

Command make(std::string name, std::string summary, std::vector<std::string> examples,
             std::vector<Option> options, int (*run)(const Arguments&)) {
  Command command;
  command.name = std::move(name);
  command.summary = std::move(summary);
  command.examples = std::move(examples);
  command.options = std::move(options);
  command.run = run;
  return command;
}

Result<RunState> load_named_run(const Arguments& arguments, base::Path* folder) {
  HR_TRY(*folder, flow::find_run(arguments.text("run")));
  return flow::load_run(*folder);
}

Result<void> check_item_key(const Arguments& arguments) {
  if (arguments.has("item") && arguments.text("item").empty()) {
    return Error{Errc::invalid_argument,
                 "--item: the key is empty, which no item's is; headrace flow status --items lists "
                 "them, and without --item the whole run is meant"};
  }
  return {};
}

ItemCounts count_items(const std::vector<ItemState>& items) {
  ItemCounts counts;
  counts.total = static_cast<int64_t>(items.size());
  for (const ItemState& item : items) {
    switch (item.status) {
      case Status::succeeded: ++counts.succeeded; break;
      case Status::failed: ++counts.failed; break;
      case Status::cancelled: ++counts.cancelled; break;
      case Status::skipped: ++counts.skipped; break;
      case Status::in_progress: ++counts.running; break;
      default: break;
    }
  }
  return counts;
}

std::vector<Command> flow_inspect_commands() {
  Option timeout = option("--timeout", "seconds to wait for the end", OptionKind::number);
  timeout.default_text = "60";
  timeout.at_least = 0;
  timeout.at_most = 1e9;
  Option path = required(option("path", "file or folder with pipelines"));
  path.repeated = true;
  std::vector<Command> commands = {
      make("flow status", "show how far a run is",
           {"headrace flow status", "headrace flow status latest --items --json"},
           {run_option(), option("--items", "list every item", OptionKind::flag)}, show_status),
      flow_list_command(),
      flow_logs_command(),
      make("flow cancel", "stop a run, or one of its items",
           {"headrace flow cancel latest", "headrace flow cancel latest --item 3"},
           {required(option("run", "id, beginning of an id, folder, or \"latest\"")),
            option("--item", "key of the item; the whole run when not given"), timeout},
           cancel),
      make("flow validate", "check pipelines without running anything",
           {"headrace flow validate examples/commands/pipeline.json"}, {path}, validate),
      make("flow report", "write a run's report: one HTML file",
           {"headrace flow report", "headrace flow report latest --out report.html"},
           {run_option(), option("--out", "where to; RUN/report.html when not given")},
           write_report),
      make(
          "expr", "evaluate one expression of a pipeline",
          {"headrace expr \"@concat('item ', string(add(1, 2)))\"",
           "headrace expr '@{utcNow()} is now'"},
          {required(option("expression", "as in a pipeline: '@...' or '...@{...}...'")),
           option("--context", "JSON file with pipeline, parameters, variables, activities, item")},
          expr)};
  commands[0].details =
      "The journal is read; a run that goes on is not disturbed. Of one that no engine drives it "
      "tells what was in flight when it stopped, and how to go on. With --json, `metrics` holds "
      "the "
      "numbers of its engine and workers.";
  commands[3].details = "The exit code is 0 once the run has stopped and its journal says so.";
  commands[4].details =
      "Prints FILE:LINE:COLUMN: CODE: what is wrong. The exit code is 2 when there is an error, 0 "
      "when there are only warnings.";
  return commands;
}

}  // namespace headrace::cli
