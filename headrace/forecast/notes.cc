// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace headrace::forecast {

namespace {

constexpr size_t kNamesMax = 5;

/// The sentence with "#" in the place of its numbers.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) {
      out += c;
    } else if (!out.ends_with('#')) {
      out += '#';
    }
  }
  return out;
}

/// Items of which one kind of sentence is said.
struct Group {
  std::string first;  ///< sentence
  bool same = true;   ///< numbers too
  std::vector<std::string> items;
  std::unordered_set<std::string> known;
};

std::string sentence(const Group& group) {
  if (group.items.empty()) {
    return group.first;
  }
  if (group.items.size() == 1) {
    return fmt::format("item \"{}\": {}", group.items.front(), group.first);
  }
  return fmt::format("{} items ({}){}: {}", group.items.size(), name_some(group.items),
                     group.same ? "" : ", of the first", group.first);
}

}  // namespace

std::string name_some(std::span<const std::string> names) {
  const auto shown = names.first(std::min(names.size(), kNamesMax));
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kNamesMax ? ", ..." : "");
}

std::vector<std::string> group_notes(std::span<const Note> notes) {
  std::vector<Group> groups;
  std::unordered_map<std::string, size_t> places;
  for (const Note& note : notes) {
    // What is said of all is said with its numbers.
    const std::string key = note.item.empty() ? note.text : "item " + without_numbers(note.text);
    const auto [place, added] = places.try_emplace(key, groups.size());
    if (added) {
      groups.push_back({note.text, true, {}, {}});
    }
    Group& group = groups[place->second];
    group.same = group.same && group.first == note.text;
    if (!note.item.empty() && group.known.insert(note.item).second) {
      group.items.push_back(note.item);
    }
  }
  std::vector<std::string> out;
  for (const Group& group : groups) {
    out.push_back(sentence(group));
  }
  return out;
}

}  // namespace headrace::forecast
