// SPDX-License-Identifier: Apache-2.0
// How far a run is: numbers of its items, and those that have not ended.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/clock.h"
#include "headrace/flow/run_state.h"

namespace headrace::flow {

struct EngineProgress {
  int64_t items_total = 0;
  int64_t items_ended = 0;
  int64_t items_succeeded = 0;
  int64_t items_failed = 0;     ///< and cancelled
  int64_t items_cancelled = 0;  ///< also those that a cancelled run did not come to
  int64_t items_skipped = 0;
  int64_t items_running = 0;        ///< begun and not ended
  int64_t items_waiting_retry = 0;  ///< of those; a driver tells them apart from `items_running`
  int64_t attempts_running = 0;
};

/// Items that have not ended, by what their activities do.
struct ItemStates {
  int64_t queued = 0;  ///< nothing of them is with a worker, or waits for a retry
  int64_t running = 0;
  int64_t waiting_retry = 0;
};

/// An item that has not ended.
struct OpenItem {
  std::string path;  ///< of its ForEach
  int64_t index = 0;
  std::string_view key;
  Status status = Status::queued;
  base::Micros started{0};
};

/// An attempt failed and is made again.
struct RetryWait {
  std::string path;
  double seconds = 0.0;  ///< until then
  std::string message;   ///< of the failure
};

}  // namespace headrace::flow
