// SPDX-License-Identifier: Apache-2.0
// Outputs that must not be in the journal: RUN/secrets.outputs, readable by its owner alone. A run
// that goes on, or is looked at, computes again what its control activities made of them.
#pragma once

#include <map>
#include <string>

#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::flow {

/// Durable on return. Answers the key that the journal keeps in the output's place.
Result<std::string> keep_secret_output(const base::Path& run_folder, const std::string& output);

/// By key; empty without the file. A torn last line is left out: nothing points to it.
Result<std::map<std::string, std::string>> read_secret_outputs(const base::Path& run_folder);

}  // namespace headrace::flow
