// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "headrace/base/check.h"
#include "headrace/proc/child.h"

namespace headrace::proc {

std::string signal_name(int number) {
  const char* abbreviation = ::sigabbrev_np(number);
  return abbreviation != nullptr ? std::string("SIG") + abbreviation
                                 : "signal " + std::to_string(number);
}

std::string Exit::text() const {
  std::string out = signal != 0 ? signal_name(signal)
                    : code < 0  ? "an unknown exit code (its end was taken by somebody else)"
                                : "exit code " + std::to_string(code);
  if (out_of_memory) {
    out += fmt::format(" (out of memory; it held {} MiB at its peak)", resident_bytes_max >> 20);
  } else if (!stopped.empty()) {
    out += " (stopped: " + stopped + ")";
  }
  return out;
}

Error Exit::to_error(std::string_view what) const {
  HR_CHECK(!ok(), "a child that ended well has no error");
  Errc kind = Errc::child_failed;
  if (out_of_memory) {
    kind = Errc::out_of_memory;
  } else if (!stopped.empty()) {
    kind = stopped.rfind("timeout", 0) == 0 ? Errc::timeout : Errc::cancelled;
  }
  std::string message = fmt::format("{}: process {} ended with {} after {:.1f} s", what, pid,
                                    text(), static_cast<double>(wall.count()) / 1e3);
  if (!last_lines.empty()) {
    message += "; its last line: " + last_lines.back();
  }
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  Error error(kind, std::move(message));
  error.set_origin({.rank = -1, .host = host, .pid = pid, .exit = text()});
  return error;
}

}  // namespace headrace::proc
