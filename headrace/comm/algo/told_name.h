// SPDX-License-Identifier: Apache-2.0
// Names of tensors as messages have them: users may give any bytes, and 64 KiB of them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "headrace/base/printable.h"

namespace headrace::comm {

inline constexpr size_t kToldBytes = 200;

/// `name` up to that many bytes, whole characters, without what a terminal would act on.
inline std::string told_name(std::string_view name) {
  if (name.size() <= kToldBytes) {
    return base::printable(name);
  }
  size_t end = kToldBytes;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  return fmt::format("{}... ({} bytes)", base::printable(name.substr(0, end)), name.size());
}

}  // namespace headrace::comm
