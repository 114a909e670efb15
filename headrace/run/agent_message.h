// SPDX-License-Identifier: Apache-2.0
// What a launcher and an agent say to one another (docs/formats/wire.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/run/rank_host.h"
#include "headrace/wire/frame.h"

namespace headrace::run {

inline constexpr uint16_t kAgentPort = 7461;
/// Both sides mean this, whatever the job.
inline constexpr std::string_view kAgentJob = "headrace agent 1";

enum class AgentMessage : uint16_t {
  // launcher to agent
  start = 1,  ///< AgentStart
  stop = 2,   ///< reason and grace
  pause = 3,  ///< leave output with the ranks
  resume = 4,
  // agent to launcher
  welcome = 101,  ///< AgentWelcome
  output = 102,   ///< rank, stream and bytes
  ended = 103,    ///< RankEnd
  failed = 104,   ///< an error; the agent closes
  // both
  alive = 201,
};

/// A side that has been silent for kSilentMost is taken for dead; each speaks every kAlivePause.
inline constexpr base::Micros kAlivePause = std::chrono::seconds(1);
inline constexpr base::Micros kSilentMost = std::chrono::seconds(60);

struct AgentWelcome {
  std::string version;
  std::string host;
  uint16_t free_port = 0;  ///< held for this session
};

/// The ranks of a job on the agent's host.
struct AgentStart {
  std::string job;
  std::vector<std::string> argv;
  std::string folder;
  Variables environment;  ///< of the launcher, whole
  int cores_per_rank = 0;
  struct Rank {
    int rank = 0;
    Variables variables;
  };
  std::vector<Rank> ranks;
};

wire::Frame frame_of(AgentMessage type, std::string payload = {});
wire::Frame frame_of(AgentMessage type, const Json& payload);

Json json_of(const AgentWelcome& welcome);
Json json_of(const AgentStart& start);
Json json_of(const RankEnd& end);
Json json_of(const Error& error);
// `corrupt` for what the functions above do not write.
Result<AgentWelcome> parse_welcome(std::string_view payload);
Result<AgentStart> parse_start(std::string_view payload);
Result<RankEnd> parse_end(std::string_view payload);
/// The error that came, or one that says that it could not be read.
Error parse_error(std::string_view payload);

struct OutputPiece {
  int rank = 0;
  Stream stream = Stream::out;
  std::string_view bytes;
};
std::string encode_output(const OutputPiece& piece);
Result<OutputPiece> parse_output(std::string_view payload);

}  // namespace headrace::run
