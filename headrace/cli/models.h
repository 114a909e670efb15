// SPDX-License-Identifier: Apache-2.0
// What the files of `headrace models` share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/cli/command.h"
#include "headrace/registry/registry.h"

namespace headrace::cli::models {

/// `--registry`, which every command takes.
Option registry_option();

enum class Access { read, write, create };
Result<registry::Registry> open_registry(const Arguments& arguments, Access access);

/// Run `body`; print its error as `report_error` does.
int finish(const Arguments& arguments, const Result<int>& result);

/// The options that choose versions: pattern, run, where, ...; and the query they make.
std::vector<Option> selection_options();
Result<registry::Query> selection(const Arguments& arguments, std::string_view pattern);

void print_json(const Json& value);
std::string number(double value);  ///< four digits, "NaN", "inf"

std::string joined(const std::vector<std::string>& texts);  ///< with commas between them
/// A metric of what was compared with a version, such as "seasonal_naive.mase".
bool is_of_candidate(const std::string& metric);

Command list_command();
std::vector<Command> reading_commands();
std::vector<Command> changing_commands();

}  // namespace headrace::cli::models
