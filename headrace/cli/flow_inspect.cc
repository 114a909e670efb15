// SPDX-License-Identifier: Apache-2.0
// headrace flow status, logs, cancel, validate, report; headrace expr.
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
double estimate_left(const ActivityState& activity, int slots, Micros now) {
  double spent = 0.0;
  int64_t ended = 0;
  double begun = 0.0;
  int64_t open = 0;
  for (const ItemState& item : activity.items) {
    if (is_final(item.status)) {
      spent += item.duration_seconds(now);
      ended += item.started ? 1 : 0;
    } else {
      ++open;
      begun += item.duration_seconds(now);
    }
  }
  if (ended == 0 || open == 0) {
    return -1.0;
  }
  const double mean = spent / static_cast<double>(ended);
  return std::max(0.0, mean * static_cast<double>(open) - begun) / std::max(1, slots);
}

std::string items_text(const ActivityState& activity) {
  const ItemCounts counts = count_items(activity.items);
  std::string line = fmt::format("{}/{}", counts.ended(), counts.total);
  if (counts.failed > 0) {
    line += fmt::format(", {} failed", counts.failed);
  }
  if (counts.running > 0) {
    line += fmt::format(", {} running", counts.running);
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

Json status_json(const RunState& run, const base::Path& folder, bool with_items, Micros now) {
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
                                     {"running", counts.running},
                                     {"skipped", counts.skipped}}));
      const double left = estimate_left(activity, run.slots, now);
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
  return Json::object({{"run_id", run.run_id},
                       {"folder", folder.string()},
                       {"pipeline", run.pipeline},
                       {"pipeline_path", run.pipeline_path.string()},
                       {"status", status_name(run.status)},
                       {"started", base::utc_text(run.started, 6)},
                       {"ended", time_json(run.ended)},
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
  const std::string age = duration_text(seconds_between(run.started, run.ended.value_or(now)));
  fmt::print("run {} of {}: {}, {}\nfolder: {}\n", run.run_id, printable(run.pipeline),
             status_name(run.status), over ? "took " + age : "begun " + age + " ago",
             folder.string());
  if (run.driven_by) {
    fmt::print("driven by {} with {} slots\n", *run.driven_by, run.slots);
  } else if (!over) {
    fmt::print("nobody drives it; continue: headrace flow resume {}\n", run.run_id);
  }
  TextTable table({"activity", "type", "status", "items", "attempts", "time", "left"});
  for (const ActivityState& activity : run.activities) {
    const double left = is_final(activity.status) ? -1.0 : estimate_left(activity, run.slots, now);
    table.add({activity.path, activity.type, std::string(status_name(activity.status)),
               activity.items.empty() ? "" : items_text(activity),
               activity.attempts > 0 ? std::to_string(activity.attempts) : "",
               activity.started
                   ? duration_text(seconds_between(*activity.started, activity.ended.value_or(now)))
                   : "",
               left < 0.0 ? "" : duration_text(left)});
  }
  fmt::print("{}", table.text());
  if (run.error) {
    fmt::print("error: {}\n", printable(run.error->message, true));
  }
}

/// A run named on the command line, loaded.
Result<RunState> load(const Arguments& arguments, base::Path* folder) {
  HR_TRY(*folder, flow::find_run(arguments.text("run")));
  return flow::load_run(*folder);
}

int show_status(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  base::Path folder;
  const auto run = load(arguments, &folder);
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
    TextTable table({"item", "status", "attempts", "time", "error"});
    for (const ActivityState& activity : run->activities) {
      for (const ItemState& item : activity.items) {
        table.add({item.key, std::string(status_name(item.status)), std::to_string(item.attempts),
                   item.started ? duration_text(item.duration_seconds(now)) : "",
                   item.error ? item.error->message : ""});
      }
    }
    fmt::print("{}", table.text());
  }
  return kExitOk;
}

/// All logs in a folder, oldest attempt first.
std::vector<base::Path> logs_in(const base::Path& folder) {
  std::vector<base::Path> logs;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    if (entry.path().extension() == ".log") {
      logs.push_back(entry.path());
    }
  }
  std::sort(logs.begin(), logs.end());
  return logs;
}

Result<void> print_logs(const std::vector<base::Path>& logs, const base::Path& folder) {
  for (const base::Path& log : logs) {
    HR_TRY(const auto content, base::read_file(log));
    if (logs.size() > 1) {
      fmt::print("==> {} <==\n", log.lexically_relative(folder).string());
    }
    // As it is, but for a person's terminal.
    const std::string shown = ::isatty(STDOUT_FILENO) == 1 ? printable(content, true) : content;
    fmt::print("{}{}", shown, content.empty() || content.ends_with('\n') ? "" : "\n");
  }
  return {};
}

Result<void> item_logs(const RunState& run, const base::Path& folder, const std::string& key) {
  bool known = false;
  for (const ActivityState& activity : run.activities) {
    for (const ItemState& item : activity.items) {
      if (item.key != key) {
        continue;
      }
      known = true;
      const base::Path place = (folder / flow::log_path(key, "x", 1)).parent_path();
      const std::vector<base::Path> logs = logs_in(place);
      HR_TRY(print_logs(logs, folder));
      if (logs.empty()) {
        fmt::print(stderr, "headrace: item {} is {} and printed nothing{}\n", printable(key),
                   status_name(item.status),
                   is_final(item.status) ? ""
                                         : " yet that was kept; what running items print is in " +
                                               (folder / "workers").string());
      }
      if (item.error) {
        fmt::print(stderr, "headrace: item {} failed: {}\n", printable(key),
                   printable(item.error->message, true));
      }
    }
  }
  if (!known) {
    return Error{Errc::not_found,
                 fmt::format("run {} has no item '{}'; headrace flow status {} --items lists them",
                             run.run_id, key, run.run_id)};
  }
  return {};
}

int show_logs(const Arguments& arguments) {
  base::Path folder;
  const auto run = load(arguments, &folder);
  if (!run.ok()) {
    return report_error(run.error(), arguments.flag("json"));
  }
  Result<void> shown;
  const std::string key = arguments.text("item");
  if (!key.empty()) {
    shown = item_logs(*run, folder, key);
  } else {
    shown = print_logs(logs_in(folder / "activities"), folder);
    for (const ActivityState& activity : run->activities) {
      for (const ItemState& item : activity.items) {
        if (item.error) {
          fmt::print("{}: {} [{}]\n", printable(item.key), printable(item.error->message, true),
                     item.log);
        }
      }
    }
  }
  return shown.ok() ? kExitOk : report_error(shown.error(), arguments.flag("json"));
}

int cancel(const Arguments& arguments) {
  const bool json = arguments.flag("json");
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

int validate(const Arguments& arguments) {
  std::vector<flow::Diagnostic> all;
  int64_t pipelines = 0;
  int64_t activities = 0;
  for (const std::string& path : arguments.texts("path")) {
    auto factory = flow::load_factory(path);
    if (!factory.ok()) {
      all.push_back({flow::Severity::error, "E-SYNTAX", "", factory.error().message()});
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
  const auto run = load(arguments, &folder);
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
    fmt::print("{}\n", path->string());
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
    HR_TRY(const auto text, base::read_file(path, int64_t{64} << 20));
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
    fmt::print("{}\n", value->string());
  }
  return kExitOk;
}

Option option(std::string name, std::string help, OptionKind kind = OptionKind::text) {
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

}  // namespace

ItemCounts count_items(const std::vector<ItemState>& items) {
  ItemCounts counts;
  counts.total = static_cast<int64_t>(items.size());
  for (const ItemState& item : items) {
    switch (item.status) {
      case Status::succeeded: ++counts.succeeded; break;
      case Status::failed:
      case Status::cancelled: ++counts.failed; break;
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
  Option path = required(option("path", "file or folder with pipelines"));
  path.repeated = true;
  std::vector<Command> commands = {
      make("flow status", "show how far a run is",
           {"headrace flow status", "headrace flow status latest --items --json"},
           {run_option(), option("--items", "list every item", OptionKind::flag)}, show_status),
      make("flow logs", "print what activities and items wrote",
           {"headrace flow logs", "headrace flow logs latest --item 3"},
           {run_option(), option("--item", "key of the item")}, show_logs),
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
      "The journal is read; a run that goes on is not disturbed. With --json, `metrics` holds the "
      "numbers of its engine and workers.";
  commands[2].details = "The exit code is 0 once the run has stopped and its journal says so.";
  commands[3].details =
      "Prints FILE:LINE:COLUMN: CODE: what is wrong. The exit code is 2 when there is an error, 0 "
      "when there are only warnings.";
  return commands;
}

}  // namespace headrace::cli
