// SPDX-License-Identifier: Apache-2.0
// Conditions, references, patterns and names: parsed or refused; SQL holds no byte of the user's.
#include <string_view>

#include "headrace/registry/name.h"
#include "headrace/registry/query.h"
#include "headrace/registry/reference.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace::registry;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto sql = compile_where(text);
  if (sql.ok()) {
    size_t marks = 0;
    for (const char c : sql->text) {
      marks += c == '?' ? 1U : 0U;
    }
    HR_CHECK(marks == sql->values.size(), sql->text);
    HR_CHECK(sql->text.find('\'') == std::string::npos, sql->text);
    HR_CHECK(sql->text.find(';') == std::string::npos, sql->text);
  }
  const auto reference = parse_reference(text);
  if (reference.ok()) {
    const auto again = parse_reference(reference_text(*reference));
    HR_CHECK(again.ok() && *again == *reference, std::string(text));
  }
  static_cast<void>(parse_pattern(text).ok());
  HR_CHECK(check_name(encode_segment(text.substr(0, 40))).ok(), encode_segment(text.substr(0, 40)));
  HR_CHECK(to_nfc(to_nfc(text)) == to_nfc(text), std::string(text));
  return 0;
}
