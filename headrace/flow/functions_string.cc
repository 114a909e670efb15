// SPDX-License-Identifier: Apache-2.0
// String functions. Positions and lengths count UTF-16 code units.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "headrace/flow/function_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

Result<Value> concat(Call& call) {
  bool arrays = true;
  for (size_t i = 0; i < call.size(); ++i) {
    arrays = arrays && call[i].is_array();
  }
  if (arrays) {
    size_t count = 0;
    for (size_t i = 0; i < call.size(); ++i) {
      count += call[i].items().size();
    }
    HR_TRY(call.check_count(count));
    Json out = Json::array();
    for (size_t i = 0; i < call.size(); ++i) {
      out.items().insert(out.items().end(), call[i].items().begin(), call[i].items().end());
    }
    return Value(std::move(out));
  }
  std::string out;
  for (size_t i = 0; i < call.size(); ++i) {
    append_value_text(call[i], &out);
    HR_TRY(call.check_text(out.size()));
  }
  return Value(Json(std::move(out)));
}

Result<Value> starts_with(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto part, call.text(1));
  return Value(Json(lower_text(text).starts_with(lower_text(part))));
}

Result<Value> ends_with(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto part, call.text(1));
  return Value(Json(lower_text(text).ends_with(lower_text(part))));
}

Result<Value> index_of(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto part, call.text(1));
  const size_t at = to_utf16(lower_text(text)).find(to_utf16(lower_text(part)));
  return Value(Json(at == std::u16string::npos ? int64_t{-1} : static_cast<int64_t>(at)));
}

Result<Value> last_index_of(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto part, call.text(1));
  const size_t at = to_utf16(lower_text(text)).rfind(to_utf16(lower_text(part)));
  return Value(Json(at == std::u16string::npos ? int64_t{-1} : static_cast<int64_t>(at)));
}

Result<Value> nth_index_of(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto part, call.text(1));
  HR_TRY(const auto wanted, call.integer(2));
  if (part.empty()) {
    return call.wrong(1, "a string that is not empty");
  }
  const std::u16string haystack = to_utf16(lower_text(text));
  const std::u16string needle = to_utf16(lower_text(part));
  std::vector<int64_t> found;
  for (size_t at = haystack.find(needle); at != std::u16string::npos;
       at = haystack.find(needle, at + needle.size())) {
    found.push_back(static_cast<int64_t>(at));
  }
  const auto count = static_cast<int64_t>(found.size());
  if (wanted >= 1 && wanted <= count) {
    return Value(Json(found[static_cast<size_t>(wanted - 1)]));
  }
  if (wanted <= -1 && wanted >= -count) {
    return Value(Json(found[static_cast<size_t>(count + wanted)]));
  }
  return Value(Json(-1));
}

Result<Value> replace(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto old_part, call.text(1));
  HR_TRY(const auto new_part, call.text(2));
  if (old_part.empty()) {
    return call.wrong(1, "a string that is not empty");
  }
  size_t found = 0;
  for (size_t at = text.find(old_part); at != std::string_view::npos;
       at = text.find(old_part, at + old_part.size())) {
    ++found;
  }
  HR_TRY(call.check_text(text.size() - found * old_part.size() + found * new_part.size()));
  std::string out;
  size_t at = 0;
  for (;;) {
    const size_t next = text.find(old_part, at);
    out += text.substr(at, next - at);
    if (next == std::string_view::npos) {
      return Value(Json(std::move(out)));
    }
    out += new_part;
    at = next + old_part.size();
  }
}

Result<Value> split(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto delimiter, call.text(1));
  Json out = Json::array();
  size_t at = 0;
  for (;;) {
    const size_t next = delimiter.empty() ? std::string_view::npos : text.find(delimiter, at);
    out.push_back(text.substr(at, next == std::string_view::npos ? next : next - at));
    if (next == std::string_view::npos) {
      return Value(std::move(out));
    }
    HR_TRY(call.check_count(out.items().size() + 1));
    at = next + delimiter.size();
  }
}

/// [start, start + length) of `text` in UTF-16 units; both lie inside.
std::string cut(std::string_view text, int64_t start, int64_t length) {
  if (utf16_length(text) == static_cast<int64_t>(text.size())) {  // ASCII
    return std::string(text.substr(static_cast<size_t>(start), static_cast<size_t>(length)));
  }
  return from_utf16(std::u16string_view(to_utf16(text))
                        .substr(static_cast<size_t>(start), static_cast<size_t>(length)));
}

Result<Value> substring(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(const auto start, call.integer(1));
  const int64_t size = utf16_length(text);
  if (start < 0 || start > size) {
    return call.wrong(1, fmt::format("an index from 0 to the length {}", size));
  }
  int64_t length = size - start;
  if (call.size() > 2) {
    HR_TRY(length, call.integer(2));
    if (length < 0 || length > size - start) {
      return call.wrong(2, fmt::format("a length from 0 to {}, what is left of the {} characters "
                                       "after index {}",
                                       size - start, size, start));
    }
  }
  return Value(Json(cut(text, start, length)));
}

/// Logic Apps' slice: negative positions count from the end, positions outside are clamped.
Result<Value> slice(Call& call) {
  HR_TRY(const auto text, call.text(0));
  HR_TRY(int64_t start, call.integer(1));
  const int64_t size = utf16_length(text);
  int64_t end = size;
  if (call.size() > 2) {
    HR_TRY(end, call.integer(2));
  }
  const auto place = [size](int64_t at) {
    return std::clamp(at < 0 ? at + size : at, int64_t{0}, size);
  };
  start = place(start);
  end = std::max(start, place(end));
  return Value(Json(cut(text, start, end - start)));
}

Result<Value> to_lower(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(Json(lower_text(text)));
}

Result<Value> to_upper(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(Json(upper_text(text)));
}

Result<Value> trim(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(Json(trim_text(text)));
}

Result<Value> guid(Call& call) {
  std::string form = "D";
  if (call.size() > 0) {
    HR_TRY(const auto text, call.text(0));
    form = upper_text(text);
  }
  uint64_t high = call.context().random();
  uint64_t low = call.context().random();
  high = (high & ~uint64_t{0xF000}) | 0x4000U;                 // version 4 (RFC 9562)
  low = (low & ~(uint64_t{3} << 62U)) | (uint64_t{2} << 62U);  // variant
  const std::string digits = fmt::format("{:016x}{:016x}", high, low);
  if (form == "N") {
    return Value(Json(digits));
  }
  if (form == "X") {
    std::string bytes;
    for (size_t i = 16; i < 32; i += 2) {
      bytes += fmt::format("{}0x{}", i > 16 ? "," : "", digits.substr(i, 2));
    }
    return Value(Json(fmt::format("{{0x{},0x{},0x{},{{{}}}}}", digits.substr(0, 8),
                                  digits.substr(8, 4), digits.substr(12, 4), bytes)));
  }
  const std::string dashed =
      fmt::format("{}-{}-{}-{}-{}", digits.substr(0, 8), digits.substr(8, 4), digits.substr(12, 4),
                  digits.substr(16, 4), digits.substr(20));
  if (form == "D") {
    return Value(Json(dashed));
  }
  if (form == "B") {
    return Value(Json("{" + dashed + "}"));
  }
  if (form == "P") {
    return Value(Json("(" + dashed + ")"));
  }
  return call.wrong(0, "one of the formats N, D, B, P, X");
}

Result<Value> is_int(Call& call) {
  HR_TRY(const auto text, call.text(0));
  int64_t value = 0;
  std::string_view digits = text;
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
  }
  const auto [end, code] = std::from_chars(digits.begin(), digits.end(), value);
  return Value(Json(code == std::errc() && end == digits.end() && !digits.empty()));
}

constexpr Function kFunctions[] = {
    {"concat", 1, kAny, "text", concat},
    {"endsWith", 2, 2, "text, searchText", ends_with},
    {"guid", 0, 1, "format", guid},
    {"indexOf", 2, 2, "text, searchText", index_of},
    {"isInt", 1, 1, "text", is_int},
    {"lastIndexOf", 2, 2, "text, searchText", last_index_of},
    {"nthIndexOf", 3, 3, "text, searchText, occurrence", nth_index_of},
    {"replace", 3, 3, "text, oldText, newText", replace},
    {"slice", 2, 3, "text, startIndex, endIndex", slice},
    {"split", 2, 2, "text, delimiter", split},
    {"startsWith", 2, 2, "text, searchText", starts_with},
    {"substring", 2, 3, "text, startIndex, length", substring},
    {"toLower", 1, 1, "text", to_lower},
    {"toUpper", 1, 1, "text", to_upper},
    {"trim", 1, 1, "text", trim},
};

}  // namespace

std::span<const Function> string_functions() { return kFunctions; }

}  // namespace headrace::flow
