// SPDX-License-Identifier: Apache-2.0
// The flags of `headrace run` and what they say.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/cli/command.h"
#include "headrace/run/placement.h"
#include "headrace/run/rank_environment.h"

namespace headrace::cli {

std::vector<Option> run_options();
std::vector<std::pair<std::string, std::string>> run_spellings();

/// Variables of the configuration file and of the flags above it.
Result<run::Variables> engine_variables_of(const Arguments& arguments);
Result<std::vector<run::Host>> hosts_of(const Arguments& arguments);
/// --start-timeout, else HEADRACE_START_TIMEOUT, HOROVOD_START_TIMEOUT, 30.
Result<int64_t> start_timeout_of(const Arguments& arguments);
/// `invalid_argument` for bad values of the flags of elastic jobs, `unsupported` for good ones.
Result<void> refuse_elastic(const Arguments& arguments);
/// A line for each flag given that has no effect here.
void tell_ignored(const Arguments& arguments);
/// Path of this binary.
Result<std::string> own_program();

/// `--check-build`: what works here, and why the rest does not.
int check_build(bool json);

}  // namespace headrace::cli
