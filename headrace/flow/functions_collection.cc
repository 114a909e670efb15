// SPDX-License-Identifier: Apache-2.0
// Functions over arrays, objects and, where it makes sense, strings.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/checksum.h"
#include "headrace/flow/function_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

bool holds(const Json::Array& array, const Json& wanted) {
  return std::any_of(array.begin(), array.end(),
                     [&](const Json& item) { return equal_values(item, wanted); });
}

Result<Value> contains(Call& call) {
  const Json& collection = call[0];
  if (collection.is_array()) {
    return Value(Json(holds(collection.items(), call[1])));
  }
  if (!collection.is_string() && !collection.is_object()) {
    return call.wrong(0, "a string, an array or an object");
  }
  HR_TRY(const auto wanted, call.text(1));
  if (collection.is_object()) {
    return Value(Json(collection.find(wanted) != nullptr));
  }
  return Value(Json(collection.string().find(wanted) != std::string::npos));
}

Result<Value> empty(Call& call) {
  const Json& value = call[0];
  switch (value.kind()) {
    case Json::Kind::null: return Value(Json(true));
    case Json::Kind::string: return Value(Json(value.string().empty()));
    case Json::Kind::array: return Value(Json(value.items().empty()));
    case Json::Kind::object: return Value(Json(value.members().empty()));
    default: return call.wrong(0, "a string, an array, an object or null");
  }
}

Result<Value> length(Call& call) {
  const Json& value = call[0];
  if (value.is_string()) {
    return Value(Json(utf16_length(value.string())));
  }
  if (value.is_array()) {
    return Value(Json(static_cast<int64_t>(value.items().size())));
  }
  return call.wrong(0, "a string or an array");
}

/// Code units [begin, begin + count) of a string, or the elements of an array; clamped.
Result<Value> range_of(Call& call, int64_t begin, int64_t count) {
  const Json& value = call[0];
  if (value.is_array()) {
    const auto size = static_cast<int64_t>(value.items().size());
    const auto first = value.items().begin() + std::min(begin, size);
    return Value(Json(Json::Array(first, first + std::min(count, size - std::min(begin, size)))));
  }
  const std::u16string units = to_utf16(value.string());
  const auto size = static_cast<int64_t>(units.size());
  return Value(Json(from_utf16(std::u16string_view(units).substr(
      static_cast<size_t>(std::min(begin, size)), static_cast<size_t>(count)))));
}

Result<Value> end_of(Call& call, bool last) {
  const Json& value = call[0];
  if (value.is_array()) {
    if (value.items().empty()) {
      return Value();
    }
    return Value(Json(last ? value.items().back() : value.items().front()));
  }
  if (!value.is_string()) {
    return call.wrong(0, "a string or an array");
  }
  const std::u16string units = to_utf16(value.string());
  if (units.empty()) {
    return Value(Json(""));
  }
  return Value(Json(from_utf16({last ? &units.back() : &units.front(), 1})));
}

Result<Value> first(Call& call) { return end_of(call, false); }
Result<Value> last(Call& call) { return end_of(call, true); }

Result<Value> skip(Call& call) {
  HR_TRY(const auto count, call.integer(1));
  HR_TRY(call.array(0));
  if (count < 0) {
    return call.wrong(1, "a count of at least 0");
  }
  return range_of(call, count, INT64_MAX);
}

Result<Value> take(Call& call) {
  HR_TRY(const auto count, call.integer(1));
  if (!call[0].is_array() && !call[0].is_string()) {
    return call.wrong(0, "a string or an array");
  }
  if (count < 0) {
    return call.wrong(1, "a count of at least 0");
  }
  return range_of(call, 0, count);
}

Result<Value> join(Call& call) {
  HR_TRY(const auto array, call.array(0));
  HR_TRY(const auto delimiter, call.text(1));
  std::string out;
  for (size_t i = 0; i < array->size(); ++i) {
    out += i > 0 ? delimiter : std::string_view();
    append_value_text((*array)[i], &out);
    HR_TRY(call.check_text(out.size()));
  }
  return Value(Json(std::move(out)));
}

/// Every argument is an array, or every one is an object; the error names the first that is not.
Result<bool> all_arrays(const Call& call) {
  const bool arrays = call[0].is_array();
  if (!arrays && !call[0].is_object()) {
    return call.wrong(0, "an array or an object");
  }
  for (size_t i = 1; i < call.size(); ++i) {
    if (arrays ? !call[i].is_array() : !call[i].is_object()) {
      return call.wrong(i, arrays ? "an array, as argument 1" : "an object, as argument 1");
    }
  }
  return arrays;
}

Result<Value> intersection(Call& call) {
  HR_TRY(const bool arrays, all_arrays(call));
  if (arrays) {
    Json out = Json::array();
    for (const Json& item : call[0].items()) {
      bool everywhere = !holds(out.items(), item);
      for (size_t i = 1; i < call.size(); ++i) {
        everywhere = everywhere && holds(call[i].items(), item);
      }
      if (everywhere) {
        out.push_back(item);
      }
    }
    return Value(std::move(out));
  }
  Json out = Json::object();
  for (const Json::Member& member : call[0].members()) {
    bool everywhere = true;
    for (size_t i = 1; i < call.size(); ++i) {
      const Json* other = call[i].find(member.first);
      everywhere = everywhere && other != nullptr && equal_values(*other, member.second);
    }
    if (everywhere) {
      out.set(member.first, member.second);
    }
  }
  return Value(std::move(out));
}

void merge(const Json& from, Json* into) {
  for (const Json::Member& member : from.members()) {
    Json* present = into->find(member.first);
    if (present != nullptr && present->is_object() && member.second.is_object()) {
      merge(member.second, present);
    } else {
      into->set(member.first, member.second);
    }
  }
}

Result<Value> union_(Call& call) {
  HR_TRY(const bool arrays, all_arrays(call));
  Json out = arrays ? Json::array() : Json::object();
  for (size_t i = 0; i < call.size(); ++i) {
    if (!arrays) {
      merge(call[i], &out);
      continue;
    }
    for (const Json& item : call[i].items()) {
      if (!holds(out.items(), item)) {
        out.push_back(item);
      }
    }
  }
  return Value(std::move(out));
}

Result<Value> chunk(Call& call) {
  HR_TRY(const auto size, call.integer(1));
  if (size < 1) {
    return call.wrong(1, "a size of at least 1");
  }
  if (!call[0].is_array() && !call[0].is_string()) {
    return call.wrong(0, "a string or an array");
  }
  const auto total = call[0].is_array() ? static_cast<int64_t>(call[0].items().size())
                                        : utf16_length(call[0].string());
  HR_TRY(call.check_count(static_cast<size_t>(total / size)));
  Json out = Json::array();
  for (int64_t at = 0; at < total; at += std::min(size, total - at)) {
    HR_TRY(auto part, range_of(call, at, std::min(size, total - at)));
    out.push_back(std::move(part).take());
  }
  return Value(std::move(out));
}

Result<Value> reverse(Call& call) {
  HR_TRY(const auto array, call.array(0));
  return Value(Json(Json::Array(array->rbegin(), array->rend())));
}

Result<Value> sort(Call& call) {
  HR_TRY(const auto array, call.array(0));
  std::string property;
  if (call.size() > 1) {
    HR_TRY(property, call.text(1));
  }
  std::vector<std::pair<Json, const Json*>> keyed;
  for (const Json& item : *array) {
    const Json* key = &item;
    if (call.size() > 1) {
      key = item.find(property);
      if (key == nullptr) {
        return call.wrong(0, "an array of objects that all have the property '" + property + "'");
      }
    }
    const bool same_kind = keyed.empty() || (key->is_number() && keyed[0].first.is_number()) ||
                           (key->is_string() && keyed[0].first.is_string());
    if (!same_kind || (!key->is_number() && !key->is_string())) {
      return call.wrong(0, "an array whose keys are all numbers or all strings");
    }
    keyed.emplace_back(*key, &item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return a.first.is_string() ? a.first.string() < b.first.string()
                               : a.first.number() < b.first.number();
  });
  Json out = Json::array();
  for (const auto& [key, item] : keyed) {
    out.push_back(*item);
  }
  return Value(std::move(out));
}

Result<Value> create_array(Call& call) {
  Json out = Json::array();
  for (size_t i = 0; i < call.size(); ++i) {
    out.push_back(call.take(i).take());
  }
  return Value(std::move(out));
}

Result<Value> create_object(Call& call) {
  if (call.size() % 2 != 0) {
    return call.fail(fmt::format("names and values come in pairs; got {} arguments", call.size()));
  }
  Json out = Json::object();
  for (size_t i = 0; i < call.size(); i += 2) {
    HR_TRY(const auto name, call.text(i));
    out.set(name, call.take(i + 1).take());
  }
  return Value(std::move(out));
}

Result<Value> set_property(Call& call) {
  HR_TRY(call.object(0));
  HR_TRY(const auto name, call.text(1));
  Json out = call[0];
  out.set(name, call[2]);
  return Value(std::move(out));
}

Result<Value> add_property(Call& call) {
  HR_TRY(call.object(0));
  HR_TRY(const auto name, call.text(1));
  if (call[0].find(name) != nullptr) {
    return call.fail(
        fmt::format("the object already has a property '{}'; setProperty replaces it", name));
  }
  return set_property(call);
}

Result<Value> remove_property(Call& call) {
  HR_TRY(const auto members, call.object(0));
  HR_TRY(const auto name, call.text(1));
  Json out = Json::object();
  for (const Json::Member& member : *members) {
    if (member.first != name) {
      out.members().push_back(member);
    }
  }
  return Value(std::move(out));
}

Result<Value> key_hash(Call& call) {
  return Value(Json(fmt::format("{:016x}", base::xxh3_64(call[0].dump(0, true)))));
}

constexpr Function kFunctions[] = {
    {"addProperty", 3, 3, "object, property, value", add_property},
    {"chunk", 2, 2, "collection, size", chunk},
    {"contains", 2, 2, "collection, value", contains},
    {"createArray", 0, kAny, "value", create_array},
    {"createObject", 0, kAny, "name, value", create_object},
    {"empty", 1, 1, "collection", empty},
    {"first", 1, 1, "collection", first},
    {"intersection", 1, kAny, "collection", intersection},
    {"join", 2, 2, "array, delimiter", join},
    {"keyhash", 1, 1, "value", key_hash},
    {"last", 1, 1, "collection", last},
    {"length", 1, 1, "collection", length},
    {"removeProperty", 2, 2, "object, property", remove_property},
    {"reverse", 1, 1, "array", reverse},
    {"setProperty", 3, 3, "object, property, value", set_property},
    {"skip", 2, 2, "array, count", skip},
    {"sort", 1, 2, "array, property", sort},
    {"take", 2, 2, "collection, count", take},
    {"union", 1, kAny, "collection", union_},
};

}  // namespace

std::span<const Function> collection_functions() { return kFunctions; }

}  // namespace headrace::flow
