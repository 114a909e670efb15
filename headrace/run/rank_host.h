// SPDX-License-Identifier: Apache-2.0
// The ranks of one host, wherever it is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/proc/child.h"
#include "headrace/run/output.h"
#include "headrace/run/rank_environment.h"

namespace headrace::run {

using proc::Millis;

/// A rank to start.
struct RankStart {
  int rank = 0;
  std::vector<std::string> argv = {};
  Variables variables = {};        ///< set on top of the host's environment
  bool whole_environment = false;  ///< `variables` is all of it
  std::string folder = {};         ///< working folder; empty: ours
  std::vector<int> cores = {};     ///< empty: all
};

/// How a rank ended.
struct RankEnd {
  int rank = 0;
  int64_t pid = -1;
  int code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  bool ok = false;
  std::string text;  ///< "exit code 3", "SIGKILL (out of memory)"
  int64_t wall_ms = 0;
  std::string metrics = {};  ///< what it has counted, as JSON; empty: nothing
};

/// Called from RankHost::pump().
struct RankEvents {
  std::function<void(int rank, Stream stream, std::string_view bytes)> on_bytes;
  std::function<void(const RankEnd& end)> on_end;
};

class RankHost {
 public:
  virtual ~RankHost() = default;
  /// Begin to start ranks. Errors of proc::Child::spawn; what runs already is stop()'s.
  virtual Result<void> start(std::vector<RankStart> ranks) = 0;
  /// Readable when pump() has something to do; for an event loop.
  virtual int event_fd() const = 0;
  /// poll() events to wait for.
  virtual short wanted_events() const = 0;
  /// Deliver what is there, without waiting; without `want_output` leave it with the ranks as far
  /// as possible. An error is the end of the host: its ranks are lost, and none run any more.
  virtual Result<void> pump(const RankEvents& events, bool want_output) = 0;
  /// Begin to end all ranks: SIGTERM to their groups, SIGKILL after `grace`.
  virtual void stop(std::string_view reason, Millis grace) = 0;
  /// For messages.
  virtual std::string name() const = 0;
  /// Ranks that have not ended.
  virtual std::vector<int> running() const = 0;
  /// When pump() wants to be called again even without an event.
  virtual Millis pump_within() const = 0;
};

}  // namespace headrace::run
