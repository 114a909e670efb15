// SPDX-License-Identifier: Apache-2.0
// One row per option: reads, checks, lists and writes the member of an options struct it stands
// for.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/forecast/options.h"

namespace headrace::forecast::internal {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

template <typename T>
struct OptionField {
  using Member =
      std::variant<int T::*, int64_t T::*, double T::*, bool T::*, std::string T::*,
                   std::vector<int> T::*, std::vector<double> T::*, std::vector<std::string> T::*>;
  OptionField(std::string_view field_name, std::string_view field_group, Member field_member,
              std::string_view field_help, double smallest = -kNoLimit, double largest = kNoLimit,
              bool auto_known = false, std::vector<std::string_view> closed_set = {})
      : name(field_name),
        group(field_group),
        member(field_member),
        help(field_help),
        min(smallest),
        max(largest),
        is_auto(auto_known),
        choices(std::move(closed_set)) {}

  std::string_view name;
  std::string_view group;
  Member member;
  std::string_view help;
  double min;
  double max;
  bool is_auto;  // -1 is written and read as "auto"
  std::vector<std::string_view> choices;
};

/// Without blanks around it.
std::string strip(std::string_view text);
/// Numbers also come as typed on a command line; the error ends a sentence that names the option.
Result<double> read_number(const Json& value);
Result<int64_t> read_integer(const Json& value);
Result<bool> read_boolean(const Json& value);
/// A list as JSON, or as text with commas; an empty text is an empty list.
Result<std::vector<Json>> read_list(const Json& value);
Result<void> check_choice(const std::vector<std::string_view>& choices, const std::string& text);
/// As typed on a command line.
std::string option_text(const Json& value);

Result<void> check_range(double number, double min, double max);

/// Store a value in the member a row stands for.
template <typename T>
class OptionSetter {
 public:
  OptionSetter(T* options, const OptionField<T>& field, const Json& value)
      : options_(options), field_(field), value_(value) {}

  template <typename Integer>
    requires(std::is_same_v<Integer, int> || std::is_same_v<Integer, int64_t>)
  Result<void> operator()(Integer T::* member) const {
    if (field_.is_auto && value_.is_string() && strip(value_.string()) == "auto") {
      options_->*member = -1;
      return {};
    }
    HR_TRY(const int64_t number, read_integer(value_));
    if (!(field_.is_auto && number == -1)) {
      HR_TRY(check_range(static_cast<double>(number), field_.min, field_.max));
    }
    if (number != static_cast<int64_t>(static_cast<Integer>(number))) {
      return Error{Errc::invalid_argument, "is too large"};
    }
    options_->*member = static_cast<Integer>(number);
    return {};
  }
  Result<void> operator()(double T::* member) const {
    if (field_.is_auto && value_.is_string() && strip(value_.string()) == "auto") {
      options_->*member = -1.0;
      return {};
    }
    HR_TRY(const double number, read_number(value_));
    if (!(field_.is_auto && number == -1.0)) {
      HR_TRY(check_range(number, field_.min, field_.max));
    }
    options_->*member = number;
    return {};
  }
  Result<void> operator()(bool T::* member) const {
    HR_TRY(options_->*member, read_boolean(value_));
    return {};
  }
  Result<void> operator()(std::string T::* member) const {
    const bool is_number = value_.is_number();
    if (!value_.is_string() && !is_number) {
      return Error{Errc::invalid_argument, "is no text"};
    }
    const std::string text = is_number ? number_text(value_.number()) : strip(value_.string());
    if (!field_.choices.empty()) {
      HR_TRY(check_choice(field_.choices, text));
    }
    options_->*member = text;
    return {};
  }
  Result<void> operator()(std::vector<int> T::* member) const {
    HR_TRY(const std::vector<Json> items, read_list(value_));
    std::vector<int> numbers;
    for (const Json& item : items) {
      HR_TRY(const int64_t number, read_integer(item));
      HR_TRY(check_range(static_cast<double>(number), field_.min, field_.max));
      numbers.push_back(static_cast<int>(number));
    }
    options_->*member = std::move(numbers);
    return {};
  }
  Result<void> operator()(std::vector<double> T::* member) const {
    HR_TRY(const std::vector<Json> items, read_list(value_));
    std::vector<double> numbers;
    for (const Json& item : items) {
      HR_TRY(const double number, read_number(item));
      HR_TRY(check_range(static_cast<double>(number), field_.min, field_.max));
      numbers.push_back(number);
    }
    options_->*member = std::move(numbers);
    return {};
  }
  Result<void> operator()(std::vector<std::string> T::* member) const {
    HR_TRY(const std::vector<Json> items, read_list(value_));
    std::vector<std::string> texts;
    for (const Json& item : items) {
      if (!item.is_string()) {
        return Error{Errc::invalid_argument, "is no list of texts"};
      }
      if (!field_.choices.empty()) {
        HR_TRY(check_choice(field_.choices, item.string()));
      }
      texts.push_back(item.string());
    }
    options_->*member = std::move(texts);
    return {};
  }

 private:
  T* options_;
  const OptionField<T>& field_;
  const Json& value_;
};

/// The member as JSON.
template <typename T>
Json option_value(const T& options, const OptionField<T>& field) {
  return std::visit(
      [&](auto member) -> Json {
        const auto& value = options.*member;
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, int> || std::is_same_v<Value, int64_t>) {
          return field.is_auto && value == -1 ? Json("auto") : Json(int64_t{value});
        } else if constexpr (std::is_same_v<Value, double>) {
          return field.is_auto && value == -1.0 ? Json("auto") : Json(value);
        } else if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
          return Json(value);
        } else {
          Json list = Json::array();
          for (const auto& item : value) {
            list.push_back(Json(item));
          }
          return list;
        }
      },
      field.member);
}

template <typename T>
std::string_view option_type(const OptionField<T>& field) {
  constexpr std::string_view kTypes[] = {"integer", "integer",  "number",  "boolean",
                                         "text",    "integers", "numbers", "texts"};
  return kTypes[field.member.index()];
}

template <typename T>
std::vector<OptionInfo> list_options(const std::vector<OptionField<T>>& fields) {
  std::vector<OptionInfo> list;
  const T defaults;
  for (const OptionField<T>& field : fields) {
    list.push_back({field.name, field.group, option_type(field),
                    option_text(option_value(defaults, field)), field.help, field.choices,
                    field.min, field.max});
  }
  return list;
}

/// There is none of this name; which one may be meant.
Error unknown_option(std::string_view name, std::span<const std::string_view> known);

template <typename T>
Result<void> set_field(const std::vector<OptionField<T>>& fields, T* options, std::string_view name,
                       const Json& value) {
  std::vector<std::string_view> names;
  for (const OptionField<T>& field : fields) {
    names.push_back(field.name);
    if (field.name != name) {
      continue;
    }
    auto result = std::visit(OptionSetter<T>(options, field, value), field.member);
    if (!result.ok()) {
      return Error{Errc::invalid_argument,
                   fmt::format("forecast: option \"{}\" is {}: it {}{}", name, value.dump(),
                               result.error().message(), field.is_auto ? ", or \"auto\"" : "")};
    }
    return {};
  }
  return unknown_option(name, names);
}

template <typename T>
Result<void> set_fields(const std::vector<OptionField<T>>& fields, T* options, const Json& object) {
  if (!object.is_object()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: options must be an object of names and values, not {}",
                             object.kind_name())};
  }
  for (const auto& [name, value] : object.members()) {
    HR_TRY(set_field(fields, options, name, value));
  }
  return {};
}

template <typename T>
Json fields_to_json(const std::vector<OptionField<T>>& fields, const T& options) {
  Json object = Json::object();
  for (const OptionField<T>& field : fields) {
    object.set(field.name, option_value(options, field));
  }
  return object;
}

}  // namespace headrace::forecast::internal
