// SPDX-License-Identifier: Apache-2.0
// A version as JSON for logs, exports and staging: everything but bytes, exact to the bit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/registry/types.h"

namespace headrace::registry {

HR_API Json new_version_json(const NewVersion& version);
/// `invalid_argument` names what is wrong; the result still goes through check_version.
HR_API Result<NewVersion> new_version_from_json(const Json& json);

/// A stored version in the same form, as exports carry it.
NewVersion as_new(const Version& version);

/// A number or "NaN", "Infinity", "-Infinity".
Result<double> double_from_json(const Json& json);
/// Exact bits of doubles as hex, 16 digits each.
std::string doubles_hex(std::span<const double> values);
Result<std::vector<double>> doubles_from_hex(std::string_view hex);

}  // namespace headrace::registry
