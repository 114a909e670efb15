// SPDX-License-Identifier: Apache-2.0
// Headers of a tar and the manifest of an export: values or an error, and what is accepted is safe.
#include <string_view>

#include "headrace/registry/import.h"
#include "headrace/registry/tar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (size >= registry::kTarBlock) {
    const auto entry = registry::parse_tar_header(text.substr(0, registry::kTarBlock), 1 << 30);
    if (entry.ok() && *entry) {
      const std::string& name = (*entry)->name;
      HR_CHECK(name.front() != '/' && name.find("..") != 0 && (*entry)->bytes <= 1 << 30, name);
    }
  }
  const auto json = parse_json(text, "manifest", {.depth_max = 64});
  if (json.ok()) {
    const auto foreign = registry::foreign_from_json(*json);
    if (foreign.ok()) {
      // What was accepted survives its own text.
      const auto again = registry::foreign_from_json(registry::foreign_json(*foreign));
      HR_CHECK(again.ok(), again.ok() ? "" : again.error().message());
    }
  }
  return 0;
}
