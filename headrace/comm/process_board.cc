// SPDX-License-Identifier: Apache-2.0
// The board on which a rank that is a process of its own counts.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "headrace/base/board_folder.h"
#include "headrace/base/board_values.h"
#include "headrace/base/environment.h"
#include "headrace/base/log.h"
#include "headrace/base/process_metrics.h"
#include "headrace/base/thread.h"
#include "headrace/comm/environment.h"
#include "headrace/comm/flight_watch_internal.h"
#include "headrace/comm/forks_internal.h"

namespace headrace::comm {

namespace {

/// A name for a folder.
std::string run_of(std::string job) {
  constexpr size_t kLettersMost = 63;
  const auto is_plain = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_';
  };
  job.resize(std::min(job.size(), kLettersMost));
  std::replace_if(
      job.begin(), job.end(), [&](char one) { return !is_plain(static_cast<unsigned char>(one)); },
      '_');
  return job.empty() ? "none" : job;
}

/// Its counters only grow, so it stays until the process ends, over all joins.
class ProcessBoard {
 public:
  static ProcessBoard& instance() {
    // Never destroyed: threads may still count while the process ends.
    static auto* const board = new ProcessBoard();
    return *board;
  }

  std::shared_ptr<base::Board> get(const Config& config) HR_EXCLUDES(mu_) {
    const base::MutexLock lock(mu_);
    if (mark_.forked()) {
      return nullptr;  // what the parent's memory was before
    }
    if (!board_ && !is_tried_) {
      is_tried_ = true;
      make(config);
    }
    return board_;
  }

  Json values() HR_EXCLUDES(mu_) {
    const base::MutexLock lock(mu_);
    if (!board_ || mark_.forked()) {
      return Json::object();
    }
    process_.update();
    const auto snapshot = base::read_board_file(board_->path());
    return snapshot.ok() ? base::board_values(*snapshot) : Json::object();
  }

 private:
  void make(const Config& config) HR_REQUIRES(mu_) {
    base::remove_left_boards();
    const auto environment = read_job_environment(base::environment);
    base::BoardOptions options;
    options.run = run_of(environment.ok() ? environment->job : config.job);
    options.rank = environment.ok() ? environment->rank : config.rank;
    options.local_rank = environment.ok() ? environment->local_rank.value_or(-1) : -1;
    options.role = base::BoardRole::rank;
    auto made = base::Board::create(options);
    if (!made.ok()) {  // the last one that lay there may have taken the folder along
      made = base::Board::create(options);
    }
    if (!made.ok()) {
      base::log_warning("comm: this rank goes on without metrics: " + made.error().message());
      return;
    }
    board_ = *std::move(made);
    board_->set_state(base::BoardState::running);
    process_ = base::ProcessMetrics(board_.get());
    // Who started this rank takes its last numbers, also when it is killed.
    if (!environment.ok() || environment->starter != Starter::headrace) {
      std::atexit([] { instance().remove(); });
    }
  }

  /// The file only: the memory stays for who still counts.
  void remove() HR_NO_THREAD_SAFETY_ANALYSIS {
    if (!mark_.forked()) {
      ::unlink(board_->path().c_str());
      ::rmdir(board_->path().parent_path().c_str());  // fails, and shall, while others lie there
    }
  }

  const ForkMark mark_;
  base::Mutex mu_;
  bool is_tried_ HR_GUARDED_BY(mu_) = false;
  std::shared_ptr<base::Board> board_ HR_GUARDED_BY(mu_);
  base::ProcessMetrics process_ HR_GUARDED_BY(mu_);
};

}  // namespace

void observe_process(Config* config) {
  config->flight_signal = true;
  config->board = ProcessBoard::instance().get(*config);
}

std::vector<std::string> flight_records() { return FlightWatch::instance().texts(); }

Json process_metrics() { return ProcessBoard::instance().values(); }

}  // namespace headrace::comm
