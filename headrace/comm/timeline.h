// SPDX-License-Identifier: Apache-2.0
// What a rank's named operations did when, as a trace for chrome://tracing and Perfetto.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::comm {

struct TimelineOptions {
  base::Path path;
  int rank = 0;              ///< of the world, for `%r` in the path and the names of processes
  bool mark_cycles = false;  ///< an event for each exchange of what is ready
  /// Of the file. When half of it is full, the file becomes PATH.older, in place of the one before,
  /// and a new one begins: the newest half is always there.
  uint64_t max_bytes = uint64_t{256} << 20;
};

/// A file of Chrome trace events: a JSON array that is whole at every moment, at most 100 ms
/// behind. Each tensor is a process of the trace, its first event tells the start in microseconds
/// since the epoch. Thread-safe. Times are on base::system_clock().monotonic().
class HR_API Timeline {
 public:
  /// `io` and others: the file cannot be made. A file that is there is replaced.
  static Result<std::shared_ptr<Timeline>> open(TimelineOptions options);
  struct State;
  explicit Timeline(std::unique_ptr<State> state);
  ~Timeline();  ///< writes the rest
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// An activity of a tensor begins; activities are nested.
  void begin(const std::string& tensor, std::string_view activity, base::Micros at);
  /// The innermost one ends. `dtype` and `shape` may be empty.
  void end(const std::string& tensor, base::Micros at, std::string_view dtype = {},
           std::string_view shape = {});
  /// Something without duration.
  void mark(const std::string& tensor, std::string_view what, base::Micros at);
  void mark_cycle(base::Micros at);

 private:
  std::unique_ptr<State> state_;
};

/// Put the files of several ranks into one, on one time scale; the PATH.older of each belongs to
/// it. `corrupt`: a file that is no timeline.
HR_API Result<void> merge_timelines(const std::vector<base::Path>& inputs,
                                    const base::Path& output);

}  // namespace headrace::comm
