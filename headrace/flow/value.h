// SPDX-License-Identifier: Apache-2.0
// Values of expressions: JSON that is borrowed from the run's state or made on the way, with Data
// Factory's rules for text, equality and property names.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/base/result.h"

namespace headrace::flow {

/// A JSON value that is owned or borrowed. A borrowed one lives as long as the context it came from
/// is not changed, that is for one evaluation. Keeps `activity('a').output.items[3]` from copying
/// the whole output at each dot.
class Value {
 public:
  Value() = default;
  Value(Json owned) : owned_(std::move(owned)) {}  // NOLINT(google-explicit-constructor)
  static Value borrow(const Json& json) {
    Value value;
    value.borrowed_ = &json;
    return value;
  }

  const Json& operator*() const { return borrowed_ != nullptr ? *borrowed_ : owned_; }
  const Json* operator->() const { return &**this; }
  bool borrowed() const { return borrowed_ != nullptr; }
  Json take() && { return borrowed_ != nullptr ? *borrowed_ : std::move(owned_); }

 private:
  const Json* borrowed_ = nullptr;
  Json owned_;
};

/// Elements of an array and members of an object; none of what is no such value. By reference: a
/// value may be a whole document, and is asked for at every level.
const Json::Array& items_of(const Json* json);
const Json::Object& members_of(const Json* json);

/// Text as interpolation, `concat` and `string` write it: strings as they are, null empty, booleans
/// `True` and `False`, arrays and objects as compact JSON.
std::string value_text(const Json& value);
void append_value_text(const Json& value, std::string* out);

/// `equals`: numbers across integer and float, `true` equals 1, strings by code units, arrays and
/// objects deep.
bool equal_values(const Json& a, const Json& b);

/// Member by exact name, else by the only one that differs in case. `invalid_argument` when several
/// differ in case only; nullptr when there is none.
Result<const Json*> find_property(const Json& object, std::string_view name);

/// Short form for messages: the kind and the beginning of the text, e.g. "string 'abc...'".
std::string describe_value(const Json& value);

}  // namespace headrace::flow
