// SPDX-License-Identifier: Apache-2.0
// Logical and arithmetic functions. Integers are 64 bits and never wrap; a float makes the result a
// float.
#include <fmt/format.h>

#include <cmath>

#include "headrace/flow/function_internal.h"

namespace headrace::flow {

namespace {

Result<Value> not_(Call& call) {
  HR_TRY(const bool value, call.boolean(0));
  return Value(Json(!value));
}

Result<Value> equals(Call& call) { return Value(Json(equal_values(call[0], call[1]))); }

/// -1, 0, 1; NaN does not occur in JSON.
Result<int> compare(const Call& call) {
  const Json& a = call[0];
  const Json& b = call[1];
  if (a.is_integer() && b.is_integer()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  if (a.is_number() && b.is_number()) {
    return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) {
    const int order = a.string().compare(b.string());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (!a.is_number() && !a.is_string()) {
    return call.wrong(0, "a number or a string");
  }
  return call.wrong(1, a.is_number() ? "a number, as argument 1" : "a string, as argument 1");
}

Result<Value> less(Call& call) {
  HR_TRY(const int order, compare(call));
  return Value(Json(order < 0));
}
Result<Value> less_or_equals(Call& call) {
  HR_TRY(const int order, compare(call));
  return Value(Json(order <= 0));
}
Result<Value> greater(Call& call) {
  HR_TRY(const int order, compare(call));
  return Value(Json(order > 0));
}
Result<Value> greater_or_equals(Call& call) {
  HR_TRY(const int order, compare(call));
  return Value(Json(order >= 0));
}

constexpr Function kLogic[] = {
    {"equals", 2, 2, "value1, value2", equals},
    {"greater", 2, 2, "value, compareTo", greater},
    {"greaterOrEquals", 2, 2, "value, compareTo", greater_or_equals},
    {"less", 2, 2, "value, compareTo", less},
    {"lessOrEquals", 2, 2, "value, compareTo", less_or_equals},
    {"not", 1, 1, "value", not_},
};

Error overflow(const Call& call) {
  return call.fail(fmt::format("the result for {} and {} does not fit in 64 bits",
                               call[0].integer(), call[1].integer()));
}

Result<Value> finite(const Call& call, double value) {
  if (!std::isfinite(value)) {
    return call.fail("the result is beyond the range of a float");
  }
  return Value(Json(value));
}

Result<Value> add(Call& call) {
  HR_TRY(const double a, call.number(0));
  HR_TRY(const double b, call.number(1));
  if (!call[0].is_integer() || !call[1].is_integer()) {
    return finite(call, a + b);
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(call[0].integer(), call[1].integer(), &sum)) {
    return overflow(call);
  }
  return Value(Json(sum));
}

Result<Value> sub(Call& call) {
  HR_TRY(const double a, call.number(0));
  HR_TRY(const double b, call.number(1));
  if (!call[0].is_integer() || !call[1].is_integer()) {
    return finite(call, a - b);
  }
  int64_t difference = 0;
  if (__builtin_sub_overflow(call[0].integer(), call[1].integer(), &difference)) {
    return overflow(call);
  }
  return Value(Json(difference));
}

Result<Value> mul(Call& call) {
  HR_TRY(const double a, call.number(0));
  HR_TRY(const double b, call.number(1));
  if (!call[0].is_integer() || !call[1].is_integer()) {
    return finite(call, a * b);
  }
  int64_t product = 0;
  if (__builtin_mul_overflow(call[0].integer(), call[1].integer(), &product)) {
    return overflow(call);
  }
  return Value(Json(product));
}

Result<Value> div(Call& call) {
  HR_TRY(const double a, call.number(0));
  HR_TRY(const double b, call.number(1));
  if (b == 0.0) {
    return call.wrong(1, "a divisor that is not zero");
  }
  if (!call[0].is_integer() || !call[1].is_integer()) {
    return finite(call, a / b);
  }
  if (call[1].integer() == -1 && call[0].integer() == INT64_MIN) {
    return overflow(call);
  }
  return Value(Json(call[0].integer() / call[1].integer()));
}

Result<Value> mod(Call& call) {
  HR_TRY(const double a, call.number(0));
  HR_TRY(const double b, call.number(1));
  if (b == 0.0) {
    return call.wrong(1, "a divisor that is not zero");
  }
  if (!call[0].is_integer() || !call[1].is_integer()) {
    return finite(call, std::fmod(a, b));
  }
  if (call[1].integer() == -1) {
    return Value(Json(0));  // INT64_MIN % -1 traps
  }
  return Value(Json(call[0].integer() % call[1].integer()));
}

Result<Value> extreme(Call& call, bool largest) {
  const bool one_array = call.size() == 1 && call[0].is_array();
  const size_t count = one_array ? call[0].items().size() : call.size();
  if (count == 0) {
    return call.wrong(0, "an array that is not empty");
  }
  const Json* best = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const Json& value = one_array ? call[0].items()[i] : call[i];
    if (!value.is_number()) {
      return call.wrong(one_array ? 0 : i, one_array ? "an array of numbers" : "a number");
    }
    const bool both_integers = best != nullptr && best->is_integer() && value.is_integer();
    const bool better =
        best == nullptr ||
        (both_integers
             ? (largest ? value.integer() > best->integer() : value.integer() < best->integer())
             : (largest ? value.number() > best->number() : value.number() < best->number()));
    best = better ? &value : best;
  }
  return Value(Json(*best));
}

Result<Value> max(Call& call) { return extreme(call, true); }
Result<Value> min(Call& call) { return extreme(call, false); }

Result<Value> rand(Call& call) {
  HR_TRY(const auto low, call.integer(0));
  HR_TRY(const auto high, call.integer(1));
  if (high <= low) {
    return call.wrong(1, fmt::format("a bound above the lower one, {}", low));
  }
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  // 128-bit product instead of a remainder: no bias that could be seen with 64 random bits.
  __extension__ using Wide = unsigned __int128;
  const auto offset = static_cast<uint64_t>((Wide{call.context().random()} * width) >> 64U);
  return Value(Json(static_cast<int64_t>(static_cast<uint64_t>(low) + offset)));
}

Result<Value> range(Call& call) {
  constexpr int64_t kCountMax = 10'000'000;
  HR_TRY(const auto start, call.integer(0));
  HR_TRY(const auto count, call.integer(1));
  if (count < 0 || count > kCountMax) {
    return call.wrong(1, fmt::format("a count from 0 to {}", kCountMax));
  }
  if (start > INT64_MAX - count) {
    return call.fail(fmt::format("the numbers after {} do not fit in 64 bits", start));
  }
  Json out = Json::array();
  out.items().reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    out.items().emplace_back(start + i);
  }
  return Value(std::move(out));
}

constexpr Function kMath[] = {
    {"add", 2, 2, "summand1, summand2", add},
    {"div", 2, 2, "dividend, divisor", div},
    {"max", 1, kAny, "number", max},
    {"min", 1, kAny, "number", min},
    {"mod", 2, 2, "dividend, divisor", mod},
    {"mul", 2, 2, "multiplicand1, multiplicand2", mul},
    {"rand", 2, 2, "minValue, maxValue", rand},
    {"range", 2, 2, "startIndex, count", range},
    {"sub", 2, 2, "minuend, subtrahend", sub},
};

}  // namespace

std::span<const Function> logic_functions() { return kLogic; }
std::span<const Function> math_functions() { return kMath; }

}  // namespace headrace::flow
