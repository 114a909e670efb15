// SPDX-License-Identifier: Apache-2.0
// A board is foreign bytes: whatever they are, reading them ends with a snapshot or an error.
#include <algorithm>
#include <vector>

#include "headrace/base/board.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint64_t> aligned((size + 7) / 8);
  std::copy_n(data, size, reinterpret_cast<uint8_t*>(aligned.data()));
  const auto result =
      headrace::base::read_board(std::as_bytes(std::span(aligned)).first(size), "fuzz");
  if (result.ok()) {
    for (const auto& metric : result->metrics) {
      HR_CHECK(metric.name.size() <= 64, metric.name);
    }
  }
  return 0;
}
