// SPDX-License-Identifier: Apache-2.0
// Little-endian fields of journal records and worker frames.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace headrace::flow {

static_assert(std::endian::native == std::endian::little, "fields are written as they lie");

/// Append fields to a string.
class FieldWriter {
 public:
  explicit FieldWriter(std::string* out) : out_(out) {}

  template <typename T>
    requires std::integral<T> || std::floating_point<T>
  FieldWriter& put(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out_->append(bytes, sizeof value);
    return *this;
  }
  FieldWriter& put_text(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    out_->append(text);
    return *this;
  }

 private:
  std::string* out_;
};

/// Take fields from the front of bytes that may be anybody's. After the first field that is not
/// there all others are zero or empty and `good()` is false.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    T value{};
    if (bytes_.size() < sizeof value) {
      good_ = false;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view get_text() {
    const auto size = get<uint32_t>();
    if (size > bytes_.size()) {
      good_ = false;
      bytes_ = {};
    }
    const std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(text.size());
    return text;
  }
  bool good() const { return good_; }
  /// Everything was there and nothing is left.
  bool complete() const { return good_ && bytes_.empty(); }
  size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace headrace::flow
