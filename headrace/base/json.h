// SPDX-License-Identifier: Apache-2.0
// One JSON for all planes: a value that knows where it stood in its text, a strict and a tolerant
// parser, a writer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace {

/// A JSON value. Objects keep the order of their members. Integers that fit in int64 stay integers
/// (`1` and `1.0` differ in kind, not in `number()`). Copies are deep. Not thread-safe for writing.
class HR_API Json {
 public:
  enum class Kind : uint8_t { null, boolean, integer, real, string, array, object };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(std::nullptr_t) {}                      // NOLINT(google-explicit-constructor)
  Json(bool value) : value_(value) {}          // NOLINT(google-explicit-constructor)
  Json(int value) : value_(int64_t{value}) {}  // NOLINT(google-explicit-constructor)
  Json(int64_t value) : value_(value) {}       // NOLINT(google-explicit-constructor)
  Json(uint64_t value)
      : value_(static_cast<int64_t>(value)) {}             // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                    // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(std::string_view value)
      : value_(std::string(value)) {}                    // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}       // NOLINT(google-explicit-constructor)
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }
  static Json object(std::initializer_list<Member> members) { return Json(Object(members)); }

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  /// "null", "boolean", "integer", "number", "string", "array", "object": as messages say it.
  std::string_view kind_name() const;
  bool is_null() const { return kind() == Kind::null; }
  bool is_bool() const { return kind() == Kind::boolean; }
  bool is_integer() const { return kind() == Kind::integer; }
  bool is_number() const { return kind() == Kind::integer || kind() == Kind::real; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // Readers; asking for another kind is a bug (HR_CHECK).
  bool boolean() const;
  int64_t integer() const;
  double number() const;  ///< integer or real
  const std::string& string() const;
  std::string& string();
  const Array& items() const;
  Array& items();
  const Object& members() const;
  Object& members();

  /// Member of an object, exact name, or nullptr (also when this is no object). The last of
  /// duplicates wins.
  const Json* find(std::string_view name) const;
  Json* find(std::string_view name);
  /// Member that must exist (HR_CHECK): for documents we wrote ourselves.
  const Json& at(std::string_view name) const;
  /// Set or add a member; a null value becomes an object first.
  Json& set(std::string_view name, Json value);
  Json& operator[](std::string_view name);  ///< find or add null
  /// Append to an array; a null value becomes an array first.
  Json& push_back(Json value);
  /// Convenience with defaults for absent members and other kinds.
  std::string get_string(std::string_view name, std::string_view otherwise = {}) const;
  int64_t get_integer(std::string_view name, int64_t otherwise = 0) const;
  double get_number(std::string_view name, double otherwise = 0.0) const;
  bool get_bool(std::string_view name, bool otherwise = false) const;

  /// Byte offset of the value's first character in the parsed text; -1 when it was made by code.
  int64_t offset() const { return offset_; }
  void set_offset(int64_t offset) { offset_ = offset; }

  /// Deep equality; 1 equals 1.0, offsets do not matter, order of members does not matter.
  bool operator==(const Json& other) const;

  /// Compact text; `indent` > 0 gives lines. Numbers are the shortest that read back the same; NaN
  /// and infinities are the strings "NaN", "Infinity", "-Infinity". `sorted` orders members by
  /// name.
  std::string dump(int indent = 0, bool sorted = false) const;
  void dump_to(std::string* out, int indent = 0, bool sorted = false) const;
  /// Compact text that reads back as the same kinds too: the real 2 is "2.0".
  std::string dump_exact() const;

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_;
  int64_t offset_ = -1;
};

/// 1-based line and column (in bytes) of an offset in a text.
struct TextPosition {
  int64_t line = 1;
  int64_t column = 1;
};
HR_API TextPosition text_position(std::string_view text, int64_t offset);

struct JsonOptions {
  /// Accept `//` and `/* */` comments, trailing commas, a byte-order mark and duplicate keys (the
  /// last wins).
  bool tolerant = false;
  int depth_max = 256;
};

/// What the tolerant parser let pass, with the place.
struct JsonWarning {
  int64_t offset = 0;
  std::string message;
};

/// Parse one value that fills the text. Errors are `invalid_argument`: "NAME:line:col: what;
/// expected ...". Strict mode follows RFC 8259 and also refuses duplicate keys. UTF-8 is validated.
HR_API Result<Json> parse_json(std::string_view text, std::string_view name = "json",
                               const JsonOptions& options = {},
                               std::vector<JsonWarning>* warnings = nullptr);

/// Bytes of the UTF-8 character at `at`; 0 when no whole one begins there.
HR_API size_t utf8_length(std::string_view text, size_t at);
/// `bytes` as UTF-8 for people and JSON: what is none becomes U+FFFD, and the result ends at a
/// character with at most `bytes_max` bytes.
HR_API std::string utf8_text(std::string_view bytes, size_t bytes_max = std::string::npos);
/// `text` as a quoted JSON string.
HR_API std::string json_quote(std::string_view text);
/// Shortest decimal text that reads back as `value`; integral values keep no ".0".
HR_API std::string number_text(double value);

}  // namespace headrace
