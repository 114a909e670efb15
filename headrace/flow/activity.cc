// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/activity.h"

namespace headrace::flow {

void ActivityTable::add(ActivityType type) {
  std::string name = type.type;
  types_.insert_or_assign(std::move(name), std::move(type));
}

const ActivityType* ActivityTable::find(std::string_view type) const {
  const auto it = types_.find(type);
  return it == types_.end() ? nullptr : &it->second;
}

std::vector<std::string> ActivityTable::names() const {
  std::vector<std::string> names;
  for (const auto& [name, type] : types_) {
    if (!type.hidden) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace headrace::flow
