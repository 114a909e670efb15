// SPDX-License-Identifier: Apache-2.0
// Text as Data Factory counts and compares it: UTF-16 positions, invariant case, white space; and
// the nearest of some names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/export.h"

namespace headrace::flow {

/// Number of UTF-16 code units of well-formed UTF-8: what `length` counts.
int64_t utf16_length(std::string_view text);

/// UTF-8 to UTF-16 and back. Half of a surrogate pair becomes U+FFFD.
std::u16string to_utf16(std::string_view text);
std::string from_utf16(std::u16string_view text);

/// Simple (one to one) Unicode case mapping, independent of any locale.
std::string lower_text(std::string_view text);
std::string upper_text(std::string_view text);
/// `lower_text(a) == lower_text(b)`, without copies for ASCII.
HR_API bool equal_ignoring_case(std::string_view a, std::string_view b);

/// Without white space (Unicode property White_Space) at both ends.
std::string_view trim_text(std::string_view text);

/// Least number of edits from one to the other: insert, delete, replace, swap neighbours.
size_t edit_distance(std::string_view a, std::string_view b);

/// The name closest to `wanted` by edit distance without regard to case, when it is close enough to
/// be meant (distance at most a third of the length, at least 1).
HR_API std::optional<std::string> nearest_name(std::string_view wanted,
                                               std::span<const std::string> names);

/// "; did you mean 'x'?" or "".
HR_API std::string did_you_mean(std::string_view wanted, std::span<const std::string> names);

/// "'a', 'b', 'c'" with at most `count_max` names, then ", ...". "none" when there are none.
HR_API std::string name_list(std::span<const std::string> names, size_t count_max = 10);

}  // namespace headrace::flow
