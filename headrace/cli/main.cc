// SPDX-License-Identifier: Apache-2.0
// The binary `headrace`: collect the commands of all planes, read the command line, run one.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "headrace/cli/args.h"
#include "headrace/cli/command.h"

namespace {

using headrace::cli::Command;

void append(std::vector<Command>* all, std::vector<Command> more) {
  for (Command& command : more) {
    all->push_back(std::move(command));
  }
}

std::vector<Command> all_commands() {
  std::vector<Command> commands;
  append(&commands, headrace::cli::forecast_commands());
  append(&commands, headrace::cli::flow_commands());
  append(&commands, headrace::cli::models_commands());
  append(&commands, headrace::cli::lake_commands());
  append(&commands, headrace::cli::timeline_commands());
  append(&commands, headrace::cli::run_commands());
  append(&commands, headrace::cli::doctor_commands());
  return commands;
}

int run(int argc, char** argv) {
  const std::vector<Command> commands = all_commands();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const headrace::cli::Parsed parsed =
      headrace::cli::parse_command_line(commands, words, HEADRACE_VERSION);
  if (parsed.command == nullptr) {
    fmt::print(parsed.error ? stderr : stdout, "{}", parsed.text);
    return parsed.exit_code;
  }
  const int exit_code = parsed.command->run(parsed.arguments);
  // What could not be written was not done: a full disk or a closed pipe must not look like
  // success.
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!written && exit_code == headrace::cli::kExitOk) {
    std::fputs("headrace: cannot write to standard output: the disk is full or it is closed\n",
               stderr);
    return headrace::cli::kExitFailed;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  // Whoever started us may have ignored it, and then the kernel takes our children's ends.
  std::signal(SIGCHLD, SIG_DFL);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    // Ours are values, but fmt::print throws when its stream takes no more, and memory may end.
    std::fprintf(stderr, "headrace: %s\n", error.what());
    return headrace::cli::kExitFailed;
  }
}
