// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "headrace/base/board_folder.h"
#include "headrace/base/metric_names.h"

namespace headrace::base {

namespace {

/// The number behind `name` in a file such as /proc/self/status; -1 when it is not there.
int64_t number_after(const std::string& text, std::string_view name) {
  size_t at = text.find(name);
  if (at == std::string::npos) {
    return -1;
  }
  at = text.find_first_of("0123456789", at + name.size());
  int64_t number = -1;
  if (at != std::string::npos) {
    std::from_chars(text.data() + at, text.data() + text.size(), number);
  }
  return number;
}

/// Since the epoch; 0 when /proc does not tell.
double start_time() {
  const auto ticks = start_ticks_of(::getpid());
  const int64_t boot = number_after(read_file("/proc/stat", 16 << 20).value_or(""), "btime");
  const double per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ticks && boot > 0 ? static_cast<double>(boot) + static_cast<double>(*ticks) / per_second
                           : 0.0;
}

}  // namespace

ProcessMetrics::ProcessMetrics(Board* board)
    : counts_(true),
      cpu_seconds_(board->counter(metric("process.cpu_seconds"))),
      resident_bytes_(board->gauge(metric("process.resident_bytes"))),
      threads_(board->gauge(metric("process.threads"))),
      open_fds_(board->gauge(metric("process.open_fds"))),
      major_faults_(board->counter(metric("process.major_faults"))) {
  board->gauge(metric("process.start_time_seconds")).set(start_time());
}

void ProcessMetrics::update() {
  if (!counts_) {
    return;
  }
  const Micros cpu = process_cpu_time();
  cpu_seconds_.add(cpu - std::exchange(cpu_, cpu));
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  major_faults_.add(
      static_cast<uint64_t>(usage.ru_majflt - std::exchange(faults_, int64_t{usage.ru_majflt})));
  const std::string status = read_file("/proc/self/status", 1 << 20).value_or("");
  if (const int64_t kib = number_after(status, "VmRSS:"); kib >= 0) {
    resident_bytes_.set(static_cast<double>(kib) * 1024.0);
  }
  if (const int64_t threads = number_after(status, "Threads:"); threads >= 0) {
    threads_.set(static_cast<double>(threads));
  }
  int64_t descriptors = -1;  // the iterator's own
  std::error_code code;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", code);
       !code && it != std::filesystem::directory_iterator(); it.increment(code)) {
    ++descriptors;
  }
  open_fds_.set(static_cast<double>(std::max<int64_t>(0, descriptors)));
}

}  // namespace headrace::base
