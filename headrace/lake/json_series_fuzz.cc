// SPDX-License-Identifier: Apache-2.0
// Whatever a line of a GluonTS data set holds, reading it ends with a series or an error.
#include "headrace/lake/json_series_internal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto series =
      headrace::lake::parse_json_series({reinterpret_cast<const char*>(data), size}, "fuzz:1", 7);
  if (series.ok()) {
    HR_CHECK(series->target.size() <= size, "more values than bytes");
    for (const auto& row : series->dynamics) {
      HR_CHECK(row.size() >= series->target.size(), "a dynamic feature shorter than the target");
    }
  }
  return 0;
}
