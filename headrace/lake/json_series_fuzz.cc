// SPDX-License-Identifier: Apache-2.0
// Whatever a line of a GluonTS data set or its metadata holds, reading it ends with a value or an
// error.
#include "headrace/lake/json_series_internal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto dataset = headrace::lake::parse_dataset(text, "fuzz");
  if (dataset.ok()) {
    HR_CHECK(dataset->horizon >= 0, "a negative horizon");
    for (const int64_t cardinality : dataset->cardinalities) {
      HR_CHECK(cardinality > 0, "a category without values");
    }
  }
  const auto series = headrace::lake::parse_json_series(text, "fuzz:1", 7, 1);
  if (series.ok()) {
    HR_CHECK(series->target.size() <= size, "more values than bytes");
    for (const auto& row : series->dynamics) {
      HR_CHECK(row.size() >= series->target.size(), "a dynamic feature shorter than the target");
    }
  }
  return 0;
}
