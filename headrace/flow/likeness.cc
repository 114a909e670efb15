// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/json.h"
#include "headrace/flow/engine.h"
#include "headrace/flow/likeness_internal.h"

namespace headrace::flow {

namespace {

constexpr size_t kNamesMax = 64;  // of an item with more members the first

bool in_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z') || byte == '_' || byte >= 0x80;
}

/// Does `name` stand at `at`, as a whole word?
bool stands_at(std::string_view text, size_t at, std::string_view name) {
  if (!text.substr(at).starts_with(name)) {
    return false;
  }
  const size_t end = at + name.size();
  const bool joined_before = at > 0 && in_word(text[at - 1]) && in_word(name.front());
  const bool joined_behind = end < text.size() && in_word(text[end]) && in_word(name.back());
  return !joined_before && !joined_behind;
}

void add_value(const std::string& what, const Json& value, ItemNames* names) {
  if (names->size() < kNamesMax && value.is_string()) {
    names->emplace_back(what, value.string());
  } else if (names->size() < kNamesMax && value.is_number()) {
    names->emplace_back(what, value.dump());
  }
}

}  // namespace

ItemNames names_of_item(std::string_view key, int64_t index, std::string_view item) {
  ItemNames names = {{"key", std::string(key)},
                     {"folder", item_folder_name(key)},
                     {"index", std::to_string(index)}};
  const auto value = parse_json(item, "item");
  if (value.ok() && value->is_object()) {
    for (const Json::Member& member : value->members()) {
      add_value("." + member.first, member.second, &names);
    }
  } else if (value.ok()) {
    add_value("item", *value, &names);
  }
  std::erase_if(names, [](const auto& name) { return name.second.empty(); });
  return names;
}

bool alike(const ItemFailure& a, const ItemFailure& b) {
  if (a.activity != b.activity || a.code != b.code) {
    return false;
  }
  size_t at_a = 0;
  size_t at_b = 0;
  while (at_a < a.message.size() && at_b < b.message.size()) {
    size_t skip_a = 0;  // the longest name wins: "a" may be the beginning of "a/b"
    size_t skip_b = 0;
    for (const auto& [what_a, name_a] : a.names) {
      if (name_a.size() <= skip_a || !stands_at(a.message, at_a, name_a)) {
        continue;
      }
      for (const auto& [what_b, name_b] : b.names) {
        if (what_a == what_b && stands_at(b.message, at_b, name_b)) {
          skip_a = name_a.size();
          skip_b = name_b.size();
        }
      }
    }
    if (skip_a == 0) {
      if (a.message[at_a] != b.message[at_b]) {
        return false;
      }
      skip_a = 1;
      skip_b = 1;
    }
    at_a += skip_a;
    at_b += skip_b;
  }
  return at_a == a.message.size() && at_b == b.message.size();
}

}  // namespace headrace::flow
