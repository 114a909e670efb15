// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/secrets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "headrace/base/environment.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/text.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

namespace {

constexpr std::string_view kMask = "***";
// In JSON text an escaped control character, which no secret's own text can hold.
constexpr std::string_view kHidden = "\\u0000secret ";
constexpr char kBare = '=';  // follows kHidden for what had no quotes
constexpr std::string_view kHiddenEnd = "\\u0000";

uint32_t begin_of(std::string_view text) {
  uint32_t begin = 0;
  std::memcpy(&begin, text.data(), sizeof begin);
  return begin;
}
static_assert(sizeof(uint32_t) == kSecretBytesMin);

/// What {"type": "SecureString", "value"} holds; nullptr when this is no such object.
const Json* marked_secret(const Json& value) {
  return value.is_object() && equal_ignoring_case(value.get_string("type"), "SecureString")
             ? value.find("value")
             : nullptr;
}

std::string as_json_writes(std::string_view text) {
  const std::string quoted = json_quote(text);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

Secrets Secrets::of_run(const Pipeline& pipeline, const Json& parameters) {
  Secrets secrets;
  for (const Parameter& parameter : pipeline.parameters) {
    const Json* value = parameters.find(parameter.name);
    if (value != nullptr && parameter.secure) {
      secrets.add(*value);
    } else if (value != nullptr) {
      secrets.add_marked(*value);
    }
  }
  for (const std::string& literal : pipeline.literals) {
    secrets.add_text(literal);
  }
  return secrets;
}

void Secrets::add(const Json& value) {
  if (value.is_string()) {
    add_text(value.string());
  } else if (value.is_number()) {
    add_text(value.dump());
  } else if (value.is_array()) {
    for (const Json& one : value.items()) {
      add(one);
    }
  } else if (value.is_object()) {
    for (const Json::Member& member : value.members()) {
      add(member.second);
    }
  }
}

void Secrets::add_marked(const Json& value) {
  if (const Json* secret = marked_secret(value)) {
    add(*secret);
    if (secret->is_bool()) {
      add_text(secret->dump());
      add_text(value_text(*secret));
    }
    return;
  }
  for (const Json& one : value.is_array() ? value.items() : Json::Array{}) {
    add_marked(one);
  }
  for (const Json::Member& member : value.is_object() ? value.members() : Json::Object{}) {
    add_marked(member.second);
  }
}

void Secrets::add(const Secrets& more) {
  for (const std::string& text : more.texts_) {
    insert(text);
  }
}

void Secrets::insert(std::string_view text) {
  if (text.size() < kSecretBytesMin || !known_.emplace(text).second) {
    return;
  }
  by_begin_[begin_of(text)].push_back(std::ssize(texts_));
  texts_.emplace_back(text);
  bytes_max_ = std::max(bytes_max_, text.size());
}

void Secrets::add_text(std::string_view text) {
  insert(text);
  insert(as_json_writes(text));
  for (size_t begin = 0; text.find('\n') != std::string_view::npos && begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    line = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
    insert(trim_text(line));
    begin = end + 1;
  }
}

Secrets::Match Secrets::match(std::string_view text, bool last) const {
  Match found;
  if (text.size() < kSecretBytesMin) {
    found.unfinished = !last && std::ranges::any_of(texts_, [&](const std::string& one) {
      return one.starts_with(text);
    });
    return found;
  }
  const auto it = by_begin_.find(begin_of(text));
  if (it == by_begin_.end()) {
    return found;
  }
  for (const int64_t number : it->second) {
    const std::string& one = texts_[static_cast<size_t>(number)];
    const bool longest =
        found.number < 0 || one.size() > texts_[static_cast<size_t>(found.number)].size();
    if (longest && text.starts_with(one)) {
      found.number = number;
    }
    found.unfinished =
        found.unfinished || (!last && one.size() > text.size() && one.starts_with(text));
  }
  return found;
}

/// Append `text` to `out` with secrets replaced by what `with(number)` says; returns how much of it
/// was told.
template <typename Replace>
size_t Secrets::replace(std::string_view text, bool last, std::string* out,
                        const Replace& with) const {
  size_t told = 0;
  size_t at = 0;
  while (at < text.size()) {
    const Match found = match(text.substr(at), last);
    if (found.unfinished) {
      break;
    }
    if (found.number < 0) {
      ++at;
      continue;
    }
    out->append(text.substr(told, at - told));
    *out += with(found.number);
    at += texts_[static_cast<size_t>(found.number)].size();
    told = at;
  }
  out->append(text.substr(told, at - told));
  return at;
}

bool Secrets::found_in(std::string_view text) const {
  for (size_t at = 0; !empty() && at < text.size(); ++at) {
    if (match(text.substr(at), true).number >= 0) {
      return true;
    }
  }
  return false;
}

std::string Secrets::masked(std::string_view text) const {
  if (empty()) {
    return std::string(text);
  }
  std::string out;
  replace(text, true, &out, [](int64_t) { return kMask; });
  return out;
}

Json Secrets::masked_value(Json value) const {
  if (empty()) {
    return value;
  }
  if (value.is_string()) {
    return Json(masked(value.string()));
  }
  if (value.is_number() || value.is_bool()) {
    return found_in(value.dump()) ? Json(kMask) : value;
  }
  if (value.is_array()) {
    for (Json& one : value.items()) {
      one = masked_value(std::move(one));
    }
  } else if (value.is_object()) {
    for (Json::Member& member : value.members()) {
      member.first = masked(member.first);
      member.second = masked_value(std::move(member.second));
    }
  }
  return value;
}

std::string Secrets::hide(std::string_view json_text) const {
  // A number or boolean becomes a string with a mark of its own, so that it stays JSON.
  const auto value = empty() ? Result<Json>(Json()) : parse_json(json_text, "item");
  if (empty() || !value.ok()) {
    return std::string(json_text);
  }
  std::string out;
  const auto walk = [&](const auto& self, const Json& json) -> void {
    if (json.is_string()) {
      std::string text;
      replace(as_json_writes(json.string()), true, &text,
              [](int64_t number) { return fmt::format("{}{}{}", kHidden, number, kHiddenEnd); });
      out += '"' + text + '"';
    } else if (json.is_array()) {
      out += '[';
      for (const Json& one : json.items()) {
        out += &one == json.items().data() ? "" : ",";
        self(self, one);
      }
      out += ']';
    } else if (json.is_object()) {
      out += '{';
      for (const Json::Member& member : json.members()) {
        out += &member == json.members().data() ? "" : ",";
        out += json_quote(member.first) + ":";
        self(self, member.second);
      }
      out += '}';
    } else {
      const std::string text = json.dump();
      const Match found = match(text, true);
      const bool secret =
          found.number >= 0 && texts_[static_cast<size_t>(found.number)].size() == text.size();
      out += secret ? fmt::format("\"{}{}{}{}\"", kHidden, kBare, found.number, kHiddenEnd) : text;
    }
  };
  walk(walk, *value);
  return out;
}

std::string Secrets::reveal(std::string_view json_text) const {
  std::string out;
  while (!empty()) {
    const size_t begin = json_text.find(kHidden);
    const size_t end = begin == std::string_view::npos
                           ? begin
                           : json_text.find(kHiddenEnd, begin + kHidden.size());
    size_t number = texts_.size();
    size_t quote = 0;  // around a number or boolean, which had none
    if (end != std::string_view::npos) {
      const char* digits = json_text.data() + begin + kHidden.size();
      quote = *digits == kBare && begin > 0 ? 1 : 0;
      std::from_chars(digits + quote, json_text.data() + end, number);
    }
    if (number >= texts_.size()) {
      break;
    }
    out.append(json_text.substr(0, begin - quote));
    out += texts_[number];  // found in JSON text, so as JSON writes it
    json_text.remove_prefix(std::min(json_text.size(), end + kHiddenEnd.size() + quote));
  }
  out.append(json_text);
  return out;
}

void SecretStream::add(std::string_view bytes, std::string* out) {
  if (secrets_.empty()) {
    out->append(bytes);
    return;
  }
  held_ += bytes;
  held_.erase(0, secrets_.replace(held_, false, out, [](int64_t) { return kMask; }));
}

void SecretStream::finish(std::string* out) {
  secrets_.replace(held_, true, out, [](int64_t) { return kMask; });
  held_.clear();
}

std::string vault_variable(std::string_view store, std::string_view name) {
  std::string variable = "HEADRACE_SECRET_";
  for (const std::string_view part : {store, std::string_view("_"), name}) {
    for (const char c : part) {
      const bool lower = c >= 'a' && c <= 'z';
      const bool kept = (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      variable += lower ? static_cast<char>(c - 'a' + 'A') : kept ? c : '_';
    }
  }
  return variable;
}

Result<std::string> vault_secret(std::string_view store, std::string_view name) {
  const std::string variable = vault_variable(store, name);
  auto value = base::environment(variable);
  if (!value) {
    return Error{Errc::not_found,
                 fmt::format("the secret '{}' of the key vault '{}' is not known here; give it in "
                             "the environment variable {}",
                             name, store, variable)};
  }
  return *std::move(value);
}

bool means_secure_string(std::string_view type) {
  constexpr size_t kFar = 3;
  std::string letters;
  std::ranges::copy_if(type.substr(0, 100), std::back_inserter(letters),
                       [](char c) { return c != '_' && c != '-' && c != ' ' && c != '.'; });
  return edit_distance(lower_text(letters), "securestring") <= kFar;
}

std::string misspelt_secret(const Json& value) {
  const std::string type = value.get_string("type");
  if (value.find("value") != nullptr && marked_secret(value) == nullptr &&
      means_secure_string(type)) {
    return type;
  }
  std::string found;
  for (const Json& one : value.is_array() ? value.items() : Json::Array{}) {
    found = found.empty() ? misspelt_secret(one) : found;
  }
  for (const Json::Member& member : value.is_object() ? value.members() : Json::Object{}) {
    found = found.empty() ? misspelt_secret(member.second) : found;
  }
  return found;
}

bool has_marked_secret(const Json& value) {
  if (marked_secret(value) != nullptr) {
    return true;
  }
  if (value.is_array()) {
    return std::ranges::any_of(value.items(), has_marked_secret);
  }
  return value.is_object() && std::ranges::any_of(value.members(), [](const Json::Member& member) {
           return has_marked_secret(member.second);
         });
}

Json without_marked_secrets(Json value) {
  if (value.find("value") != nullptr &&
      (marked_secret(value) != nullptr || means_secure_string(value.get_string("type")))) {
    value.set("value", kMask);
    return value;
  }
  if (value.is_array()) {
    for (Json& one : value.items()) {
      one = without_marked_secrets(std::move(one));
    }
  } else if (value.is_object()) {
    for (Json::Member& member : value.members()) {
      member.second = without_marked_secrets(std::move(member.second));
    }
  }
  return value;
}

}  // namespace headrace::flow
