// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "headrace/flow/function_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

using FunctionMap = std::map<std::string, const Function*, std::less<>>;

const FunctionMap& functions() {
  static const FunctionMap map = [] {
    FunctionMap all;
    for (const auto table : {string_functions(), collection_functions(), logic_functions(),
                             math_functions(), conversion_functions(), date_functions()}) {
      for (const Function& function : table) {
        all.emplace(lower_text(function.name), &function);
      }
    }
    return all;
  }();
  return map;
}

/// Name of the argument at `index` out of "a, b, ...": the last one stands for all further ones.
std::string_view argument_name(std::string_view names, size_t index) {
  for (size_t i = 0; i < index; ++i) {
    const size_t comma = names.find(", ");
    if (comma == std::string_view::npos) {
      break;
    }
    names.remove_prefix(comma + 2);
  }
  return names.substr(0, names.find(", "));
}

}  // namespace

const Function* find_function(std::string_view name) {
  const auto it = functions().find(lower_text(name));
  return it == functions().end() ? nullptr : it->second;
}

bool is_later_function(std::string_view name) {
  static constexpr std::string_view kLater[] = {
      "xml",  "xpath",   "converttimezone", "convertfromutc", "converttoutc", "formatnumber",
      "body", "actions", "outputs",         "result",         "parsedatetime"};
  return std::find(std::begin(kLater), std::end(kLater), lower_text(name)) != std::end(kLater);
}

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (const auto& [lower, function] : functions()) {
    names.emplace_back(function->name);
  }
  for (const std::string_view name : {"activity", "pipeline", "parameters", "variables", "item",
                                      "iterationItem", "trigger", "triggerBody", "triggerOutputs",
                                      "dataset", "linkedService", "if", "and", "or", "coalesce"}) {
    names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Error Call::wrong(size_t index, std::string_view expected) const {
  return Error{Errc::invalid_argument,
               fmt::format("function '{}', argument {} ({}): expected {}, got {}", function_.name,
                           index + 1, argument_name(function_.arguments, index), expected,
                           describe_value((*this)[index]))};
}

Error Call::fail(std::string_view what) const {
  return Error{Errc::invalid_argument, fmt::format("function '{}': {}", function_.name, what)};
}

Result<void> Call::check_text(size_t bytes) const {
  if (bytes <= kTextBytesMax) {
    return {};
  }
  return fail(fmt::format("the result would be a text of {} bytes; at most {} are possible", bytes,
                          kTextBytesMax));
}

Result<void> Call::check_count(size_t elements) const {
  if (elements <= kElementsMax) {
    return {};
  }
  return fail(fmt::format("the result would have {} elements; at most {} are possible", elements,
                          kElementsMax));
}

Result<std::string_view> Call::text(size_t index) const {
  const Json& value = (*this)[index];
  if (!value.is_string()) {
    return wrong(index, "a string");
  }
  return std::string_view(value.string());
}

Result<int64_t> Call::integer(size_t index) const {
  const Json& value = (*this)[index];
  if (value.is_integer()) {
    return value.integer();
  }
  if (value.is_number() && std::trunc(value.number()) == value.number() &&
      std::abs(value.number()) < 9.0e18) {
    return static_cast<int64_t>(value.number());
  }
  return wrong(index, "an integer");
}

Result<double> Call::number(size_t index) const {
  const Json& value = (*this)[index];
  if (!value.is_number()) {
    return wrong(index, "a number");
  }
  return value.number();
}

Result<bool> Call::boolean(size_t index) const {
  const Json& value = (*this)[index];
  if (!value.is_bool()) {
    return wrong(index, "a boolean");
  }
  return value.boolean();
}

Result<const Json::Array*> Call::array(size_t index) const {
  const Json& value = (*this)[index];
  if (!value.is_array()) {
    return wrong(index, "an array");
  }
  return &value.items();
}

Result<const Json::Object*> Call::object(size_t index) const {
  const Json& value = (*this)[index];
  if (!value.is_object()) {
    return wrong(index, "an object");
  }
  return &value.members();
}

}  // namespace headrace::flow
