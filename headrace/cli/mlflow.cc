// SPDX-License-Identifier: Apache-2.0
#include "headrace/cli/mlflow.h"

#include <fmt/format.h>
#include <poll.h>

#include <utility>

#include "headrace/base/environment.h"
#include "headrace/cli/command.h"
#include "headrace/cli/python.h"
#include "headrace/cli/terminal.h"
#include "headrace/proc/child.h"
#include "headrace/registry/registry.h"

namespace headrace::cli {

namespace {

constexpr std::chrono::seconds kWaitMax{60};  // for the next look, when nothing happens
constexpr proc::Millis kStopGrace{700};       // the child needs half a second at most
constexpr size_t kReasonBytesMax = 240;
constexpr std::string_view kOurs = "headrace: ";

/// Of the client, where the user set none: its own seven tries with growing pauses would use up the
/// time that the end of a run has.
constexpr std::pair<const char*, const char*> kPatience[] = {
    {"MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"}, {"MLFLOW_HTTP_REQUEST_TIMEOUT", "20"}};

std::vector<std::string> command_line(const std::vector<std::string>& words) {
  std::vector<std::string> argv = {python_program(), "-m", "headrace.mlflow"};
  argv.insert(argv.end(), words.begin(), words.end());
  return argv;
}

/// Until the end or Ctrl-C, which stops it.
proc::Exit wait_for_end(proc::Child* child) {
  while (!child->pump()) {
    // Once it was interrupted, the descriptor stays readable.
    pollfd fds[2] = {{child->event_fd(), POLLIN, 0},
                     {interrupted() ? -1 : interrupt_fd(), POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(std::chrono::milliseconds(kWaitMax).count()));
    if (interrupted()) {
      child->begin_stop("interrupted", kStopGrace);
    }
  }
  return *child->exit();
}

/// What the child said, line by line.
struct Heard {
  std::vector<std::string> pushed;
  std::vector<std::string> told;  ///< by us: notes and errors
  std::string last;               ///< by whoever
};

Result<proc::Exit> push_run(const std::string& run, const base::Path& registry, Heard* heard) {
  proc::ChildOptions options;
  options.argv = command_line({"push", "--registry", registry.string(), "--run", run});
  for (const auto& [name, value] : kPatience) {
    if (!base::environment(name)) {
      options.environment.emplace_back(name, value);
    }
  }
  options.timeout = kPushLimit;
  options.grace = kStopGrace;
  options.on_line = [heard](proc::Stream stream, std::string_view line) {
    if (stream == proc::Stream::out) {
      heard->pushed.emplace_back(line);
    } else if (line.starts_with(kOurs)) {
      heard->told.emplace_back(line.substr(kOurs.size()));
    } else if (!line.empty()) {
      heard->last = line;
    }
  };
  HR_TRY(auto child, proc::Child::spawn(std::move(options)));
  return wait_for_end(&child);
}

std::string reason_of(const Result<proc::Exit>& end, const Heard& heard) {
  std::string reason;
  if (!end.ok()) {
    reason = end.error().message();
  } else if (!end->stopped.empty()) {
    reason = end->stopped == "interrupted" ? end->stopped
                                           : fmt::format("no end within {} s", kPushLimit.count());
  } else if (!heard.told.empty()) {
    reason = heard.told.front();
  } else {
    reason = heard.last.empty() ? end->text() : heard.last;
  }
  if (reason.size() > kReasonBytesMax) {
    reason = reason.substr(0, kReasonBytesMax) + " ...";
  }
  return reason;
}

/// Whether models of the run wait for MLflow. A registry that cannot be read has told so before.
bool anything_waits(const std::string& run, const base::Path& folder) {
  const auto opened = registry::Registry::open(folder, {.create = false, .read_only = true});
  if (!opened.ok()) {
    return false;
  }
  registry::Query query;
  query.run = run;
  const auto count = opened->count(query);
  const auto waiting = opened->pushes("mlflow", true, 1);
  return count.ok() && *count > 0 && waiting.ok() && !waiting->empty();
}

}  // namespace

Result<int> run_mlflow(const std::vector<std::string>& words) {
  install_interrupt_handler();
  proc::ChildOptions options;
  options.argv = command_line(words);
  options.out.to = proc::Output::To::inherit;
  options.err.to = proc::Output::To::inherit;
  HR_TRY(auto child, proc::Child::spawn(std::move(options)));
  const proc::Exit end = wait_for_end(&child);
  if (interrupted()) {
    return kExitInterrupted;
  }
  if (end.code < 0) {
    return end.to_error("python -m headrace.mlflow");
  }
  return end.code;
}

int push_at_end(const std::string& run, std::span<const base::Path> registries, bool json,
                int exit_code) {
  if (registry::push_targets().empty() || interrupted()) {
    return exit_code;
  }
  for (const base::Path& folder : registries) {
    if (!anything_waits(run, folder)) {
      continue;
    }
    std::fflush(stdout);
    Heard heard;
    const auto end = push_run(run, folder, &heard);
    for (const std::string& line : heard.pushed) {
      say(json ? stderr : stdout, "pushed to MLflow: {}\n", line);
    }
    if (!end.ok() || !end->ok()) {
      say(stderr,
          "headrace: MLflow: {}; the models wait in the registry: headrace models push --registry "
          "{}\n",
          reason_of(end, heard), folder.string());
    } else {
      for (const std::string& note : heard.told) {
        say(stderr, "headrace: {}\n", note);
      }
    }
    if (interrupted()) {
      return kExitInterrupted;
    }
  }
  return exit_code;
}

}  // namespace headrace::cli
