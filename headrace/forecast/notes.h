// SPDX-License-Identifier: Apache-2.0
// What is to be said of single items, told of many at once.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"

namespace headrace::forecast {

/// A sentence about an item; without an item about all of them.
struct Note {
  std::string item;
  std::string text;
};

/// A sentence for all items of which the same is said, but for its numbers, in the order in which
/// they are first said: `12 items (a, b, c, ...): ...`. Where numbers differ those of the first
/// item stand for them: `12 items (a, b, c, ...), of the first: ...`.
HR_API std::vector<std::string> group_notes(std::span<const Note> notes);

/// The first names and, with more of them, "...".
HR_API std::string name_some(std::span<const std::string> names);

}  // namespace headrace::forecast
