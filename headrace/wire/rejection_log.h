// SPDX-License-Identifier: Apache-2.0
// Log lines about strangers, of which there may be thousands.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "headrace/base/clock.h"
#include "headrace/base/log.h"

namespace headrace::wire {

/// At most ten lines in ten seconds, and how many there were beside them. Not thread-safe.
class RejectionLog {
 public:
  /// `who` refuses them; it stands before what is added.
  explicit RejectionLog(std::string who) : who_(std::move(who)) {}

  void note(base::Micros now, const std::string& line) {
    tick(now);
    if (lines_ < kLinesMax) {
      ++lines_;
      base::log_warning(line);
    } else {
      ++left_out_;
    }
  }
  /// Some were not told of yet; a later tick() tells.
  bool owes() const { return left_out_ > 0; }
  void tick(base::Micros now) {
    if (now < until_) {
      return;
    }
    if (left_out_ > 0) {
      base::log_warning(fmt::format("{}: {} more connections were refused", who_, left_out_));
    }
    until_ = now + kWindow;
    lines_ = 0;
    left_out_ = 0;
  }

 private:
  static constexpr int kLinesMax = 10;
  static constexpr base::Micros kWindow = std::chrono::seconds(10);
  std::string who_;
  base::Micros until_ = base::Micros::min();
  int lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace headrace::wire
