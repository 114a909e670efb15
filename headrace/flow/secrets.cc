// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/secrets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "headrace/base/environment.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

constexpr std::string_view kMask = "***";
// In JSON text an escaped control character, which no secret's own text can hold.
constexpr std::string_view kHidden = "\\u0000secret ";
constexpr std::string_view kHiddenEnd = "\\u0000";

uint32_t begin_of(std::string_view text) {
  uint32_t begin = 0;
  std::memcpy(&begin, text.data(), sizeof begin);
  return begin;
}
static_assert(sizeof(uint32_t) == kSecretBytesMin);

std::string as_json_writes(std::string_view text) {
  const std::string quoted = json_quote(text);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

Secrets Secrets::of_run(const Pipeline& pipeline, const Json& parameters) {
  Secrets secrets;
  for (const Parameter& parameter : pipeline.parameters) {
    const Json* value =
        parameter.type == "SecureString" ? parameters.find(parameter.name) : nullptr;
    if (value != nullptr) {
      secrets.add(*value);
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
  // Only what is inside a string: a number that reads as a secret would leave no JSON.
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
      out += json.dump();
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
    if (end != std::string_view::npos) {
      std::from_chars(json_text.data() + begin + kHidden.size(), json_text.data() + end, number);
    }
    if (number >= texts_.size()) {
      break;
    }
    out.append(json_text.substr(0, begin));
    out += texts_[number];  // found in JSON text, so as JSON writes it
    json_text.remove_prefix(end + kHiddenEnd.size());
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

namespace {

class Finder {
 public:
  explicit Finder(Pipeline* pipeline)
      : pipeline_(*pipeline), text_(pipeline->source->text()), shown_(text_) {}

  void walk(const Json& json) {
    if (json.is_array()) {
      for (const Json& one : json.items()) {
        walk(one);
      }
    }
    if (!json.is_object()) {
      return;
    }
    const std::string type = json.get_string("type");
    if (equal_ignoring_case(type, "AzureKeyVaultSecret")) {
      take_vault(json);
      return;
    }
    const bool secret = equal_ignoring_case(type, "SecureString");
    for (const Json::Member& member : json.members()) {
      if (secret && (member.first == "value" || member.first == "defaultValue")) {
        take_secret(member.second);
      }
      walk(member.second);
    }
  }

  void finish() {
    // From the back, so that the places before stay.
    std::sort(spans_.rbegin(), spans_.rend());
    for (const auto& [begin, end] : spans_) {
      shown_.replace(begin, end - begin, "\"***\"");
    }
    if (!spans_.empty()) {
      pipeline_.shown_text = std::move(shown_);
    }
  }

 private:
  void take_secret(const Json& value) {
    if (!value.is_string() || value.offset() < 0) {
      return;  // the text inside of an object {"type": "SecureString"} comes later
    }
    pipeline_.literals.push_back(value.string());
    const auto begin = static_cast<size_t>(value.offset());
    size_t end = begin + 1;
    while (end < text_.size() && text_[end] != '"') {
      end += text_[end] == '\\' ? 2 : 1;
    }
    if (begin < text_.size() && text_[begin] == '"' && end < text_.size()) {
      spans_.emplace_back(begin, end + 1);
    }
  }

  void take_vault(const Json& json) {
    const Json* store = json.find("store");
    const Json* place = store != nullptr ? store->find("referenceName") : nullptr;
    const Json* name = json.find("secretName");
    const auto computed = [](const Json* value) {
      return value != nullptr &&
             (value->is_object() ||
              (value->is_string() && Expression::is_expression(value->string())));
    };
    const auto text = [](const Json* value) {
      return value != nullptr && value->is_string() ? value->string() : std::string();
    };
    pipeline_.vault.push_back(
        {text(place), text(name), computed(place) || computed(name), json.offset()});
  }

  Pipeline& pipeline_;
  const std::string& text_;
  std::string shown_;
  std::vector<std::pair<size_t, size_t>> spans_;
};

}  // namespace

void find_secrets(const Json& root, Pipeline* pipeline) {
  Finder finder(pipeline);
  finder.walk(root);
  finder.finish();
}

}  // namespace headrace::flow
