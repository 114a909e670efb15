// SPDX-License-Identifier: Apache-2.0
// headrace flow logs: what activities and items wrote, and their errors.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "headrace/base/file.h"
#include "headrace/cli/flow_internal.h"
#include "headrace/cli/terminal.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/run_list.h"

namespace headrace::cli {

namespace {

using flow::ActivityError;
using flow::ActivityState;
using flow::ItemState;
using flow::RunState;

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

/// Prints logs and errors, as text or as JSON lines.
class LogPrinter {
 public:
  LogPrinter(const base::Path& folder, bool json) : folder_(folder), json_(json) {}

  /// Headings tell the logs of several files apart.
  Result<void> logs(const std::vector<base::Path>& logs, const std::string& item, bool headings) {
    for (const base::Path& log : logs) {
      HR_TRY(const auto content, base::read_file(log));
      ++printed_;
      const std::string name = log.lexically_relative(folder_).string();
      last_log_ = name;
      if (json_) {
        print(Json::object({{"kind", "log"},
                            {"item", item.empty() ? Json() : Json(item)},
                            {"log", name},
                            {"text", utf8_text(content)}}));
        continue;
      }
      if (headings) {
        fmt::print("==> {} <==\n", printable(name));
      }
      // As it is, but for a person's terminal.
      const std::string shown = ::isatty(STDOUT_FILENO) == 1 ? printable(content, true) : content;
      fmt::print("{}{}", shown, content.empty() || content.ends_with('\n') ? "" : "\n");
    }
    return {};
  }

  void item_error(const ItemState& item) {
    ++errors_;
    if (json_) {
      const std::string& log = item.log.empty() ? last_log_ : item.log;
      print(error_json("item", item.key, item.status, *item.error, log));
    } else {
      fmt::print("{}: {} [{}]\n", printable(item.key), printable(item.error->message, true),
                 printable(item.log));
    }
  }

  /// One of a ForEach repeats what its items say.
  void activity_error(const ActivityState& activity) {
    ++errors_;
    if (json_) {
      print(error_json("activity", activity.path, activity.status, *activity.error, ""));
    } else if (std::ranges::none_of(activity.items,
                                    [](const ItemState& item) { return item.error.has_value(); })) {
      fmt::print("{}: {}\n", printable(activity.path), printable(activity.error->message, true));
    }
  }

  int64_t printed() const { return printed_; }
  int64_t errors() const { return errors_; }

 private:
  static void print(const Json& line) { fmt::print("{}\n", line.dump()); }
  static Json error_json(const char* what, const std::string& name, flow::Status status,
                         const ActivityError& error, const std::string& log) {
    return Json::object({{"kind", "error"},
                         {what, name},
                         {"status", status_name(status)},
                         {"log", log.empty() ? Json() : Json(log)},
                         {"error", Json::object({{"code", error.code},
                                                 {"message", error.message},
                                                 {"target", error.target}})}});
  }

  const base::Path folder_;
  const bool json_;
  std::string last_log_;
  int64_t printed_ = 0;
  int64_t errors_ = 0;
};

std::vector<base::Path> logs_of(const base::Path& folder, const std::string& key) {
  return logs_in((folder / flow::log_path(key, "x", 1)).parent_path());
}

Result<void> item_logs(const RunState& run, const base::Path& folder, const std::string& key,
                       bool json) {
  LogPrinter printer(folder, json);
  bool known = false;
  for (const ActivityState& activity : run.activities) {
    for (const ItemState& item : activity.items) {
      if (item.key != key) {
        continue;
      }
      if (!known) {  // loops whose items have the same key share a folder
        const std::vector<base::Path> logs = logs_of(folder, key);
        HR_TRY(printer.logs(logs, key, logs.size() > 1));
      }
      known = true;
      if (json) {
        if (item.error) {
          printer.item_error(item);
        }
        continue;
      }
      if (printer.printed() == 0) {
        const bool over = is_final(item.status) || !run.driven_by;
        fmt::print(stderr, "headrace: item {} is {} and printed nothing{}\n", printable(key),
                   status_name(item.status),
                   over ? ""
                        : " yet that was kept; what running items print is in " +
                              printable((folder / "workers").string()));
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
                             run.run_id, key, flow::run_reference(folder))};
  }
  return {};
}

/// A run without errors prints little: say that this is good news, and what else there is.
void explain_silence(const RunState& run, const base::Path& folder, bool printed) {
  bool items = false;
  for (const ActivityState& activity : run.activities) {
    items = items || !activity.items.empty();
  }
  const std::string what = is_final(run.status) ? "nothing failed" : "nothing has failed so far";
  const std::string reference = printable(flow::run_reference(folder));
  if (items) {
    fmt::print(stderr,
               "{}; what items printed: headrace flow logs {} --item KEY, or --all for every one\n",
               what, reference);
  } else if (!printed) {
    fmt::print(stderr, "{}, and no activity printed anything\n", what);
  }
}

Result<void> run_logs(const RunState& run, const base::Path& folder, bool all, bool json) {
  LogPrinter printer(folder, json);
  const std::vector<base::Path> logs = logs_in(folder / "activities");
  HR_TRY(printer.logs(logs, "", all || logs.size() > 1));
  std::set<std::string> folders;  // items of several loops with one key share a folder
  for (const ActivityState& activity : run.activities) {
    for (const ItemState& item : activity.items) {
      if (all && folders.insert(item.key).second) {
        HR_TRY(printer.logs(logs_of(folder, item.key), item.key, true));
      }
      if (item.error) {
        printer.item_error(item);
      }
    }
    if (activity.error) {
      printer.activity_error(activity);
    }
  }
  if (!json && !all && printer.errors() == 0) {
    explain_silence(run, folder, printer.printed() > 0);
  } else if (!json && printer.printed() == 0 && printer.errors() == 0) {
    fmt::print(stderr, "nothing failed, and nothing was printed\n");
  }
  return {};
}

int show_logs(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  const bool all = arguments.flag("all");
  const std::string key = arguments.text("item");
  if (const auto known = check_item_key(arguments); !known.ok()) {
    return report_error(known.error(), json);
  }
  if (all && !key.empty()) {
    return report_error(Error{Errc::invalid_argument, "--item and --all exclude each other"}, json);
  }
  const auto folder = flow::find_run(arguments.text("run"));
  if (!folder.ok()) {
    return report_error(folder.error(), json);
  }
  const auto run = key.empty() ? flow::load_run(*folder) : flow::load_run_item(*folder, key);
  if (!run.ok()) {
    return report_error(run.error(), json);
  }
  const Result<void> shown =
      key.empty() ? run_logs(*run, *folder, all, json) : item_logs(*run, *folder, key, json);
  return shown.ok() ? kExitOk : report_error(shown.error(), json);
}

}  // namespace

Command flow_logs_command() {
  Command command = make("flow logs", "print what activities wrote and why items failed",
                         {"headrace flow logs", "headrace flow logs latest --item 3"},
                         {run_option(), option("--item", "key of an item: all that it wrote"),
                          option("--all", "what every item wrote, too", OptionKind::flag)},
                         show_logs);
  command.details =
      "With --json a JSON value a line: {\"kind\": \"log\", \"item\", \"log\", \"text\"} for a "
      "file, {\"kind\": \"error\", \"item\" or \"activity\", \"status\", \"log\", \"error\"} for "
      "what failed.";
  return command;
}

}  // namespace headrace::cli
