// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/predicate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "headrace/base/json.h"
#include "headrace/lake/stamp.h"

namespace headrace::lake {

std::optional<int> compare_values(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.index() == b.index()) {
    if (const auto* text = std::get_if<std::string>(&a)) {
      return sign(*text, std::get<std::string>(b));
    }
    if (const auto* whole = std::get_if<int64_t>(&a)) {
      return sign(*whole, std::get<int64_t>(b));
    }
    if (const auto* flag = std::get_if<bool>(&a)) {
      return sign(*flag, std::get<bool>(b));
    }
  }
  const auto real_of = [](const Value& value) -> std::optional<long double> {
    if (const auto* real = std::get_if<double>(&value)) {
      return std::isnan(*real) ? std::nullopt : std::optional<long double>(*real);
    }
    const auto* whole = std::get_if<int64_t>(&value);
    return whole != nullptr ? std::optional<long double>(*whole) : std::nullopt;  // 64 bits: exact
  };
  const auto x = real_of(a);
  const auto y = real_of(b);
  return x && y ? std::optional<int>(sign(*x, *y)) : std::nullopt;
}

namespace {

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

template <typename T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() ? std::optional<T>(value)
                                                                 : std::nullopt;
}

std::string shown(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return json_quote(*text);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return number_text(*real);
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return *flag ? "true" : "false";
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return std::to_string(*whole);
  }
  return "null";
}

/// A real that is whole becomes an integer; any other real is compared as one.
Value whole_if_exact(double value) {
  if (value == std::floor(value) && std::abs(value) < 9007199254740992.0) {
    return static_cast<int64_t>(value);
  }
  return value;
}

std::optional<Value> bind_text(const std::string& text, const Field& field) {
  switch (field.type) {
    case Type::string: return Value(text);
    case Type::int64: {
      if (const auto whole = number_of<int64_t>(text)) {
        return Value(*whole);
      }
      const auto real = number_of<double>(text);
      return real ? std::optional<Value>(whole_if_exact(*real)) : std::nullopt;
    }
    case Type::float64: {
      const auto real = number_of<double>(text);
      return real ? std::optional<Value>(*real) : std::nullopt;
    }
    case Type::boolean:
      return text == "true" || text == "false" ? std::optional<Value>(text == "true")
                                               : std::nullopt;
    case Type::timestamp_us: {
      const auto stamp = parse_stamp(text);
      return stamp ? std::optional<Value>(stamp->us) : std::nullopt;
    }
    case Type::date: {
      const auto stamp = parse_stamp(text);
      return stamp && stamp->date_only ? std::optional<Value>(stamp->us / kMicrosPerDay)
                                       : std::nullopt;
    }
    default: return std::nullopt;
  }
}

std::optional<Value> bind_value(const Value& value, const Field& field) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return bind_text(*text, field);
  }
  const bool counts =
      field.type == Type::int64 || field.type == Type::timestamp_us || field.type == Type::date;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    if (counts) {
      return value;
    }
    return field.type == Type::float64 ? std::optional<Value>(static_cast<double>(*whole))
                                       : std::nullopt;
  }
  if (const auto* real = std::get_if<double>(&value)) {
    if (field.type == Type::float64) {
      return value;
    }
    return field.type == Type::int64 ? std::optional<Value>(whole_if_exact(*real)) : std::nullopt;
  }
  if (std::holds_alternative<bool>(value) && field.type == Type::boolean) {
    return value;
  }
  return std::nullopt;
}

bool holds(Op op, const Value& value, const std::vector<Value>& wanted) {
  if (std::holds_alternative<std::monostate>(value)) {
    return false;
  }
  if (op == Op::in) {
    return std::any_of(wanted.begin(), wanted.end(), [&value](const Value& one) {
      return compare_values(value, one) == std::optional<int>(0);
    });
  }
  const auto order = compare_values(value, wanted.front());
  if (!order) {
    return false;
  }
  switch (op) {
    case Op::equal: return *order == 0;
    case Op::less: return *order < 0;
    case Op::less_equal: return *order <= 0;
    case Op::greater: return *order > 0;
    default: return *order >= 0;
  }
}

/// Whether each row fulfils a condition; texts are compared once per dictionary entry.
void filter_rows(const Condition& condition, const Column& column, std::vector<uint8_t>* keep) {
  if (column.field.type == Type::string) {
    std::vector<uint8_t> fits(column.dictionary.size());
    for (size_t i = 0; i < fits.size(); ++i) {
      fits[i] = holds(condition.op, column.dictionary[i], condition.values) ? 1 : 0;
    }
    for (size_t row = 0; row < keep->size(); ++row) {
      const int32_t code = column.codes[row];
      if (code < 0 || fits[static_cast<size_t>(code)] == 0) {
        (*keep)[row] = 0;
      }
    }
    return;
  }
  for (size_t row = 0; row < keep->size(); ++row) {
    if ((*keep)[row] != 0 &&
        !holds(condition.op, column.value(static_cast<int64_t>(row)), condition.values)) {
      (*keep)[row] = 0;
    }
  }
}

}  // namespace

Result<Condition> parse_condition(std::string_view text) {
  const auto bad = [&text] {
    return Error{Errc::invalid_argument,
                 "condition " + json_quote(text) +
                     ": expected COLUMN OP VALUE with OP one of == < <= > >=, or COLUMN in A,B,C"};
  };
  const size_t in = text.find(" in ");
  const size_t sign = text.find_first_of("=<>");
  Condition out;
  if (in != std::string_view::npos && in < sign) {
    out.column = trim(text.substr(0, in));
    out.op = Op::in;
    std::string_view rest = text.substr(in + 4);
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      out.values.emplace_back(std::string(trim(rest.substr(0, comma))));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return out.column.empty() || out.values.empty() ? Result<Condition>(bad()) : out;
  }
  if (sign == std::string_view::npos) {
    return bad();
  }
  const bool wide = sign + 1 < text.size() && text[sign + 1] == '=';
  out.column = trim(text.substr(0, sign));
  switch (text[sign]) {
    case '<': out.op = wide ? Op::less_equal : Op::less; break;
    case '>': out.op = wide ? Op::greater_equal : Op::greater; break;
    default: out.op = Op::equal;
  }
  out.values.emplace_back(std::string(trim(text.substr(sign + (wide ? 2 : 1)))));
  return out.column.empty() ? Result<Condition>(bad()) : out;
}

Result<Predicate> bind_predicate(const Predicate& predicate, const Schema& schema) {
  Predicate out = predicate;
  for (Condition& condition : out) {
    const int64_t index = find_field(schema, condition.column);
    if (index < 0) {
      return missing_column(schema, condition.column, "condition");
    }
    const Field& field = schema[static_cast<size_t>(index)];
    if (condition.values.empty() && condition.op != Op::in) {
      return Error{Errc::invalid_argument,
                   "condition on " + json_quote(condition.column) + ": there is no value"};
    }
    for (Value& value : condition.values) {
      if (field.type == Type::null) {
        continue;  // nothing fulfils it, whatever the value
      }
      auto bound = bind_value(value, field);
      if (!bound) {
        return Error{
            Errc::invalid_argument,
            fmt::format("condition on {}: {} does not fit a column of type {}",
                        json_quote(condition.column), shown(value), type_name(field.type))};
      }
      value = *std::move(bound);
    }
  }
  return out;
}

bool may_match(const Condition& condition, const Range& range) {
  if (range.all_null) {
    return false;
  }
  // An order that cannot be told (NaN, absent statistics) excludes nothing.
  const auto below_min = [&range](const Value& value) {
    return range.min && compare_values(value, *range.min).value_or(0) < 0;
  };
  const auto above_max = [&range](const Value& value) {
    return range.max && compare_values(value, *range.max).value_or(0) > 0;
  };
  const auto inside = [&](const Value& value) { return !below_min(value) && !above_max(value); };
  switch (condition.op) {
    case Op::equal: return inside(condition.values.front());
    case Op::in: return std::any_of(condition.values.begin(), condition.values.end(), inside);
    case Op::less:
      return !range.min || compare_values(*range.min, condition.values.front()).value_or(-1) < 0;
    case Op::less_equal: return !below_min(condition.values.front());
    case Op::greater:
      return !range.max || compare_values(*range.max, condition.values.front()).value_or(1) > 0;
    case Op::greater_equal: return !above_max(condition.values.front());
  }
  return true;
}

std::vector<int64_t> matching_rows(const Predicate& predicate, const Batch& batch) {
  std::vector<uint8_t> keep(static_cast<size_t>(batch.rows()), 1);
  for (const Condition& condition : predicate) {
    const Column* column = batch.find(condition.column);
    HR_CHECK(column != nullptr, "the predicate's column is not in the batch");
    filter_rows(condition, *column, &keep);
  }
  std::vector<int64_t> rows;
  for (size_t row = 0; row < keep.size(); ++row) {
    if (keep[row] != 0) {
      rows.push_back(static_cast<int64_t>(row));
    }
  }
  return rows;
}

}  // namespace headrace::lake
