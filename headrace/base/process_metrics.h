// SPDX-License-Identifier: Apache-2.0
// What this process uses, as process.* on its board.
#pragma once

#include <cstdint>

#include "headrace/base/board.h"
#include "headrace/base/clock.h"

namespace headrace::base {

/// Not thread-safe. A default one counts nowhere.
class HR_API ProcessMetrics {
 public:
  ProcessMetrics() = default;
  /// `board` must outlive it.
  explicit ProcessMetrics(Board* board);
  /// Look again; some 50 us of reading in /proc: once a second is meant.
  void update();

 private:
  bool counts_ = false;
  Micros cpu_{0};
  int64_t faults_ = 0;
  Counter cpu_seconds_;
  Gauge resident_bytes_;
  Gauge threads_;
  Gauge open_fds_;
  Counter major_faults_;
};

}  // namespace headrace::base
