// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/environment.h"

#include <cstdlib>

namespace headrace::base {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::string(value);
}

}  // namespace headrace::base
