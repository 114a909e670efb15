// SPDX-License-Identifier: Apache-2.0
// The thread of a process that writes what its flight recorders hold, after a failure or when
// SIGUSR2 asks for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/thread.h"
#include "headrace/comm/flight_recorder_internal.h"
#include "headrace/comm/forks_internal.h"

namespace headrace::comm {

/// The thread lives while there is a recorder; it sleeps without a tick. Thread-safe.
class FlightWatch {
 public:
  /// Files of one process: who fails again and again shall not fill a disk.
  static constexpr uint64_t kFilesMost = 100;

  /// Of this process; never destroyed. A forked child has another one.
  static FlightWatch& instance();

  /// From now on its failures are written, and all it has when SIGUSR2 comes. `takes_signal`: where
  /// that would end the process, take it; who takes it later, has it.
  void add(std::shared_ptr<FlightRecorder> recorder, bool takes_signal)
      HR_EXCLUDES(mutex_, threads_);
  /// What has been asked for is written before.
  void remove(const FlightRecorder* recorder) HR_EXCLUDES(mutex_, threads_);
  /// FlightRecorder::text() of all.
  std::vector<std::string> texts() HR_EXCLUDES(mutex_);
  /// Does not wait for the file.
  void write_soon(const FlightRecorder* recorder, std::string reason) HR_EXCLUDES(mutex_);

 private:
  using Task = std::pair<std::shared_ptr<FlightRecorder>, std::string>;

  FlightWatch();
  void run();
  void run_tasks() HR_EXCLUDES(mutex_, writing_);
  void wake() const;
  std::vector<Task> take_tasks() HR_EXCLUDES(mutex_);

  const ForkMark mark_;
  base::Fd event_;       // the handler writes to it
  base::Mutex threads_;  // before the others; held while the thread is started and ended
  base::Mutex writing_;  // before mutex_; held while files are written
  uint64_t files_ HR_GUARDED_BY(writing_) = 0;
  base::Mutex mutex_;  // leaf
  std::vector<std::shared_ptr<FlightRecorder>> recorders_ HR_GUARDED_BY(mutex_);
  std::vector<Task> tasks_ HR_GUARDED_BY(mutex_);
  uint32_t signals_seen_ HR_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> stop_ = false;
  base::Thread thread_ HR_GUARDED_BY(threads_);
};

}  // namespace headrace::comm
