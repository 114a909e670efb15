// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/printable.h"

#include <fmt/format.h>

#include <cstdint>

#include "headrace/base/json.h"

namespace headrace::base {

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
      out += text.substr(i, length);
      i += length - 1;
    } else {  // a byte of no character, which terminals may take for a control
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

}  // namespace headrace::base
