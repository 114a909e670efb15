// SPDX-License-Identifier: Apache-2.0
// The one door to environment variables; docs/reference/environment.md lists those that are read.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/export.h"

namespace headrace::base {

/// Value of an environment variable; empty when it is not set or set to "". Read at each call: what
/// the caller finds once at its start it keeps itself.
HR_API std::optional<std::string> environment(const std::string& name);

/// All of them, empty ones too, for a process elsewhere that is to have the same.
HR_API std::vector<std::pair<std::string, std::string>> whole_environment();

}  // namespace headrace::base
