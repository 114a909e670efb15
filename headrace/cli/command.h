// SPDX-License-Identifier: Apache-2.0
// Commands as data: each plane's file lists its commands, `args.cc` alone knows the parser library.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.h"

namespace headrace::cli {

/// Exit codes, the same for every command (docs/reference/cli.md).
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed =
    1;  ///< it ran, and part or all of it failed; findings; nothing matched
inline constexpr int kExitUsage =
    2;  ///< bad arguments or invalid input documents; nothing was started
inline constexpr int kExitCancelled = 3;      ///< cancelled from outside (`headrace flow cancel`)
inline constexpr int kExitInterrupted = 130;  ///< Ctrl-C; what can be resumed can be resumed

enum class OptionKind { flag, text, integer, number };

struct Option {
  std::string
      name;  ///< "--horizon", or "-p,--param" with a short form; positionals have no dash: "table"
  std::string help = {};  ///< one line, units included
  OptionKind kind = OptionKind::text;
  std::string default_text = {};  ///< shown in --help; also the value when absent ("" = absent)
  bool required = false;
  bool repeated = false;                  ///< may be given several times / several positionals
  std::vector<std::string> choices = {};  ///< closed set of values, if any
  double at_least = -std::numeric_limits<double>::infinity();  ///< of an integer or a number
  double at_most = std::numeric_limits<double>::infinity();
  bool hidden = false;  ///< for our own processes: in no help and no suggestion
  /// Names that others have for it, without dashes: answered with this one ("prediction-length").
  std::vector<std::string> elsewhere = {};
};

/// What was given on the command line; names without dashes ("horizon", "table").
class Arguments {
 public:
  bool has(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::string text(std::string_view name) const;  ///< "" when absent and without default
  std::vector<std::string> texts(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  void add(std::string name, std::string value);

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

struct Command {
  std::string name;          ///< "forecast train"
  std::string summary = {};  ///< one line
  std::string details = {};  ///< further paragraphs of --help, may be empty
  std::vector<std::string> examples =
      {};  ///< whole command lines, shown in --help; each must work as written
  std::vector<Option> options = {};          ///< `--json` and `--help` are added to every command
  std::function<int(const Arguments&)> run;  ///< returns an exit code
  /// The positional that takes another program's command line: the first word that is none of ours
  /// and all that follow, as they are. "" = none.
  std::string rest = {};
  /// Words that others have for options of ours, dashes included: {"-np", "--num-proc"}.
  std::vector<std::pair<std::string, std::string>> spellings = {};
  bool hidden = false;  ///< for our own processes: in no help and no suggestion
};

/// Print `error` to stderr as "headrace: MESSAGE" (with --json: {"error": {"code", "message"}} to
/// stdout) and return the exit code that fits it: kExitUsage for invalid_argument and not_found,
/// else kExitFailed.
int report_error(const Error& error, bool json);

std::vector<Command> forecast_commands();
std::vector<Command> flow_commands();
std::vector<Command> models_commands();
std::vector<Command> lake_commands();
std::vector<Command> doctor_commands();
std::vector<Command> timeline_commands();
std::vector<Command> run_commands();

}  // namespace headrace::cli
