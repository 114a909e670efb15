// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

template <typename T>
const T* find_named(const std::vector<T>& all, std::string_view name) {
  for (const T& one : all) {
    if (one.name == name) {
      return &one;
    }
  }
  for (const T& one : all) {
    if (equal_ignoring_case(one.name, name)) {
      return &one;
    }
  }
  return nullptr;
}

Error wrong_argument(const Parameter& parameter, const Json& value) {
  if (parameter.secure) {
    return Error{
        Errc::invalid_argument,
        fmt::format("InvalidParameter: parameter '{}' is of type {}; got {} that is secure",
                    parameter.name, parameter.type, value.kind_name())};
  }
  return Error{Errc::invalid_argument,
               fmt::format("InvalidParameter: parameter '{}' is of type {}; got {}", parameter.name,
                           parameter.type, describe_value(value))};
}

Result<Json> to_number(const Parameter& parameter, const Json& value) {
  const bool integral = parameter.type == "Int";
  if (value.is_number()) {
    const double number = value.number();
    if (integral && !value.is_integer()) {
      if (static_cast<double>(static_cast<int64_t>(number)) != number) {
        return wrong_argument(parameter, value);
      }
      return Json(static_cast<int64_t>(number));
    }
    return integral ? value : Json(number);
  }
  if (value.is_string()) {
    const std::string_view text = trim_text(value.string());
    int64_t whole = 0;
    double real = 0.0;
    if (integral && std::from_chars(text.begin(), text.end(), whole).ptr == text.end() &&
        !text.empty()) {
      return Json(whole);
    }
    if (!integral && std::from_chars(text.begin(), text.end(), real).ptr == text.end() &&
        !text.empty() && std::isfinite(real)) {
      return Json(real);
    }
  }
  return wrong_argument(parameter, value);
}

Result<Json> to_bool(const Parameter& parameter, const Json& value) {
  if (value.is_bool()) {
    return value;
  }
  if (value.is_number() && (value.number() == 0.0 || value.number() == 1.0)) {
    return Json(value.number() == 1.0);
  }
  if (value.is_string() && equal_ignoring_case(value.string(), "true")) {
    return Json(true);
  }
  if (value.is_string() && equal_ignoring_case(value.string(), "false")) {
    return Json(false);
  }
  return wrong_argument(parameter, value);
}

Result<Json> to_collection(const Parameter& parameter, const Json& value) {
  Json whole = value;
  if (value.is_string()) {
    auto parsed = parse_json(value.string(), parameter.name);
    if (!parsed.ok() && parameter.secure) {
      return wrong_argument(parameter, value);  // its note would quote the text
    }
    if (!parsed.ok()) {
      return wrong_argument(parameter, value).add_note(parsed.error().message());
    }
    whole = *std::move(parsed);
  }
  if (parameter.type == "Array" ? whole.is_array() : whole.is_object()) {
    return whole;
  }
  return wrong_argument(parameter, value);
}

Result<Json> convert(const Parameter& parameter, const Json& value) {
  if (parameter.type == "Int" || parameter.type == "Float") {
    return to_number(parameter, value);
  }
  if (parameter.type == "Bool") {
    return to_bool(parameter, value);
  }
  if (parameter.type == "Array" || parameter.type == "Object") {
    return to_collection(parameter, value);
  }
  // Strings: numbers and booleans become text. Arrays and objects stay: files in the wild declare
  // String and rely on the value's JSON text when it is inserted.
  if (value.is_bool() || value.is_number()) {
    return Json(value_text(value));
  }
  return value;
}

}  // namespace

Source::Source(std::string name, std::string text)
    : name_(std::move(name)), text_(std::move(text)), line_starts_{0} {
  for (size_t at = text_.find('\n'); at != std::string::npos; at = text_.find('\n', at + 1)) {
    line_starts_.push_back(static_cast<int64_t>(at) + 1);
  }
}

std::string Source::where(int64_t offset) const {
  const auto next =
      std::upper_bound(line_starts_.begin() + 1, line_starts_.end(), std::max<int64_t>(0, offset));
  return fmt::format("{}:{}:{}", name_, next - line_starts_.begin(),
                     std::max<int64_t>(0, offset) - *(next - 1) + 1);
}

std::string diagnostic_text(const Diagnostic& diagnostic) {
  return diagnostic.where + ": " + diagnostic.code + ": " + diagnostic.message;
}

bool has_errors(const std::vector<Diagnostic>& diagnostics) {
  return std::any_of(diagnostics.begin(), diagnostics.end(),
                     [](const Diagnostic& one) { return one.severity == Severity::error; });
}

bool Variable::takes(const Json& value) const {
  return type == "String"    ? value.is_string()
         : type == "Bool"    ? value.is_bool()
         : type == "Integer" ? value.is_integer()
                             : value.is_array();
}

const Parameter* Pipeline::find_parameter(std::string_view wanted) const {
  return find_named(parameters, wanted);
}
const Variable* Pipeline::find_variable(std::string_view wanted) const {
  return find_named(variables, wanted);
}

Result<std::shared_ptr<const Pipeline>> Factory::find(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& pipeline : pipelines) {
    names.push_back(pipeline->name);
    if (pipeline->name == name) {
      return pipeline;
    }
  }
  if (name.empty() && pipelines.size() == 1) {
    return pipelines[0];
  }
  if (name.empty() && !pipelines.empty()) {
    return Error{Errc::invalid_argument,
                 fmt::format("there are {} pipelines: {}; choose one with --pipeline NAME",
                             names.size(), name_list(names))};
  }
  return Error{Errc::not_found, fmt::format("there is no pipeline '{}'{}; there are: {}", name,
                                            did_you_mean(name, names), name_list(names))};
}

std::optional<double> parse_timeout(std::string_view text) {
  int64_t parts[4] = {};  // days, hours, minutes, seconds
  const size_t colon = text.find(':');
  const size_t dot = text.find('.');
  int next = 1;
  if (dot != std::string_view::npos && dot < colon) {
    next = 0;
  }
  const int first = next;
  while (next < 4) {
    const size_t end = next == 3 ? text.size() : text.find(next == 0 ? '.' : ':');
    if (end == std::string_view::npos || end == 0 || end > (next == 0 ? 6U : 2U)) {
      return std::nullopt;
    }
    if (std::from_chars(text.data(), text.data() + end, parts[next]).ptr != text.data() + end ||
        parts[next] < 0) {
      return std::nullopt;
    }
    text.remove_prefix(std::min(text.size(), end + 1));
    ++next;
  }
  if (parts[2] > 60 || parts[3] > 60 || (first == 0 && parts[1] > 23)) {
    return std::nullopt;
  }
  return static_cast<double>(((parts[0] * 24 + parts[1]) * 60 + parts[2]) * 60 + parts[3]);
}

Result<Json> bind_parameters(const Pipeline& pipeline, const Json& arguments) {
  std::vector<std::string> names;
  for (const Parameter& parameter : pipeline.parameters) {
    names.push_back(parameter.name);
  }
  static const Json kNone = Json::object();
  const Json::Object& given_all = arguments.is_object() ? arguments.members() : kNone.members();
  for (const Json::Member& member : given_all) {
    if (pipeline.find_parameter(member.first) == nullptr) {
      return Error{
          Errc::invalid_argument,
          fmt::format("pipeline '{}' has no parameter '{}'{}; its parameters: {}", pipeline.name,
                      member.first, did_you_mean(member.first, names), name_list(names))};
    }
  }
  Json bound = Json::object();
  for (const Parameter& parameter : pipeline.parameters) {
    const Json* given = nullptr;
    for (const Json::Member& member : given_all) {
      if (pipeline.find_parameter(member.first) == &parameter) {
        given = &member.second;
      }
    }
    if (given == nullptr && !parameter.default_value) {
      return Error{Errc::invalid_argument,
                   fmt::format("pipeline '{}' needs the parameter '{}' ({}), which has no default; "
                               "give it with -p {}=VALUE",
                               pipeline.name, parameter.name, parameter.type, parameter.name)};
    }
    const Json& wanted = given != nullptr ? *given : *parameter.default_value;
    if (const std::string type = misspelt_secret(wanted); !type.empty()) {
      return Error{Errc::invalid_argument,
                   fmt::format("InvalidParameter: the value of parameter '{}' has an object of "
                               "type '{}'; did you mean 'SecureString'?",
                               parameter.name, type)};
    }
    const bool wrapped =
        parameter.secure && has_marked_secret(wanted) && wanted.find("value") != nullptr;
    HR_TRY(auto value, convert(parameter, wrapped ? wanted.at("value") : wanted));
    bound.set(parameter.name, std::move(value));
  }
  return bound;
}

void for_each_activity(const ActivityList& list,
                       const std::function<void(const Activity&)>& visit) {
  for (const Activity& activity : list.activities) {
    visit(activity);
    for (const ActivityList& branch : activity.branches) {
      for_each_activity(branch, visit);
    }
  }
}

}  // namespace headrace::flow
