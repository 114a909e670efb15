// SPDX-License-Identifier: Apache-2.0
// Ranks as children of this process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/proc/supervisor.h"
#include "headrace/run/rank_host.h"

namespace headrace::run {

/// Not thread-safe; the thread that calls start() must live as long as the ranks do.
class HR_API LocalRanks final : public RankHost {
 public:
  static Result<std::unique_ptr<LocalRanks>> make(std::string_view job);
  Result<void> start(std::vector<RankStart> ranks) override;
  int event_fd() const override;
  short wanted_events() const override;
  Result<void> pump(const RankEvents& events, bool want_output) override;
  std::string name() const override { return "this machine"; }
  void stop(std::string_view reason, Millis grace) override;
  std::vector<int> running() const override;
  Millis pump_within() const override;

 private:
  /// The job's boards, which its ranks leave there for us. Removed when no rank is left.
  struct Boards {
    base::Path folder;  // empty: the job's name is none for a folder
    ~Boards();
  };
  LocalRanks(proc::Supervisor supervisor, std::string_view job);
  std::string take_metrics(int rank) const;

  Boards boards_;                       // before the supervisor, which ends the ranks
  const RankEvents* events_ = nullptr;  // while pump() runs
  proc::Supervisor supervisor_;
  std::map<proc::ChildId, int> ranks_;
};

}  // namespace headrace::run
