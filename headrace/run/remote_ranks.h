// SPDX-License-Identifier: Apache-2.0
// Ranks on another machine, through its agent.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/run/agent_message.h"
#include "headrace/run/rank_host.h"
#include "headrace/wire/channel.h"

namespace headrace::run {

/// Not thread-safe.
class HR_API RemoteRanks final : public RankHost {
 public:
  /// Connect to the agent and hear its welcome. Errors of wire::Channel; `mismatch` for an agent of
  /// another version of headrace.
  static Result<std::unique_ptr<RemoteRanks>> connect(const std::string& host,
                                                      const wire::Endpoint& agent,
                                                      const wire::Secret& token,
                                                      const base::Deadline& deadline);
  const AgentWelcome& welcome() const { return welcome_; }
  /// This machine's address as the agent sees it, and the agent's.
  Result<wire::Endpoint> own_side() const { return wire::own_side(channel_.fd()); }
  Result<wire::Endpoint> other_side() const { return wire::other_side(channel_.fd()); }

  /// What start() needs beside the ranks.
  void set_job(std::string job, Variables environment, int cores_per_rank);
  /// To be called now and then between connect() and start(): the agent waits for its order only so
  /// long. Does not wait.
  Result<void> say_alive();
  Result<void> start(std::vector<RankStart> ranks) override;
  int event_fd() const override { return channel_.fd(); }
  short wanted_events() const override;
  Result<void> pump(const RankEvents& events, bool want_output) override;
  void stop(std::string_view reason, Millis grace) override;
  std::string name() const override { return host_; }
  std::vector<int> running() const override { return {running_.begin(), running_.end()}; }
  Millis pump_within() const override;

 private:
  RemoteRanks(std::string host, wire::Channel channel)
      : host_(std::move(host)), channel_(std::move(channel)) {}
  Result<void> speak(bool want_output);
  Result<void> receive(const RankEvents& events);
  Result<void> handle(const wire::Frame& frame, const RankEvents& events);

  std::string host_;
  wire::Channel channel_;
  AgentWelcome welcome_;
  AgentStart order_;
  std::set<int> running_;
  bool paused_ = false;
  base::Micros spoke_at_{0};
  base::Micros heard_at_{0};
};

}  // namespace headrace::run
