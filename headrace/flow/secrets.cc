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
constexpr std::string_view kBare = "=";  // follows kHidden for what had no quotes
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
  Secrets later;  // what engine version 5 did not take: its numbers must stay as they were
  for (const Parameter& parameter : pipeline.parameters) {
    const Json* value = parameters.find(parameter.name);
    if (value != nullptr && parameter.type == "SecureString") {
      secrets.add(*value);
    } else if (value != nullptr && parameter.secure) {
      later.add(*value);
    } else if (value != nullptr) {
      later.add_marked(*value);
    }
  }
  for (const std::string& literal : pipeline.literals) {
    secrets.add_text(literal);
  }
  for (const std::string& literal : pipeline.later_literals) {
    later.add_text(literal);
  }
  for (const std::string& text : later.texts_) {
    secrets.insert_as(text, kLaterNumber);
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
    return;
  }
  for (const Json& one : items_of(&value)) {
    add_marked(one);
  }
  for (const Json::Member& member : members_of(&value)) {
    add_marked(member.second);
  }
}

void Secrets::add(const Secrets& more) {
  for (const std::string& text : more.texts_) {
    insert(text);
  }
}

void Secrets::insert(std::string_view text) { insert_as(text, 0); }

/// "true" and "false" are looked for nowhere: half of all that is told would be hidden.
/// `first`: 0 or kLaterNumber, where the text's number is counted from. One that is known by a
/// later number takes its own all the same, so that those after it keep theirs.
void Secrets::insert_as(std::string_view text, int64_t first) {
  if (text.size() < kSecretBytesMin) {
    return;
  }
  const auto [it, fresh] = known_.try_emplace(std::string(text), std::ssize(texts_));
  const int64_t index = it->second;
  if (fresh) {
    if (!equal_ignoring_case(text, "true") && !equal_ignoring_case(text, "false")) {
      by_begin_[begin_of(text)].push_back(index);
    }
    texts_.emplace_back(text);
    numbers_.push_back(-1);
    bytes_max_ = std::max(bytes_max_, text.size());
  }
  int64_t& number = numbers_[static_cast<size_t>(index)];
  if (number < 0 || (first == 0 && number >= kLaterNumber)) {
    std::vector<int64_t>& counted = first == 0 ? counted_ : counted_later_;
    number = first + std::ssize(counted);
    counted.push_back(index);
  }
}

/// The text of a number in a journal; nullptr when there is none.
const std::string* Secrets::numbered(int64_t number) const {
  const std::vector<int64_t>& counted = number < kLaterNumber ? counted_ : counted_later_;
  const int64_t at = number < kLaterNumber ? number : number - kLaterNumber;
  return at >= 0 && at < std::ssize(counted)
             ? &texts_[static_cast<size_t>(counted[static_cast<size_t>(at)])]
             : nullptr;
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
  for (const int64_t index : it->second) {
    const std::string& one = texts_[static_cast<size_t>(index)];
    const bool longest =
        found.index < 0 || one.size() > texts_[static_cast<size_t>(found.index)].size();
    if (longest && text.starts_with(one)) {
      found.index = index;
    }
    found.unfinished =
        found.unfinished || (!last && one.size() > text.size() && one.starts_with(text));
  }
  return found;
}

/// Append `text` to `out` with secrets replaced by what `with(index)` says; returns how much of it
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
    if (found.index < 0) {
      ++at;
      continue;
    }
    out->append(text.substr(told, at - told));
    *out += with(found.index);
    at += texts_[static_cast<size_t>(found.index)].size();
    told = at;
  }
  out->append(text.substr(told, at - told));
  return at;
}

bool Secrets::found_in(std::string_view text) const {
  for (size_t at = 0; !empty() && at < text.size(); ++at) {
    if (match(text.substr(at), true).index >= 0) {
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
  if (value.is_number()) {
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
  const auto hidden = [&](std::string_view mark, int64_t index) {
    const int64_t number = numbers_[static_cast<size_t>(index)];
    return fmt::format("{}{}{}{}", kHidden, mark, number, kHiddenEnd);
  };
  std::string out;
  const auto walk = [&](const auto& self, const Json& json) -> void {
    if (json.is_string()) {
      std::string text;
      replace(as_json_writes(json.string()), true, &text,
              [&](int64_t index) { return hidden("", index); });
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
          found.index >= 0 && texts_[static_cast<size_t>(found.index)].size() == text.size();
      out += secret ? '"' + hidden(kBare, found.index) + '"' : text;
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
    const std::string* text = nullptr;
    size_t quote = 0;  // around a number or boolean, which had none
    if (end != std::string_view::npos) {
      const char* digits = json_text.data() + begin + kHidden.size();
      quote = *digits == kBare[0] && begin > 0 ? 1 : 0;
      int64_t number = -1;
      std::from_chars(digits + quote, json_text.data() + end, number);
      text = numbered(number);
    }
    if (text == nullptr) {
      break;
    }
    out.append(json_text.substr(0, begin - quote));
    out += *text;  // found in JSON text, so as JSON writes it
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

std::string_view misspelt_as(const Json& object) {
  constexpr std::string_view kSecure = "SecureString";
  constexpr std::string_view kVault = "AzureKeyVaultSecret";
  const std::string type = object.get_string("type");
  if (equal_ignoring_case(type, kSecure) || equal_ignoring_case(type, kVault)) {
    return {};
  }
  std::string letters;
  std::ranges::copy_if(type.substr(0, 100), std::back_inserter(letters),
                       [](char c) { return c != '_' && c != '-' && c != ' ' && c != '.'; });
  letters = lower_text(letters);
  // "SecretString", but not "SourceString", which a document may mean.
  const bool secure =
      letters.starts_with("sec") && edit_distance(letters, lower_text(kSecure)) <= 2;
  if (secure && object.find("value") != nullptr) {
    return kSecure;
  }
  const Json* store = object.find("store");
  const bool vault = edit_distance(letters, lower_text(kVault)) <= 3 ||
                     (store != nullptr && store->find("referenceName") != nullptr);
  return vault && store != nullptr && object.find("secretName") != nullptr ? kVault
                                                                           : std::string_view();
}

std::string misspelt_secret(const Json& value) {
  if (misspelt_as(value) == "SecureString") {
    return value.get_string("type");
  }
  std::string found;
  for (const Json& one : items_of(&value)) {
    found = found.empty() ? misspelt_secret(one) : found;
  }
  for (const Json::Member& member : members_of(&value)) {
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
      (marked_secret(value) != nullptr || misspelt_as(value) == "SecureString")) {
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
