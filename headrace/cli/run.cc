// SPDX-License-Identifier: Apache-2.0
// `headrace run` and the processes that belong to it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/environment.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/log.h"
#include "headrace/cli/command.h"
#include "headrace/cli/run_options.h"
#include "headrace/cli/terminal.h"
#include "headrace/run/guard.h"
#include "headrace/run/launcher.h"

namespace headrace::cli {

namespace {

Result<run::LaunchOptions> launch_options(const Arguments& arguments) {
  run::LaunchOptions options;
  HR_TRY(options.settings, engine_variables_of(arguments));
  HR_TRY(options.hosts, hosts_of(arguments));
  options.command = arguments.texts("command");
  options.ranks =
      static_cast<int>(arguments.integer("num-proc").value_or(run::slots_of(options.hosts)));
  if (options.command.empty()) {
    return Error{Errc::invalid_argument,
                 "no command is given for the ranks: headrace run -np 4 python train.py"};
  }
  HR_TRY(options.start_timeout_s, start_timeout_of(arguments));
  HR_TRY(options.program, own_program());
  options.timestamps = arguments.flag("prefix-output-with-timestamp");
  options.output_folder = arguments.text("output-filename");
  options.cores_per_rank = static_cast<int>(arguments.integer("cpus-per-rank").value_or(0));
  options.verbose = arguments.flag("verbose");
  options.owner_fd = static_cast<int>(arguments.integer("owner-fd").value_or(-1));
  return options;
}

int print_environment(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  const auto variables = engine_variables_of(arguments);
  if (!variables.ok()) {
    return report_error(variables.error(), json);
  }
  Json object = Json::object();
  for (const auto& [name, value] : *variables) {
    if (json) {
      object.set(name, value);
    } else {
      fmt::print("{}={}\n", name, value);
    }
  }
  if (json) {
    fmt::print("{}\n", object.dump());
  }
  return kExitOk;
}

int run_job(const Arguments& arguments) {
  const bool json = arguments.flag("json");
  if (arguments.flag("version")) {
    fmt::print("{}\n", HEADRACE_VERSION);
    return kExitOk;
  }
  if (arguments.flag("check-build")) {
    return check_build(json);
  }
  if (arguments.flag("print-env")) {
    return print_environment(arguments);
  }
  const Result<void> allowed = refuse_elastic(arguments);
  if (!allowed.ok()) {
    return report_error(allowed.error(), json);
  }
  auto options = launch_options(arguments);
  if (!options.ok()) {
    return report_error(options.error(), json);
  }
  tell_ignored(arguments);
  install_interrupt_handler();
  options->interrupt_fd = interrupt_fd();
  const auto outcome = run::launch(*options);
  if (!outcome.ok()) {
    return report_error(outcome.error(), json);
  }
  fmt::print(stderr, "{}", outcome->message);
  if (outcome->interrupted) {
    return kExitInterrupted;
  }
  return outcome->failed_rank ? kExitFailed : kExitOk;
}

int run_the_guard(const Arguments& arguments) {
  return run::run_guard(arguments.text("job"), arguments.text("folder"));
}

}  // namespace

std::vector<Command> run_commands() {
  Command run;
  run.name = "run";
  run.summary = "start the ranks of a job on this machine, or on several";
  run.details =
      "Each rank is one process of COMMAND. All are told who they are by environment variables: "
      "Horovod's, torch.distributed's (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) and "
      "headrace's own. What they print comes line by line with the rank in front. When one ends "
      "with another exit code than 0, the others are stopped, and its last lines are repeated. The "
      "flags are those of horovodrun; options stand before the command.";
  run.examples = {
      "headrace run -np 4 python train.py",
      "headrace run -np 2 --output-filename logs --cpus-per-rank 4 python train.py --lr 0.1",
      "headrace run -H a:4,b:4 --agent-token-file token python train.py",
      "headrace run --print-env --fusion-threshold-mb 32 --cycle-time-ms 20"};
  run.options = run_options();
  run.rest = "command";
  run.spellings = run_spellings();
  run.run = run_job;

  Command guard;
  guard.name = "run-guard";
  guard.summary = "clean up behind a launcher";
  guard.options = {{.name = "job", .help = "id of the job", .required = true},
                   {.name = "folder", .help = "its private folder", .required = true}};
  guard.run = run_the_guard;
  guard.hidden = true;
  return {run, guard};
}

}  // namespace headrace::cli
