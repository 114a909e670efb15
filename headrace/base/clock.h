// SPDX-License-Identifier: Apache-2.0
// Time as a value that is handed in: clocks, deadlines, and text forms of time stamps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "headrace/base/export.h"

namespace headrace::base {

using Micros = std::chrono::microseconds;

/// Source of time. State machines get their time from events; drivers ask a Clock. Thread-safe.
class HR_API Clock {
 public:
  virtual ~Clock() = default;
  virtual Micros monotonic() = 0;  ///< since an arbitrary start, never goes back
  virtual Micros wall() = 0;       ///< since the epoch, UTC
};

/// The machine's clocks. Lives as long as the process.
HR_API Clock& system_clock();

/// A point in monotonic time by which something must have happened.
class HR_API Deadline {
 public:
  static Deadline in(Micros duration, Clock& clock = system_clock()) {
    return Deadline(clock.monotonic() + duration, clock);
  }
  static Deadline never() { return Deadline(Micros::max(), system_clock()); }
  Micros left() const;  ///< never negative
  bool passed() const { return left() == Micros::zero(); }
  Micros at() const { return at_; }

 private:
  Deadline(Micros at, Clock& clock) : at_(at), clock_(&clock) {}
  Micros at_;
  Clock* clock_;
};

/// "2026-11-29T23:30:01Z"; with `fraction` digits after the second (0, 3, 6).
HR_API std::string utc_text(Micros since_epoch, int fraction = 0);
/// CPU time of this process (user + system) and of this thread.
HR_API Micros process_cpu_time();
HR_API Micros thread_cpu_time();

/// Wait out `duration`; the one sleep of the code base (for retry intervals, never to wait for an
/// event).
HR_API void sleep_for(Micros duration);

}  // namespace headrace::base
