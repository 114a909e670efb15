// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/reference.h"

#include <algorithm>
#include <charconv>

#include "headrace/base/json.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/name.h"

namespace headrace::registry {

namespace {

Error bad_reference(std::string_view text, const std::string& why) {
  return Error{Errc::invalid_argument,
               "registry: reference " + json_quote(text.substr(0, 600)) + ": " + why +
                   "; expected NAME, NAME:7, NAME@alias, uid:HEX or run:RUN/ITEM"};
}

Result<Reference> parse_uid(std::string_view text, std::string_view rest) {
  const bool good = rest.size() == 32 && std::all_of(rest.begin(), rest.end(), [](char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                    });
  if (!good) {
    return bad_reference(text, "a uid has 32 lower-case hex digits");
  }
  Reference reference;
  reference.kind = Reference::Kind::uid;
  reference.uid = std::string(rest);
  return reference;
}

Result<Reference> parse_run_item(std::string_view text, std::string_view rest) {
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == rest.size()) {
    return bad_reference(text, "run: needs a run and an item with '/' between them");
  }
  if (!is_utf8(rest) || static_cast<int64_t>(rest.size()) > 2 * kTextBytesMax) {
    return bad_reference(text, "run and item must be UTF-8 of at most " +
                                   std::to_string(2 * kTextBytesMax) + " bytes");
  }
  Reference reference;
  reference.kind = Reference::Kind::run_item;
  reference.run = std::string(rest.substr(0, slash));
  reference.item = std::string(rest.substr(slash + 1));
  return reference;
}

}  // namespace

Result<Reference> parse_reference(std::string_view text) {
  if (text.substr(0, 4) == "uid:") {
    return parse_uid(text, text.substr(4));
  }
  if (text.substr(0, 4) == "run:") {
    return parse_run_item(text, text.substr(4));
  }
  if (text.substr(0, 8) == "models:/") {
    return Error{Errc::unsupported,
                 "registry: " + json_quote(text.substr(0, 600)) +
                     " is a model of MLflow; headrace.registry.open().fetch() in Python takes it "
                     "into a registry, where it is named NAME:VERSION or NAME@alias"};
  }
  Reference reference;
  const size_t mark = text.find_first_of(":@");
  const std::string_view name = text.substr(0, mark);
  if (name.ends_with("/*") || name.ends_with("/**")) {
    const std::string prefix(name.substr(0, name.rfind('/')));
    return bad_reference(text, "this names a set of models, and one is needed here: " + prefix +
                                   "/ITEM (headrace models list '" + prefix +
                                   "/*' shows them; in Python load_set(\"" + prefix +
                                   "\") loads them all)");
  }
  HR_TRY(check_name(name));
  reference.name = std::string(name);
  if (mark == std::string_view::npos) {
    reference.has_version = false;
    return reference;
  }
  const std::string_view rest = text.substr(mark + 1);
  if (text[mark] == '@') {
    if (rest == "latest") {
      return reference;
    }
    HR_TRY(check_alias(rest));
    reference.kind = Reference::Kind::alias;
    reference.alias = std::string(rest);
    return reference;
  }
  const char* const end = rest.data() + rest.size();
  const auto parsed = std::from_chars(rest.data(), end, reference.version);
  if (parsed.ec != std::errc() || parsed.ptr != end || reference.version < 1 || rest[0] == '0') {
    return bad_reference(text, "after ':' stands a version number of at least 1");
  }
  reference.kind = Reference::Kind::version;
  return reference;
}

std::string reference_text(const Reference& reference) {
  switch (reference.kind) {
    case Reference::Kind::latest: return reference.name + (reference.has_version ? "@latest" : "");
    case Reference::Kind::version: return reference.name + ":" + std::to_string(reference.version);
    case Reference::Kind::alias: return reference.name + "@" + reference.alias;
    case Reference::Kind::uid: return "uid:" + reference.uid;
    case Reference::Kind::run_item: return "run:" + reference.run + "/" + reference.item;
  }
  return {};
}

}  // namespace headrace::registry
