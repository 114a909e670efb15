// SPDX-License-Identifier: Apache-2.0
// Start the ranks of a job, carry their output, end them together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/run/agent_message.h"
#include "headrace/run/placement.h"
#include "headrace/run/rank_environment.h"
#include "headrace/run/ssh.h"

namespace headrace::run {

/// Key of the launcher's store under which the first rank that fails by an exception puts its
/// number and, in a second line, the reason.
inline constexpr std::string_view kFirstFailureKey = "run/first_failure";

struct LaunchOptions {
  std::string program;               ///< path of the binary `headrace`, for the job's guard
  std::vector<std::string> command;  ///< what each rank runs
  std::vector<Host> hosts;
  int ranks = 1;
  Variables settings;  ///< of the engine, for the ranks' environment
  int64_t start_timeout_s = 30;
  bool timestamps = false;
  base::Path output_folder;          ///< rank.N/stdout and stderr; empty: none
  int cores_per_rank = 0;            ///< 0: an equal part
  uint16_t agent_port = kAgentPort;  ///< of the agents on other hosts
  base::Path token_file;             ///< the agents' secret; needed for other hosts without ssh
  SshOptions ssh;                    ///< enabled: start the agents through it
  /// A file that ranks find in the job's store as run/function, and a folder for what they put
  /// there as run/result/RANK; empty: none.
  base::Path function_file;
  base::Path results_folder;
  bool verbose = false;
  int out_fd = 1;
  int err_fd = 2;
  int interrupt_fd = -1;  ///< readable: somebody asks to stop
  int owner_fd = -1;      ///< at its end: the process that wants the job has gone
};

struct LaunchOutcome {
  /// None: all ranks ended with 0. Else the first that did not; -1: a host was lost.
  std::optional<int> failed_rank;
  bool interrupted = false;
  std::string message;  ///< of a failure, for people; lines
};

/// Run a job to its end. Errors (before any rank runs): `invalid_argument`, `not_found` (the
/// program), `io`, `timeout` (hosts that do not answer).
///
/// Whatever happens, no process of the job is left when it returns; when this process is killed,
/// within moments after. The calling thread must live as long as the call.
HR_API Result<LaunchOutcome> launch(const LaunchOptions& options);

}  // namespace headrace::run
