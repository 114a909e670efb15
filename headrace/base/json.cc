// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "headrace/base/check.h"

namespace headrace {

namespace {

constexpr std::string_view kKindNames[] = {"null",   "boolean", "integer", "number",
                                           "string", "array",   "object"};

const Json* find_member(const Json::Object& members, std::string_view name) {
  for (auto it = members.rbegin(); it != members.rend(); ++it) {
    if (it->first == name) {
      return &it->second;
    }
  }
  return nullptr;
}

bool equal_objects(const Json::Object& a, const Json::Object& b) {
  if (a.size() != b.size()) {
    return false;
  }
  return std::all_of(a.begin(), a.end(), [&](const Json::Member& member) {
    const Json* other = find_member(b, member.first);
    return other != nullptr && *other == member.second;
  });
}

void append_escaped(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      case '\b': *out += "\\b"; break;
      case '\f': *out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          const auto u = static_cast<unsigned char>(c);
          *out += "\\u00";
          out->push_back(kHex[u >> 4U]);
          out->push_back(kHex[u & 15U]);
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

void append_line(int indent, int depth, std::string* out) {
  if (indent > 0) {
    out->push_back('\n');
    out->append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
  }
}

struct Layout {
  int indent = 0;
  bool sorted = false;
  bool reals_kept = false;
};

void dump_value(const Json& value, const Layout& layout, int depth, std::string* out);

void dump_object(const Json::Object& members, const Layout& layout, int depth, std::string* out) {
  std::vector<const Json::Member*> order;
  order.reserve(members.size());
  for (const Json::Member& member : members) {
    order.push_back(&member);
  }
  if (layout.sorted) {
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->first < b->first; });
  }
  out->push_back('{');
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0) {
      out->push_back(',');
    }
    append_line(layout.indent, depth + 1, out);
    append_escaped(order[i]->first, out);
    *out += layout.indent > 0 ? ": " : ":";
    dump_value(order[i]->second, layout, depth + 1, out);
  }
  if (!order.empty()) {
    append_line(layout.indent, depth, out);
  }
  out->push_back('}');
}

void dump_value(const Json& value, const Layout& layout, int depth, std::string* out) {
  switch (value.kind()) {
    case Json::Kind::null: *out += "null"; return;
    case Json::Kind::boolean: *out += value.boolean() ? "true" : "false"; return;
    case Json::Kind::integer: *out += std::to_string(value.integer()); return;
    case Json::Kind::real: {
      const double number = value.number();
      if (std::isfinite(number)) {
        const std::string text = number_text(number);
        *out += text;
        // "-0" would be read as a whole number, which has no sign of its own.
        const bool real_text = layout.reals_kept || (number == 0.0 && std::signbit(number));
        if (real_text && text.find_first_of(".e") == std::string::npos) {
          *out += ".0";
        }
      } else {
        *out += std::isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
      }
      return;
    }
    case Json::Kind::string: append_escaped(value.string(), out); return;
    case Json::Kind::object: dump_object(value.members(), layout, depth, out); return;
    case Json::Kind::array: break;
  }
  out->push_back('[');
  bool first = true;
  for (const Json& item : value.items()) {
    if (!first) {
      out->push_back(',');
    }
    first = false;
    append_line(layout.indent, depth + 1, out);
    dump_value(item, layout, depth + 1, out);
  }
  if (!first) {
    append_line(layout.indent, depth, out);
  }
  out->push_back(']');
}

/// Length of the well-formed UTF-8 sequence at `text[at]`, 0 when there is none (RFC 3629).
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(at);
  if (lead < 0x80U) {
    return 1;
  }
  if (lead >= 0xC2U && lead <= 0xDFU) {
    return tail(at + 1) ? 2 : 0;
  }
  if (lead >= 0xE0U && lead <= 0xEFU) {
    const unsigned second = byte(at + 1);
    const bool good = tail(at + 1) && tail(at + 2) && !(lead == 0xE0U && second < 0xA0U) &&
                      !(lead == 0xEDU && second > 0x9FU);
    return good ? 3 : 0;
  }
  if (lead >= 0xF0U && lead <= 0xF4U) {
    const unsigned second = byte(at + 1);
    const bool good = tail(at + 1) && tail(at + 2) && tail(at + 3) &&
                      !(lead == 0xF0U && second < 0x90U) && !(lead == 0xF4U && second > 0x8FU);
    return good ? 4 : 0;
  }
  return 0;
}

void append_utf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80U) {
    put(code);
  } else if (code < 0x800U) {
    put(0xC0U | (code >> 6U));
    put(0x80U | (code & 63U));
  } else if (code < 0x10000U) {
    put(0xE0U | (code >> 12U));
    put(0x80U | ((code >> 6U) & 63U));
    put(0x80U | (code & 63U));
  } else {
    put(0xF0U | (code >> 18U));
    put(0x80U | ((code >> 12U) & 63U));
    put(0x80U | ((code >> 6U) & 63U));
    put(0x80U | (code & 63U));
  }
}

/// Recursive descent over the text; remembers the first error and its place.
class Parser {
 public:
  Parser(std::string_view text, std::string_view name, const JsonOptions& options,
         std::vector<JsonWarning>* warnings)
      : text_(text), name_(name), options_(options), warnings_(warnings) {}

  Result<Json> run() {
    if (options_.tolerant && text_.substr(0, 3) == "\xEF\xBB\xBF") {
      warn(0, "byte-order mark at the start");
      at_ = 3;
    }
    HR_TRY(skip_blank());
    if (at_ >= text_.size()) {
      return fail(at_, "the text is empty; expected a value");
    }
    HR_TRY(auto value, parse_value(0));
    HR_TRY(skip_blank());
    if (at_ < text_.size()) {
      return fail(at_, "unexpected " + here() + " after the end of the value");
    }
    return value;
  }

 private:
  Error fail(size_t offset, const std::string& what) const {
    const TextPosition position = text_position(text_, static_cast<int64_t>(offset));
    return Error{Errc::invalid_argument, std::string(name_) + ":" + std::to_string(position.line) +
                                             ":" + std::to_string(position.column) + ": " + what};
  }

  void warn(size_t offset, std::string message) {
    if (warnings_ != nullptr) {
      warnings_->push_back({static_cast<int64_t>(offset), std::move(message)});
    }
  }

  std::string here() const {
    if (at_ >= text_.size()) {
      return "end of text";
    }
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20 || c == 0x7F) {
      return "control character " + std::to_string(c);
    }
    const size_t length = std::max<size_t>(1, utf8_length(text_, at_));
    return "'" + std::string(text_.substr(at_, length)) + "'";
  }

  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }

  Result<void> skip_blank() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        ++at_;
      } else if (c == '/' && options_.tolerant) {
        HR_TRY(skip_comment());
      } else {
        break;
      }
    }
    return {};
  }

  Result<void> skip_comment() {
    const size_t begin = at_;
    const std::string_view rest = text_.substr(at_, 2);
    if (rest == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (rest == "/*") {
      const size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) {
        return fail(begin, "the comment is never closed");
      }
      at_ = end + 2;
    } else {
      return fail(begin, "unexpected '/'");
    }
    warn(begin, "comments are not JSON");
    return {};
  }

  Result<Json> parse_value(int depth) {
    if (depth > options_.depth_max) {
      return fail(at_, "nested deeper than " + std::to_string(options_.depth_max) + " levels");
    }
    const size_t begin = at_;
    Result<Json> value = parse_bare(depth);
    if (value.ok()) {
      value->set_offset(static_cast<int64_t>(begin));
    }
    return value;
  }

  Result<Json> parse_bare(int depth) {
    if (at_ >= text_.size()) {
      return fail(at_, "the text ends where a value is expected");
    }
    switch (text_[at_]) {
      case '{': return parse_object(depth);
      case '[': return parse_array(depth);
      case '"': {
        HR_TRY(auto text, parse_string());
        return Json(std::move(text));
      }
      case 't': return parse_word("true", Json(true));
      case 'f': return parse_word("false", Json(false));
      case 'n': return parse_word("null", Json());
      default: return parse_number();
    }
  }

  Result<Json> parse_word(std::string_view word, Json value) {
    if (text_.substr(at_, word.size()) != word) {
      return fail(at_, "expected a value; did you mean " + std::string(word) + "?");
    }
    at_ += word.size();
    return value;
  }

  bool digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }

  Result<Json> parse_number() {
    const size_t begin = at_;
    bool integral = true;
    if (next_is('-')) {
      ++at_;
    }
    if (!digit()) {
      return fail(at_, "unexpected " + here() + "; expected a value");
    }
    const bool zero = next_is('0');
    while (digit()) {
      ++at_;
    }
    const size_t first = begin + (text_[begin] == '-' ? 1U : 0U);
    if (zero && at_ - first > 1) {
      return fail(begin, "a number must not begin with 0");
    }
    if (next_is('.')) {
      integral = false;
      ++at_;
      if (!digit()) {
        return fail(at_, "expected a digit after the decimal point, found " + here());
      }
      while (digit()) {
        ++at_;
      }
    }
    if (next_is('e') || next_is('E')) {
      integral = false;
      ++at_;
      if (next_is('+') || next_is('-')) {
        ++at_;
      }
      if (!digit()) {
        return fail(at_, "expected a digit in the exponent, found " + here());
      }
      while (digit()) {
        ++at_;
      }
    }
    const char* from = text_.data() + begin;
    const char* to = text_.data() + at_;
    if (integral) {
      int64_t whole = 0;
      if (std::from_chars(from, to, whole).ec == std::errc()) {
        return Json(whole);
      }
    }
    double real = 0.0;
    if (std::from_chars(from, to, real).ec == std::errc::result_out_of_range) {
      const bool tiny =
          real == 0.0 && text_.substr(begin, at_ - begin).find("e-") != std::string_view::npos;
      if (!tiny) {
        return fail(begin, "the number is beyond the range of a double");
      }
    }
    return Json(real);
  }

  Result<uint32_t> parse_hex4() {
    uint32_t code = 0;
    const char* from = text_.data() + at_;
    if (at_ + 4 > text_.size() || std::from_chars(from, from + 4, code, 16).ptr != from + 4) {
      return fail(at_, "\\u needs four hexadecimal digits");
    }
    at_ += 4;
    return code;
  }

  Result<void> parse_escape(std::string* out) {
    const size_t begin = at_;
    ++at_;
    if (at_ >= text_.size()) {
      return fail(begin, "the string is never closed");
    }
    switch (text_[at_++]) {
      case '"': out->push_back('"'); return {};
      case '\\': out->push_back('\\'); return {};
      case '/': out->push_back('/'); return {};
      case 'b': out->push_back('\b'); return {};
      case 'f': out->push_back('\f'); return {};
      case 'n': out->push_back('\n'); return {};
      case 'r': out->push_back('\r'); return {};
      case 't': out->push_back('\t'); return {};
      case 'u': break;
      default: return fail(begin, "unknown escape; write \\\\ for a backslash");
    }
    HR_TRY(auto code, parse_hex4());
    if (code >= 0xD800U && code <= 0xDBFFU) {
      if (text_.substr(at_, 2) != "\\u") {
        return fail(begin, "a high surrogate without its low one");
      }
      at_ += 2;
      HR_TRY(auto low, parse_hex4());
      if (low < 0xDC00U || low > 0xDFFFU) {
        return fail(begin, "a high surrogate without its low one");
      }
      code = 0x10000U + ((code - 0xD800U) << 10U) + (low - 0xDC00U);
    } else if (code >= 0xDC00U && code <= 0xDFFFU) {
      return fail(begin, "a low surrogate without its high one");
    }
    append_utf8(code, out);
    return {};
  }

  Result<std::string> parse_string() {
    const size_t begin = at_;
    ++at_;
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) {
        return fail(begin, "the string is never closed");
      }
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c == '\\') {
        HR_TRY(parse_escape(&out));
      } else if (c == '\n') {
        return fail(begin, "the string is not closed on its line");
      } else if (static_cast<unsigned char>(c) < 0x20) {
        return fail(at_, "a string must not hold " + here() + "; write it as an escape");
      } else {
        const size_t length = utf8_length(text_, at_);
        if (length == 0) {
          return fail(at_,
                      "the bytes here are not UTF-8; convert the text, e.g. iconv -f LATIN1 "
                      "-t UTF-8");
        }
        out.append(text_, at_, length);
        at_ += length;
      }
    }
  }

  /// After an element: true at the closing bracket, false when another element follows.
  Result<bool> parse_separator(char close, size_t begin) {
    HR_TRY(skip_blank());
    if (next_is(close)) {
      ++at_;
      return true;
    }
    if (!next_is(',')) {
      if (at_ >= text_.size()) {
        return fail(begin, std::string("this ") + (close == '}' ? "{" : "[") + " is never closed");
      }
      return fail(at_, "unexpected " + here() + "; expected ',' or '" + close + "'");
    }
    const size_t comma = at_++;
    HR_TRY(skip_blank());
    if (next_is(close)) {
      if (!options_.tolerant) {
        return fail(comma, std::string("a comma before '") + close + "'");
      }
      warn(comma, std::string("a comma before '") + close + "' is not JSON");
      ++at_;
      return true;
    }
    return false;
  }

  Result<Json> parse_array(int depth) {
    const size_t begin = at_++;
    Json::Array items;
    HR_TRY(skip_blank());
    if (next_is(']')) {
      ++at_;
      return Json(std::move(items));
    }
    for (;;) {
      HR_TRY(auto item, parse_value(depth + 1));
      items.push_back(std::move(item));
      HR_TRY(const bool done, parse_separator(']', begin));
      if (done) {
        return Json(std::move(items));
      }
    }
  }

  Result<void> check_duplicate(Json::Object* members, const std::string& name, size_t offset) {
    // Linear up to a handful of members; a big object is checked once, at its end, by
    // `find_duplicates`.
    if (members->size() > 32) {
      return {};
    }
    for (auto it = members->begin(); it != members->end(); ++it) {
      if (it->first == name) {
        if (!options_.tolerant) {
          return fail(offset, "the key \"" + name + "\" stands here twice");
        }
        warn(offset, "the key \"" + name + "\" stands here twice; the last one counts");
        members->erase(it);
        break;
      }
    }
    return {};
  }

  Result<void> check_big_object(Json::Object* members, size_t begin) {
    if (members->size() <= 32) {
      return {};
    }
    std::vector<size_t> order(members->size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return (*members)[a].first < (*members)[b].first; });
    std::vector<size_t> dropped;
    for (size_t i = 1; i < order.size(); ++i) {
      if ((*members)[order[i - 1]].first == (*members)[order[i]].first) {
        const std::string& name = (*members)[order[i]].first;
        if (!options_.tolerant) {
          return fail(begin, "the key \"" + name + "\" stands in this object twice");
        }
        warn(begin, "the key \"" + name + "\" stands in this object twice; the last one counts");
        dropped.push_back(order[i - 1]);
      }
    }
    std::sort(dropped.rbegin(), dropped.rend());
    for (const size_t index : dropped) {
      members->erase(members->begin() + static_cast<std::ptrdiff_t>(index));
    }
    return {};
  }

  Result<Json> parse_object(int depth) {
    const size_t begin = at_++;
    Json::Object members;
    HR_TRY(skip_blank());
    if (next_is('}')) {
      ++at_;
      return Json(std::move(members));
    }
    for (;;) {
      if (!next_is('"')) {
        return fail(at_, "unexpected " + here() + "; expected a key in double quotes");
      }
      const size_t key_offset = at_;
      HR_TRY(auto name, parse_string());
      HR_TRY(check_duplicate(&members, name, key_offset));
      HR_TRY(skip_blank());
      if (!next_is(':')) {
        return fail(at_, "unexpected " + here() + "; expected ':' after the key \"" + name + "\"");
      }
      ++at_;
      HR_TRY(skip_blank());
      HR_TRY(auto value, parse_value(depth + 1));
      members.emplace_back(std::move(name), std::move(value));
      HR_TRY(const bool done, parse_separator('}', begin));
      if (done) {
        HR_TRY(check_big_object(&members, begin));
        return Json(std::move(members));
      }
    }
  }

  std::string_view text_;
  std::string_view name_;
  const JsonOptions& options_;
  std::vector<JsonWarning>* warnings_;
  size_t at_ = 0;
};

}  // namespace

std::string_view Json::kind_name() const { return kKindNames[value_.index()]; }

bool Json::boolean() const {
  HR_CHECK(is_bool(), kind_name().data());
  return std::get<bool>(value_);
}
int64_t Json::integer() const {
  HR_CHECK(is_integer(), kind_name().data());
  return std::get<int64_t>(value_);
}
double Json::number() const {
  HR_CHECK(is_number(), kind_name().data());
  return is_integer() ? static_cast<double>(std::get<int64_t>(value_)) : std::get<double>(value_);
}
const std::string& Json::string() const {
  HR_CHECK(is_string(), kind_name().data());
  return std::get<std::string>(value_);
}
std::string& Json::string() {
  HR_CHECK(is_string(), kind_name().data());
  return std::get<std::string>(value_);
}
const Json::Array& Json::items() const {
  HR_CHECK(is_array(), kind_name().data());
  return std::get<Array>(value_);
}
Json::Array& Json::items() {
  HR_CHECK(is_array(), kind_name().data());
  return std::get<Array>(value_);
}
const Json::Object& Json::members() const {
  HR_CHECK(is_object(), kind_name().data());
  return std::get<Object>(value_);
}
Json::Object& Json::members() {
  HR_CHECK(is_object(), kind_name().data());
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view name) const {
  return is_object() ? find_member(members(), name) : nullptr;
}
Json* Json::find(std::string_view name) {
  return const_cast<Json*>(static_cast<const Json*>(this)->find(name));
}
const Json& Json::at(std::string_view name) const {
  const Json* value = find(name);
  HR_CHECK(value != nullptr, "no member \"" + std::string(name) + "\"");
  return *value;
}
Json& Json::operator[](std::string_view name) {
  if (is_null()) {
    value_ = Object{};
  }
  Json* value = find(name);
  return value != nullptr ? *value : members().emplace_back(std::string(name), Json()).second;
}
Json& Json::set(std::string_view name, Json value) {
  (*this)[name] = std::move(value);
  return *this;
}
Json& Json::push_back(Json value) {
  if (is_null()) {
    value_ = Array{};
  }
  items().push_back(std::move(value));
  return *this;
}
std::string Json::get_string(std::string_view name, std::string_view otherwise) const {
  const Json* value = find(name);
  return value != nullptr && value->is_string() ? value->string() : std::string(otherwise);
}
int64_t Json::get_integer(std::string_view name, int64_t otherwise) const {
  const Json* value = find(name);
  return value != nullptr && value->is_integer() ? value->integer() : otherwise;
}
double Json::get_number(std::string_view name, double otherwise) const {
  const Json* value = find(name);
  return value != nullptr && value->is_number() ? value->number() : otherwise;
}
bool Json::get_bool(std::string_view name, bool otherwise) const {
  const Json* value = find(name);
  return value != nullptr && value->is_bool() ? value->boolean() : otherwise;
}

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number()) {
    return is_integer() && other.is_integer() ? integer() == other.integer()
                                              : number() == other.number();
  }
  if (kind() != other.kind()) {
    return false;
  }
  switch (kind()) {
    case Kind::boolean: return boolean() == other.boolean();
    case Kind::string: return string() == other.string();
    case Kind::array: return items() == other.items();
    case Kind::object: return equal_objects(members(), other.members());
    default: return true;
  }
}

void Json::dump_to(std::string* out, int indent, bool sorted) const {
  dump_value(*this, {.indent = indent, .sorted = sorted}, 0, out);
}
std::string Json::dump(int indent, bool sorted) const {
  std::string out;
  dump_to(&out, indent, sorted);
  return out;
}
std::string Json::dump_exact() const {
  std::string out;
  dump_value(*this, {.reals_kept = true}, 0, &out);
  return out;
}

TextPosition text_position(std::string_view text, int64_t offset) {
  const std::string_view before = text.substr(0, static_cast<size_t>(std::max<int64_t>(0, offset)));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  return {lines + 1, static_cast<int64_t>(before.size() - begin) + 1};
}

Result<Json> parse_json(std::string_view text, std::string_view name, const JsonOptions& options,
                        std::vector<JsonWarning>* warnings) {
  return Parser(text, name, options, warnings).run();
}

std::string json_quote(std::string_view text) {
  std::string out;
  append_escaped(text, &out);
  return out;
}

std::string utf8_text(std::string_view bytes, size_t bytes_max) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string text;
  text.reserve(std::min(bytes.size(), bytes_max));
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = utf8_length(bytes, at);
    const std::string_view character = length > 0 ? bytes.substr(at, length) : kReplacement;
    if (text.size() + character.size() > bytes_max) {
      break;
    }
    text += character;
    at += std::max<size_t>(length, 1);
  }
  return text;
}
std::string number_text(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end.ptr);
}

}  // namespace headrace
