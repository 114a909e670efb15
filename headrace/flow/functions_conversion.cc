// SPDX-License-Identifier: Apache-2.0
// Conversion functions. Binary values are objects {"$content-type", "$content": base64}.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "headrace/flow/function_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kOctets = "application/octet-stream";
constexpr std::string_view kDataUriHead = "data:text/plain;charset=utf-8;base64,";

std::string encode_base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group =
          (group << 8U) | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 4; ++j) {
      out.push_back(j <= count ? kBase64Digits[(group >> (18U - 6U * j)) & 63U] : '=');
    }
  }
  return out;
}

/// nullopt: not base64 (RFC 4648, padding required, no line breaks).
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  size_t pads = 0;
  while (pads < 2 && !text.empty() && text.ends_with('=')) {
    text.remove_suffix(1);
    ++pads;
  }
  std::string out;
  uint32_t group = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const size_t digit = kBase64Digits.find(c);
    if (digit == std::string_view::npos) {
      return std::nullopt;
    }
    group = (group << 6U) | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>((group >> bits) & 255U));
    }
  }
  return out;
}

Json binary_value(std::string base64) {
  return Json::object({{"$content-type", Json(kOctets)}, {"$content", Json(std::move(base64))}});
}

/// Text out of bytes, as UTF-8; bytes that are none become U+FFFD.
std::string as_text(std::string_view bytes) { return from_utf16(to_utf16(bytes)); }

/// The base64 text of argument 0: a string, or a binary value when `binary` may stand there.
Result<std::string> base64_argument(const Call& call) {
  const Json& value = call[0];
  const Json* content = value.find("$content");
  if (content != nullptr && content->is_string()) {
    return content->string();
  }
  HR_TRY(const auto text, call.text(0));
  return std::string(text);
}

Result<Value> array(Call& call) {
  if (call[0].is_array()) {
    return call.take(0);
  }
  Json out = Json::array();
  out.push_back(call.take(0).take());
  return Value(std::move(out));
}

Result<Value> base64(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(Json(encode_base64(text)));
}

Result<Value> base64_to_binary(Call& call) {
  HR_TRY(const auto text, call.text(0));
  if (!decode_base64(text)) {
    return call.wrong(0, "base64 text");
  }
  return Value(binary_value(std::string(text)));
}

Result<Value> base64_to_string(Call& call) {
  HR_TRY(const auto text, base64_argument(call));
  const auto bytes = decode_base64(text);
  if (!bytes) {
    return call.wrong(0, "base64 text");
  }
  return Value(Json(as_text(*bytes)));
}

Result<Value> binary(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(binary_value(encode_base64(text)));
}

Result<Value> bool_(Call& call) {
  const Json& value = call[0];
  if (value.is_bool()) {
    return call.take(0);
  }
  if (value.is_number() && (value.number() == 0.0 || value.number() == 1.0)) {
    return Value(Json(value.number() == 1.0));
  }
  if (value.is_string()) {
    const std::string text = lower_text(trim_text(value.string()));
    if (text == "true" || text == "false") {
      return Value(Json(text == "true"));
    }
  }
  return call.wrong(0, "0, 1, 'true' or 'false'");
}

Result<Value> data_uri(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(Json(std::string(kDataUriHead) + encode_base64(text)));
}

std::string percent_encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr ==
            text.data() + i + 3) {
      out.push_back(static_cast<char>(value));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

/// The bytes of a data URI (RFC 2397); nullopt when it is none.
std::optional<std::string> data_uri_bytes(std::string_view uri) {
  if (!lower_text(uri.substr(0, 5)).starts_with("data:")) {
    return std::nullopt;
  }
  const size_t comma = uri.find(',');
  if (comma == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view content = uri.substr(comma + 1);
  if (lower_text(uri.substr(0, comma)).ends_with(";base64")) {
    return decode_base64(content);
  }
  return percent_decode(content);
}

Result<Value> data_uri_to_string(Call& call) {
  HR_TRY(const auto text, call.text(0));
  const auto bytes = data_uri_bytes(text);
  if (!bytes) {
    return call.wrong(0, "a data URI");
  }
  return Value(Json(as_text(*bytes)));
}

Result<Value> data_uri_to_binary(Call& call) {
  HR_TRY(const auto text, call.text(0));
  const auto bytes = data_uri_bytes(text);
  if (!bytes) {
    return call.wrong(0, "a data URI");
  }
  return Value(binary_value(encode_base64(*bytes)));
}

Result<Value> uri_component(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(Json(percent_encode(text)));
}

Result<Value> uri_component_to_string(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(Json(as_text(percent_decode(text))));
}

Result<Value> uri_component_to_binary(Call& call) {
  HR_TRY(const auto text, call.text(0));
  return Value(binary_value(encode_base64(percent_decode(text))));
}

Result<Value> float_(Call& call) {
  if (call[0].is_number()) {
    return Value(Json(call[0].number()));
  }
  if (call[0].is_string()) {
    const std::string_view text = trim_text(call[0].string());
    double value = 0.0;
    const auto [end, code] = std::from_chars(text.begin(), text.end(), value);
    if (code == std::errc() && end == text.end() && std::isfinite(value) && !text.empty()) {
      return Value(Json(value));
    }
  }
  return call.wrong(0, "a number or the text of one");
}

Result<Value> int_(Call& call) {
  if (call[0].is_number()) {
    HR_TRY(const auto value, call.integer(0));
    return Value(Json(value));
  }
  if (call[0].is_string()) {
    std::string_view text = trim_text(call[0].string());
    text.remove_prefix(text.starts_with('+') ? 1 : 0);
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.begin(), text.end(), value);
    if (code == std::errc() && end == text.end() && !text.empty()) {
      return Value(Json(value));
    }
  }
  return call.wrong(0, "an integer or the text of one");
}

Result<Value> json(Call& call) {
  if (call[0].is_null()) {
    return Value(Json::object());
  }
  if (!call[0].is_string()) {
    return call.take(0);
  }
  auto value = parse_json(call[0].string(), "text");
  if (!value.ok()) {
    return call.wrong(0, "JSON text (" + value.error().message() + ")");
  }
  return Value(*std::move(value));
}

Result<Value> string(Call& call) { return Value(Json(value_text(call[0]))); }

constexpr Function kFunctions[] = {
    {"array", 1, 1, "value", array},
    {"base64", 1, 1, "text", base64},
    {"base64ToBinary", 1, 1, "text", base64_to_binary},
    {"base64ToString", 1, 1, "text", base64_to_string},
    {"binary", 1, 1, "text", binary},
    {"bool", 1, 1, "value", bool_},
    {"dataUri", 1, 1, "text", data_uri},
    {"dataUriToBinary", 1, 1, "uri", data_uri_to_binary},
    {"dataUriToString", 1, 1, "uri", data_uri_to_string},
    {"decodeBase64", 1, 1, "text", base64_to_string},
    {"decodeDataUri", 1, 1, "uri", data_uri_to_binary},
    {"decodeUriComponent", 1, 1, "text", uri_component_to_string},
    {"encodeUriComponent", 1, 1, "text", uri_component},
    {"float", 1, 1, "value", float_},
    {"int", 1, 1, "value", int_},
    {"json", 1, 1, "value", json},
    {"string", 1, 1, "value", string},
    {"uriComponent", 1, 1, "text", uri_component},
    {"uriComponentToBinary", 1, 1, "text", uri_component_to_binary},
    {"uriComponentToString", 1, 1, "text", uri_component_to_string},
};

}  // namespace

std::span<const Function> conversion_functions() { return kFunctions; }

}  // namespace headrace::flow
