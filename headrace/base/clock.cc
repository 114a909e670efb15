// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/clock.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <thread>

namespace headrace::base {

namespace {

Micros read_clock(clockid_t id) {
  timespec now = {};
  ::clock_gettime(id, &now);
  return std::chrono::seconds(now.tv_sec) + Micros(now.tv_nsec / 1000);
}

class SystemClock final : public Clock {
 public:
  Micros monotonic() override { return read_clock(CLOCK_MONOTONIC); }
  Micros wall() override { return read_clock(CLOCK_REALTIME); }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

Micros Deadline::left() const {
  if (at_ == Micros::max()) {
    return Micros::max();
  }
  return std::max(Micros::zero(), at_ - clock_->monotonic());
}

std::string utc_text(Micros since_epoch, int fraction) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t whole = seconds.count();
  std::tm parts = {};
  ::gmtime_r(&whole, &parts);
  char buffer[64];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%S", &parts);
  std::string text = buffer;
  if (fraction > 0) {
    std::snprintf(buffer, sizeof buffer, ".%06lld",
                  static_cast<long long>((since_epoch - seconds).count()));
    text.append(buffer, static_cast<size_t>(std::min(fraction, 6)) + 1);
  }
  return text + "Z";
}

Micros process_cpu_time() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }
Micros thread_cpu_time() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void sleep_for(Micros duration) { std::this_thread::sleep_for(duration); }

}  // namespace headrace::base
