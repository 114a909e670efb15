// SPDX-License-Identifier: Apache-2.0
// One epoll loop around engine, journal and workers.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/flow/journal.h"
#include "headrace/flow/replay.h"
#include "headrace/flow/run.h"
#include "headrace/flow/run_metrics_internal.h"
#include "headrace/flow/worker_pool.h"

namespace headrace::flow {

/// Drives one engine. Every event is in the journal (and with the kernel) before anything is done
/// about it; what is told to the outside is durable.
class Driver {
 public:
  static Result<std::unique_ptr<Driver>> make(Journal journal, std::unique_ptr<Engine> engine,
                                              const RunHeader& header, const RunOptions& options);
  /// What an earlier engine finished: taken over when path and inputs are the same.
  void reuse(FinishedWork finished) { finished_ = std::move(finished); }

  /// Take the first event and go on to the end.
  Result<RunResult> run(Event first);

 private:
  struct InFlight {
    uint64_t attempt = 0;
    int number = 0;
    std::string path;
    std::string item_key;
    const Activity* activity = nullptr;
    uint64_t digest = 0;
    Secrets secrets;  ///< of the run and of this call
    double queued_seconds = 0.0;
    std::string timeout;  ///< it is being stopped for that
  };
  /// A slot whose worker could not be started. That is not its attempt's doing: it waits.
  struct Waiting {
    CallFrame frame;
    base::Micros pause{0};
    base::Micros again_at{0};  ///< monotonic, as `since`
    base::Micros since{0};
  };

  Driver(Journal journal, std::unique_ptr<Engine> engine, const RunHeader& header,
         const RunOptions& options, base::Fd epoll, WorkerPoolOptions pool);
  Result<void> watch();
  base::Micros now() const;
  Result<void> take(Event event, std::string_view attempt_path = {});
  bool has_to_act() const;
  Result<void> act();
  Result<void> begin(const StartAttempt& start);
  Result<void> hand_over(int slot, CallFrame frame);
  Result<void> hand_over_again();
  Result<void> stop(const StopAttempt& stop);
  Result<void> give_items(uint64_t run);
  Result<void> take_ended(WorkerPool::Ended ended);
  Result<void> take_cancels();
  void end_left_commands(const std::vector<InFlight>& flights) const;
  void write_meta(const WorkerPool::Ended& ended, const InFlight& flight) const;
  void tell();
  void tell_retries();
  void show_progress(bool last);
  void keep_numbers();
  void note_stop();
  int wait_ms() const;
  Result<bool> turn();  ///< false: interrupted
  Result<RunResult> loop();

  RunMetrics metrics_;  ///< first, so that it goes last: the journal's thread counts on it
  Journal journal_;
  std::unique_ptr<Engine> engine_;
  RunHeader header_;
  RunOptions options_;
  base::Fd epoll_;
  WorkerPool pool_;  ///< watched by `epoll_`
  base::Fd inotify_;
  FinishedWork finished_;
  KnownWords words_;
  Actions actions_;
  std::vector<InFlight> flights_;   ///< by slot
  std::map<int, Waiting> waiting_;  ///< by slot
  std::deque<std::pair<uint64_t, Report>> untold_;
  std::vector<WorkerPool::Ended> ended_;
  std::string told_retry_;
  uint64_t flushed_ = 0;
  base::Micros wall_begin_{0};
  base::Micros monotonic_begin_{0};
  base::Micros progress_at_{0};
};

}  // namespace headrace::flow
