// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/custom.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "headrace/flow/engine.h"
#include "headrace/flow/value.h"
#include "headrace/proc/child.h"
#include "headrace/proc/stray.h"

namespace headrace::flow {

namespace {

constexpr std::string_view kOutputMark = "##headrace-output ";
/// The worker's file holds the whole output until the log keeps head and tail of it, so the only
/// bound here is on one line.
constexpr int64_t kLineBytesMax = int64_t{32} << 20;
constexpr auto kWaitMax = std::chrono::seconds(3600);

constexpr const char* kCallDocument = "activity.json";

std::string work_folder_name(std::string_view activity, int attempt) {
  return fmt::format("{}.{}", item_folder_name(activity), attempt);
}

/// Folder in which the command runs; what we put there goes again, whatever becomes of the command,
/// and the folder when nothing else is in it.
class WorkFolder {
 public:
  WorkFolder() = default;
  WorkFolder(WorkFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), ours_(std::exchange(other.ours_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder() { clean(); }

  static Result<WorkFolder> make(const ActivityCall& call) {
    WorkFolder work;
    work.path_ = call.item_folder / work_folder_name(call.activity, call.attempt);
    std::error_code code;
    std::filesystem::remove_all(work.path_, code);  // left by an attempt of this number that died
    HR_TRY(base::make_folders(work.path_));
    const std::string folder = call.type_properties.get_string("folderPath");
    if (!folder.empty()) {
      const base::Path from = call.pipeline_folder / folder;
      std::filesystem::copy(from, work.path_, std::filesystem::copy_options::recursive, code);
      if (code) {
        return errno_error(code.value(), "copying folderPath " + from.string());
      }
    }
    const Json activity =
        Json::object({{"name", call.activity},
                      {"type", call.type},
                      {"typeProperties", call.secure_input ? Json("***") : call.type_properties}});
    HR_TRY(work.put(kCallDocument, activity.dump(2)));
    HR_TRY(work.put("linkedServices.json", "[]"));
    HR_TRY(work.put("datasets.json", "[]"));
    return work;
  }

  const base::Path& path() const { return path_; }

  void clean() {
    if (path_.empty()) {
      return;
    }
    for (const std::string& name : ours_) {
      ::unlink((path_ / name).c_str());
    }
    ours_.clear();
    ::rmdir(path_.c_str());  // fails, and shall fail, when the command left something
  }

 private:
  Result<void> put(const std::string& name, const std::string& text) {
    std::error_code code;
    if (std::filesystem::exists(path_ / name, code)) {
      return {};  // the user's own
    }
    HR_TRY(auto fd, base::open_file(path_ / name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    ours_.push_back(name);  // before it is written: a disk may take the secrets and not the rest
    return base::write_all(fd.get(), text, path_ / name);
  }

  base::Path path_;
  std::vector<std::string> ours_;
};

std::vector<std::pair<std::string, std::string>> environment_of(const ActivityCall& call) {
  std::vector<std::pair<std::string, std::string>> all = {
      {"HEADRACE_RUN_ID", call.run_id},
      {"HEADRACE_ACTIVITY", call.activity},
      {"HEADRACE_ITEM", call.item_key},
      {"HEADRACE_ATTEMPT", std::to_string(call.attempt)},
      {"HEADRACE_RUN_FOLDER", call.run_folder.string()},
      {"HEADRACE_PIPELINE_FOLDER", call.pipeline_folder.string()}};
  const Json* extended = call.type_properties.find("extendedProperties");
  for (const Json::Member& member :
       extended != nullptr && extended->is_object() ? extended->members() : Json::Object{}) {
    all.emplace_back("HR_PARAM_" + member.first, value_text(member.second));
  }
  return all;
}

/// What a command prints, on its way to the log: short lines are written many at a time. Secrets go
/// hidden, and of an output that is secure nothing goes but a line that says so.
class LogWriter {
 public:
  explicit LogWriter(const ActivityCall& call) : call_(call), stream_(call.secrets) {}

  void add(std::string_view line) {
    if (call_.secure_output) {
      if (!std::exchange(wrote_, true)) {
        pending_ = "headrace: the output is secure and not kept\n";
      }
      return;
    }
    wrote_ = true;
    stream_.add(line, &pending_);
    stream_.add("\n", &pending_);
    if (!call_.secrets.empty()) {
      last_line_ = call_.secrets.masked(line).substr(0, kLastLineBytes);
    }
    if (pending_.size() >= kPendingMax) {
      flush();
    }
  }
  void flush() {
    if (!pending_.empty()) {
      // What the log cannot take is lost; the command itself must not suffer from it.
      static_cast<void>(base::write_all(1, pending_, "the log"));
      pending_.clear();
    }
  }
  void finish() {
    stream_.finish(&pending_);
    flush();
  }
  bool wrote() const { return wrote_; }
  /// "; its last line: ..." as far as it may be told.
  std::string last_words(const proc::Exit& exit) const {
    if (call_.secure_output) {
      return wrote_ ? "; its output is secure and not kept" : "";
    }
    if (exit.last_lines.empty()) {
      return "";
    }
    return "; its last line: " + (call_.secrets.empty() ? exit.last_lines.back() : last_line_);
  }

 private:
  static constexpr size_t kPendingMax = size_t{64} << 10;
  static constexpr size_t kLastLineBytes = 4096;
  const ActivityCall& call_;
  SecretStream stream_;
  std::string pending_;
  std::string last_line_;
  bool wrote_ = false;
};

/// Wait for the end, with an eye on requests to stop. The log has what was printed before each
/// wait.
Result<proc::Exit> wait_for(proc::Child* child, CommandMonitor* monitor, LogWriter* log) {
  for (;;) {
    const bool ended = child->pump();
    log->flush();
    if (ended) {
      break;
    }
    pollfd fds[2] = {{child->event_fd(), POLLIN, 0}, {-1, POLLIN, 0}};
    if (monitor != nullptr) {
      fds[1].fd = monitor->control_fd();
    }
    ::poll(fds, 2, static_cast<int>(std::chrono::milliseconds(kWaitMax).count()));
    if (monitor != nullptr && fds[1].revents != 0 && monitor->stop_requested()) {
      child->begin_stop("asked to stop", proc::Millis(monitor->grace_ms()));
    }
  }
  return *child->exit();
}

Result<Json> run_command(const ActivityCall& call, CommandMonitor* monitor) {
  const Json* command = call.type_properties.find("command");
  if (command == nullptr || !command->is_string()) {
    return Error{Errc::invalid_argument, "Custom needs a 'command' that is a text"};
  }
  HR_TRY(auto work, WorkFolder::make(call));
  Json custom_output;
  std::string bad_output;
  LogWriter log(call);
  proc::ChildOptions options;
  options.argv = {"/bin/sh", "-c", command->string()};
  options.folder = work.path();
  options.environment = environment_of(call);
  options.threads = 1;
  options.line_bytes_max = kLineBytesMax;
  options.lines_bytes_max = std::numeric_limits<int64_t>::max();
  options.on_line = [&](proc::Stream stream, std::string_view line) {
    log.add(line);
    if (stream == proc::Stream::out && line.starts_with(kOutputMark)) {
      auto parsed = parse_json(line.substr(kOutputMark.size()), "##headrace-output");
      if (parsed.ok()) {
        custom_output = *std::move(parsed);
      } else {
        bad_output = call.secure_output ? "it is secure and not told" : parsed.error().message();
      }
    }
  };
  if (monitor != nullptr) {
    options.notice = monitor->group_notice();
  }
  HR_TRY(auto child, proc::Child::spawn(std::move(options)));
  if (monitor != nullptr) {
    monitor->command_group(child.pid());
  }
  auto exit = wait_for(&child, monitor, &log);
  if (monitor != nullptr) {
    monitor->command_group(0);
  }
  log.finish();
  work.clean();
  if (!exit.ok()) {
    return exit.error();
  }
  if (!exit->ok()) {
    // Without pid and time, which to_error gives: failures that are alike shall read alike.
    const Error whole = exit->to_error("");
    Error error{whole.code(), "the command ended with " + exit->text() + log.last_words(*exit)};
    if (whole.origin()) {
      error.set_origin(*whole.origin());
    }
    return error;
  }
  if (!bad_output.empty()) {
    return Error{Errc::invalid_argument, "the command's output line is no JSON: " + bad_output};
  }
  Json outputs = Json::array();
  if (log.wrote()) {
    outputs.push_back(log_path(call.item_key, call.activity, call.attempt));
  }
  Json result = Json::object({{"exitcode", exit->code}, {"outputs", std::move(outputs)}});
  if (!custom_output.is_null()) {
    result.set("customOutput", std::move(custom_output));
  }
  return result;
}

}  // namespace

Result<int64_t> kill_left_commands(const std::string& run_id, const base::Path& run_folder,
                                   std::vector<CutShort> attempts, proc::Millis limit) {
  std::erase_if(attempts, [](const CutShort& one) {
    return one.activity == nullptr || one.activity->type != "Custom";
  });
  if (attempts.empty()) {
    return 0;
  }
  for (const CutShort& one : attempts) {
    // Evaluated properties, secrets among them; who wrote them could not take them away.
    const base::Path folder =
        (run_folder / log_path(one.item_key, one.activity->name, one.attempt)).parent_path();
    ::unlink((folder / work_folder_name(one.activity->name, one.attempt) / kCallDocument).c_str());
  }
  const auto is_left = [&](const proc::Environment& environment) {
    const auto is = [&](std::string_view name, std::string_view value) {
      return proc::value_in(environment, name) == value;
    };
    std::error_code code;  // a copy of the folder is another run's, another name of it is not
    return is("HEADRACE_RUN_ID", run_id) &&
           std::any_of(attempts.begin(), attempts.end(),
                       [&](const CutShort& one) {
                         return is("HEADRACE_ACTIVITY", one.activity->name) &&
                                is("HEADRACE_ITEM", one.item_key) &&
                                is("HEADRACE_ATTEMPT", std::to_string(one.attempt));
                       }) &&
           std::filesystem::equivalent(
               base::Path(proc::value_in(environment, "HEADRACE_RUN_FOLDER")), run_folder, code);
  };
  return proc::kill_strays(is_left, limit);
}

ActivityType custom_type(CommandMonitor* monitor) {
  ActivityType type;
  type.type = "Custom";
  type.run = [monitor](const ActivityCall& call) { return run_command(call, monitor); };
  type.required = {"command"};
  type.optional = {"folderPath",       "extendedProperties",  "resourceLinkedService",
                   "referenceObjects", "retentionTimeInDays", "autoUserSpecification"};
  type.check = [](const Json& properties) -> Result<void> {
    const Json* command = properties.find("command");
    if (command != nullptr && !command->is_string()) {
      return Error{Errc::invalid_argument,
                   "command must be a text, not " + describe_value(*command)};
    }
    return {};
  };
  return type;
}

}  // namespace headrace::flow
