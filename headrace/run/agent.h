// SPDX-License-Identifier: Apache-2.0
// A process on each other machine that starts ranks for launchers which know its token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/wire/endpoint.h"
#include "headrace/wire/secret.h"

namespace headrace::run {

/// The line that `headrace agent` prints once it listens, with the endpoint behind it.
inline constexpr std::string_view kAgentListening = "headrace agent: listening at ";

struct AgentOptions {
  std::string program;         ///< path of the binary `headrace`, for guards
  wire::Endpoint listen = {};  ///< port 0: one that is free
  const wire::Secret* token = nullptr;
  int sessions_max = 64;  ///< launchers at once
  bool once = false;      ///< end after the first launcher
  int interrupt_fd = -1;  ///< readable: end
  int owner_fd = -1;      ///< at its end: the process that wants the agent has gone
  /// Called once it listens, with the port that was chosen.
  std::function<void(const wire::Endpoint&)> on_listening;
};

/// Serve until it is interrupted. Ranks of a launcher that closes its connection, or is silent for
/// kSilentMost, are ended, and so are all when the agent ends, however.
HR_API Result<void> serve_agent(const AgentOptions& options);

}  // namespace headrace::run
