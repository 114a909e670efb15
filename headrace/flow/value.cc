// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/value.h"

#include <algorithm>

#include "headrace/flow/secrets.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

void append_value_text(const Json& value, std::string* out) {
  switch (value.kind()) {
    case Json::Kind::null: return;
    case Json::Kind::boolean: *out += value.boolean() ? "True" : "False"; return;
    case Json::Kind::string: *out += value.string(); return;
    case Json::Kind::integer: *out += std::to_string(value.integer()); return;
    case Json::Kind::real: *out += number_text(value.number()); return;
    default: value.dump_to(out);
  }
}

std::string value_text(const Json& value) {
  std::string out;
  append_value_text(value, &out);
  return out;
}

bool equal_values(const Json& a, const Json& b) {
  if (a.is_bool() && b.is_number()) {
    return b.number() == (a.boolean() ? 1.0 : 0.0);
  }
  if (b.is_bool() && a.is_number()) {
    return equal_values(b, a);
  }
  if (a.is_array() && b.is_array()) {
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                      equal_values);
  }
  if (a.is_object() && b.is_object()) {
    return a.members().size() == b.members().size() &&
           std::all_of(a.members().begin(), a.members().end(), [&](const Json::Member& member) {
             const Json* other = b.find(member.first);
             return other != nullptr && equal_values(member.second, *other);
           });
  }
  return a == b;
}

Result<const Json*> find_property(const Json& object, std::string_view name) {
  if (const Json* exact = object.find(name)) {
    return exact;
  }
  const Json* found = nullptr;
  for (const Json::Member& member : object.members()) {
    if (equal_ignoring_case(member.first, name)) {
      if (found != nullptr) {
        return Error{Errc::invalid_argument,
                     "property '" + std::string(name) +
                         "' is ambiguous: several properties differ from it only in case"};
      }
      found = &member.second;
    }
  }
  return found;
}

std::string describe_value(const Json& value) {
  constexpr size_t kTextMax = 40;
  if (value.is_null()) {
    return "null";
  }
  std::string text = value.is_string() ? value.string() : without_marked_secrets(value).dump();
  if (value.is_string() && lower_text(text).find("securestring") != std::string::npos) {
    text = "***";  // JSON of one that could not be read
  }
  if (text.size() > kTextMax) {
    size_t cut = kTextMax;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) {
      --cut;  // not inside a character
    }
    text = text.substr(0, cut) + "...";
  }
  return std::string(value.kind_name()) + (value.is_string() ? " '" + text + "'" : " " + text);
}

}  // namespace headrace::flow
