// SPDX-License-Identifier: Apache-2.0
// Whatever the text, reading it ends with a value or an error, and a value written and read again
// is the same value.
#include "headrace/base/check.h"
#include "headrace/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = headrace::parse_json({reinterpret_cast<const char*>(data), size});
  if (value.ok()) {
    const std::string text = value->dump();
    const auto again = headrace::parse_json(text);
    HR_CHECK(again.ok(), text);
    HR_CHECK(again->dump() == text, text);
    HR_CHECK(headrace::parse_json(value->dump(2)).value_or(headrace::Json()).dump() == text, text);
  }
  return 0;
}
