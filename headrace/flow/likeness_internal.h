// SPDX-License-Identifier: Apache-2.0
// Whether items of a ForEach failed for one and the same reason.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::flow {

/// What may stand for an item in a message, by what it is: its key, the name of its folder, its
/// index, and the texts and numbers of the item itself or of its members.
using ItemNames = std::vector<std::pair<std::string, std::string>>;

/// `index` counts from 0; `item` is JSON.
ItemNames names_of_item(std::string_view key, int64_t index, std::string_view item);

/// Why one item failed.
struct ItemFailure {
  std::string activity;
  std::string code;
  std::string message;
  ItemNames names;
};

/// Are two failures identical but for the items they befell? The same activity, the same code, and
/// the same message, except where both name their own item in the same way: "no column y in
/// lake/a.csv" is "no column y in lake/b.csv" when a and b are the keys. A name counts where no
/// letter, digit or underscore adjoins it. Numbers that differ otherwise, times and process ids
/// make two failures different: in doubt they are.
bool alike(const ItemFailure& a, const ItemFailure& b);

}  // namespace headrace::flow
