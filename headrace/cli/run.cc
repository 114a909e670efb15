// SPDX-License-Identifier: Apache-2.0
// `headrace run` and the processes that belong to it.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstddef>
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
#include "headrace/run/agent.h"
#include "headrace/run/agent_message.h"
#include "headrace/run/guard.h"
#include "headrace/run/launcher.h"

namespace headrace::cli {

namespace {

std::string token_file_of(const Arguments& arguments, const char* option) {
  return arguments.has(option) ? arguments.text(option)
                               : base::environment("HEADRACE_AGENT_TOKEN_FILE").value_or("");
}

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
  options.agent_port = static_cast<uint16_t>(*arguments.integer("agent-port"));
  options.token_file = token_file_of(arguments, "agent-token-file");
  options.ssh.port = static_cast<int>(arguments.integer("ssh-port").value_or(0));
  options.ssh.identity_file = arguments.text("ssh-identity-file");
  options.ssh.enabled =
      arguments.flag("ssh") || arguments.has("ssh-port") || arguments.has("ssh-identity-file");
  options.verbose = arguments.flag("verbose");
  options.function_file = arguments.text("function-file");
  options.results_folder = arguments.text("results-folder");
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
  // Meant for a rank; its default would end the job. A handler, for what is ignored stays so in
  // ranks.
  ::signal(SIGUSR2, [](int) {});
  options->interrupt_fd = interrupt_fd();
  const auto outcome = run::launch(*options);
  if (!outcome.ok()) {
    return report_error(outcome.error(), json);
  }
  fmt::print(stderr, "{}", outcome->message);
  if (arguments.has("results-folder")) {
    const auto kept = base::replace_file(base::Path(arguments.text("results-folder")) / "message",
                                         outcome->message);
    if (!kept.ok()) {
      return report_error(kept.error(), json);
    }
  }
  if (outcome->interrupted) {
    return kExitInterrupted;
  }
  return outcome->failed_rank ? kExitFailed : kExitOk;
}

/// From a file; or the first 32 bytes of standard input, at whose end the agent is to end.
Result<wire::Secret> agent_token(const Arguments& arguments) {
  if (arguments.flag("token-stdin")) {
    std::array<std::byte, wire::Secret::kBytes> bytes = {};
    for (size_t have = 0; have < bytes.size();) {
      const ssize_t count = ::read(STDIN_FILENO, bytes.data() + have, bytes.size() - have);
      if (count <= 0) {
        return Error{
            Errc::invalid_argument,
            fmt::format("the token on standard input has {} bytes of {}", have, bytes.size())};
      }
      have += static_cast<size_t>(count);
    }
    return wire::Secret::from_bytes(bytes);
  }
  const std::string file = token_file_of(arguments, "token-file");
  if (file.empty()) {
    return Error{Errc::invalid_argument,
                 "no token is given: --token-file FILE, 32 random bytes that the launchers have "
                 "too: (umask 077; head -c 32 /dev/urandom > FILE)"};
  }
  HR_TRY(auto token, wire::Secret::read_file(file), "the agent's token");
  return token;
}

Result<void> serve(const Arguments& arguments) {
  HR_TRY(auto listen, wire::Endpoint::parse(arguments.text("listen")));
  HR_TRY(const auto token, agent_token(arguments));
  install_interrupt_handler();
  run::AgentOptions options;
  HR_TRY(options.program, own_program());
  options.listen = std::move(listen);
  options.token = &token;
  options.once = arguments.flag("once");
  options.interrupt_fd = interrupt_fd();
  options.owner_fd = arguments.flag("token-stdin")
                         ? STDIN_FILENO
                         : static_cast<int>(arguments.integer("owner-fd").value_or(-1));
  options.on_listening = [](const wire::Endpoint& endpoint) {
    fmt::print("{}{}\n", run::kAgentListening, endpoint.text());
    std::fflush(stdout);
  };
  return run::serve_agent(options);
}

int run_agent(const Arguments& arguments) {
  const auto served = serve(arguments);
  if (!served.ok()) {
    return report_error(served.error(), arguments.flag("json"));
  }
  return interrupted() ? kExitInterrupted : kExitOk;
}

int run_the_guard(const Arguments& arguments) {
  return run::run_guard(arguments.text("id"), arguments.text("folder"));
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
  guard.options = {{.name = "id", .help = "id of the guard", .required = true},
                   {.name = "folder", .help = "its private folder", .required = true}};
  guard.run = run_the_guard;
  guard.hidden = true;

  Command agent;
  agent.name = "agent";
  agent.summary = "start ranks on this machine for a launcher on another one";
  agent.details =
      "It runs until it is interrupted, and takes orders of who knows its token: the launcher and "
      "the agent prove that to one another before anything else is said. Ranks get the launcher's "
      "environment and working folder; what they print goes back to it. When either side goes, no "
      "rank stays. What is said is not encrypted: keep to networks that you trust.";
  agent.examples = {"headrace agent --token-file token",
                    "headrace agent --token-file token --listen 10.0.0.5:7461"};
  agent.options = {
      {.name = "--token-file",
       .help = "file of 32 random bytes, mode 0600, the same on all hosts; default: "
               "HEADRACE_AGENT_TOKEN_FILE"},
      {.name = "--listen",
       .help = "address and port; port 0: one that is free",
       .default_text = fmt::format("0.0.0.0:{}", run::kAgentPort)},
      {.name = "--token-stdin",
       .help = "read the token from standard input, and end at its end",
       .kind = OptionKind::flag},
      {.name = "--once", .help = "end after the first launcher", .kind = OptionKind::flag},
      {.name = "--owner-fd",
       .help = "descriptor at whose end the agent ends",
       .kind = OptionKind::integer,
       .at_least = 0,
       .hidden = true}};
  agent.run = run_agent;
  return {run, agent, guard};
}

}  // namespace headrace::cli
