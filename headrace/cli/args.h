// SPDX-License-Identifier: Apache-2.0
// From the words of a command line to one command and its arguments, or to the text that explains
// why not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/cli/command.h"

namespace headrace::cli {

/// What a command line asks for: a command to run, or text to print and an exit code.
struct Parsed {
  const Command* command = nullptr;  ///< nullptr: print `text` and leave with `exit_code`
  Arguments arguments;
  std::string text;    ///< help, version or the error; ends in a newline
  bool error = false;  ///< `text` belongs on stderr
  int exit_code = kExitOk;
};

/// Read `words` (argv without the program's name). Pure: prints nothing, runs nothing.
///
/// Commands are found by their longest leading words; `--help`, `--version` and `--json` may stand
/// before them. An unknown command or option is answered with the nearest name.
Parsed parse_command_line(const std::vector<Command>& commands,
                          const std::vector<std::string>& words, std::string_view version);

/// The text of `headrace --help`, `headrace NOUN --help` and `headrace NOUN VERB --help`.
std::string root_help(const std::vector<Command>& commands, std::string_view version);
std::string noun_help(const std::vector<Command>& commands, std::string_view noun);
std::string command_help(const Command& command);

/// The candidate nearest to `word` by edits, or "" when none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace headrace::cli
