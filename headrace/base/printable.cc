// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "headrace/base/json.h"

namespace headrace::base {

namespace {

/// Format characters (Unicode's Cf, Zl, Zp) but for the joiners U+200C and U+200D, which some
/// scripts are written with.
bool is_unseen(uint32_t code) {
  constexpr std::pair<uint32_t, uint32_t> kUnseen[] = {
      {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},
      {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},     {0x180E, 0x180E},
      {0x200B, 0x200B},   {0x200E, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},
      {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD},
      {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE007F}};
  return std::any_of(std::begin(kUnseen), std::end(kUnseen), [code](const auto& range) {
    return code >= range.first && code <= range.second;
  });
}

uint32_t code_point(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  uint32_t code = character.size() == 1 ? first : first & (0x7FU >> character.size());
  for (const char c : character.substr(1)) {
    code = code << 6U | (static_cast<uint8_t>(c) & 0x3FU);
  }
  return code;
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto next = static_cast<uint8_t>(i + 1 < text.size() ? text[i + 1] : '\0');
    if (lines && (byte == '\n' || byte == '\t')) {
      out.push_back(text[i]);
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xC2 && next >= 0x80 && next <= 0x9F) {  // U+0080 to U+009F in UTF-8
      out += fmt::format("\\x{:02x}", next);
      ++i;
    } else if (const size_t length = utf8_length(text, i); length > 0) {
      const uint32_t code = code_point(text.substr(i, length));
      if (is_unseen(code)) {
        out += code > 0xFFFF ? fmt::format("\\U{:08x}", code) : fmt::format("\\u{:04x}", code);
      } else {
        out += text.substr(i, length);
      }
      i += length - 1;
    } else {  // a byte of no character, which terminals may take for a control
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

}  // namespace headrace::base
