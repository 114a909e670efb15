// SPDX-License-Identifier: Apache-2.0
// What the rows of the option table share whatever struct they stand for.
#include <charconv>

#include "headrace/forecast/option_table_internal.h"

namespace headrace::forecast::internal {

std::string strip(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos
             ? std::string()
             : std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

Result<double> read_number(const Json& value) {
  if (value.is_number()) {
    return value.number();
  }
  if (value.is_string()) {
    const std::string text = strip(value.string());
    double number = 0.0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code == std::errc() && end == text.data() + text.size() && std::isfinite(number)) {
      return number;
    }
  }
  return Error{Errc::invalid_argument, "is no number"};
}

Result<int64_t> read_integer(const Json& value) {
  if (value.is_integer()) {
    return value.integer();
  }
  auto number = read_number(value);
  if (!number.ok() || std::fabs(*number) > 9e15 || *number != std::floor(*number)) {
    return Error{Errc::invalid_argument, "is no integer"};
  }
  return static_cast<int64_t>(*number);
}

Result<bool> read_boolean(const Json& value) {
  if (value.is_bool()) {
    return value.boolean();
  }
  const std::string text = value.is_string() ? strip(value.string()) : std::string();
  if (text == "true" || text == "yes" || text == "on" || text == "1") {
    return true;
  }
  if (text == "false" || text == "no" || text == "off" || text == "0") {
    return false;
  }
  return Error{Errc::invalid_argument, "is neither true nor false"};
}

Result<std::vector<Json>> read_list(const Json& value) {
  if (value.is_array()) {
    return value.items();
  }
  std::vector<Json> items;
  if (!value.is_string()) {
    items.push_back(value);
    return items;
  }
  std::string_view rest = value.string();
  while (!strip(rest).empty()) {
    const size_t comma = rest.find(',');
    items.emplace_back(strip(rest.substr(0, comma)));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return items;
}

Result<void> check_range(double number, double min, double max) {
  if (number >= min && number <= max) {
    return {};
  }
  std::string range = std::isinf(max)   ? fmt::format("at least {}", min)
                      : std::isinf(min) ? fmt::format("at most {}", max)
                                        : fmt::format("{} to {}", min, max);
  return Error{Errc::invalid_argument, fmt::format("must be {}", range)};
}

Result<void> check_choice(const std::vector<std::string_view>& choices, const std::string& text) {
  std::string known;
  for (const std::string_view choice : choices) {
    if (choice == text) {
      return {};
    }
    known += known.empty() ? "" : ", ";
    known += choice;
  }
  return Error{Errc::invalid_argument, fmt::format("must be one of {}", known)};
}

std::string option_text(const Json& value) {
  if (value.is_string()) {
    return value.string();
  }
  if (!value.is_array()) {
    return value.dump();
  }
  std::string text;
  for (const Json& item : value.items()) {
    text += text.empty() ? "" : ",";
    text += option_text(item);
  }
  return text;
}

Error unknown_option(std::string_view name, std::span<const std::string_view> known) {
  if (name == "frequency" || name == "freq") {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: there is no option \"{}\"; the frequency is told with the "
                             "table (--frequency, \"frequency\" beside \"table\", "
                             "forecast.Table(frequency=))",
                             name)};
  }
  const std::string nearest = nearest_name(name, known);
  return Error{Errc::invalid_argument,
               fmt::format("forecast: there is no option \"{}\"{}", name,
                           nearest.empty() ? "; `headrace forecast train --help` lists them"
                                           : fmt::format("; did you mean \"{}\"?", nearest))};
}

}  // namespace headrace::forecast::internal
