// SPDX-License-Identifier: Apache-2.0
// Text that a table or a program named, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/export.h"

namespace headrace::base {

/// `text` as a terminal may have it: control characters (C0, DEL, C1) as \\x1b, those that turn the
/// direction of text, separate lines or cannot be seen as \\u202e, so that what a table or a
/// program named cannot move the cursor, set colours, forge lines or read as something else. With
/// `lines`, line ends and tabs stay. Twice is the same as once.
HR_API std::string printable(std::string_view text, bool lines = false);

}  // namespace headrace::base
