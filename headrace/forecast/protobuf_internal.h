// SPDX-License-Identifier: Apache-2.0
// Write protobuf's wire format: just what ONNX files need.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace headrace::forecast {

/// A message under construction. Fields are appended in the order of the calls.
/// Format: protobuf encoding, https://protobuf.dev/programming-guides/encoding.
class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& value) {
    return text(field, value.bytes_);
  }
  /// Little-endian floats as a byte string (TensorProto.raw_data).
  ProtobufMessage& floats(int field, std::span<const float> values) {
    return text(field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  ProtobufMessage& integers(int field, std::span<const int64_t> values) {
    return text(field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire_type) {
    varint((static_cast<uint64_t>(field) << 3U) | static_cast<uint64_t>(wire_type));
  }
  void varint(uint64_t value) {
    while (value >= 0x80U) {
      bytes_ += static_cast<char>((value & 0x7fU) | 0x80U);
      value >>= 7U;
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace headrace::forecast
