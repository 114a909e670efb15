// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/remote_ranks.h"

#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <optional>
#include <utility>

namespace headrace::run {

namespace {

base::Micros now() { return base::system_clock().monotonic(); }

}  // namespace

Result<std::unique_ptr<RemoteRanks>> RemoteRanks::connect(const std::string& host,
                                                          const wire::Endpoint& agent,
                                                          const wire::Secret& token,
                                                          const base::Deadline& deadline) {
  HR_TRY(auto channel,
         wire::Channel::connect(
             agent,
             {.service = wire::Service::agent, .job_id = std::string(kAgentJob), .secret = &token},
             deadline, {.retry = true}));
  HR_TRY(const auto frame, channel.receive(deadline));
  if (frame.type == static_cast<uint16_t>(AgentMessage::failed)) {
    return parse_error(frame.payload);
  }
  if (frame.type != static_cast<uint16_t>(AgentMessage::welcome)) {
    return Error{Errc::corrupt,
                 fmt::format("agent: {} greets with message {}", agent.text(), frame.type)};
  }
  HR_TRY(auto welcome, parse_welcome(frame.payload));
  if (welcome.version != HEADRACE_VERSION) {
    return Error{Errc::mismatch,
                 fmt::format("agent: {} has headrace {}, and this is {}; install the same on all "
                             "hosts",
                             agent.text(), welcome.version, HEADRACE_VERSION)};
  }
  auto ranks = std::unique_ptr<RemoteRanks>(new RemoteRanks(host, std::move(channel)));
  ranks->welcome_ = std::move(welcome);
  return ranks;
}

void RemoteRanks::set_job(std::string job, Variables environment, int cores_per_rank) {
  order_.job = std::move(job);
  order_.environment = std::move(environment);
  order_.cores_per_rank = cores_per_rank;
}

Result<void> RemoteRanks::start(std::vector<RankStart> ranks) {
  for (RankStart& rank : ranks) {
    order_.argv = std::move(rank.argv);
    order_.folder = std::move(rank.folder);
    order_.ranks.push_back({rank.rank, std::move(rank.variables)});
    running_.insert(rank.rank);
  }
  heard_at_ = now();  // until now the agent had nothing to say, however long the others took
  return channel_.queue(frame_of(AgentMessage::start, json_of(order_)));
}

short RemoteRanks::wanted_events() const {
  return static_cast<short>(channel_.wants_write() ? POLLIN | POLLOUT : POLLIN);
}

Millis RemoteRanks::pump_within() const { return std::chrono::duration_cast<Millis>(kAlivePause); }

Result<void> RemoteRanks::speak(bool want_output) {
  if (want_output == paused_) {
    paused_ = !want_output;
    HR_TRY(channel_.queue(frame_of(paused_ ? AgentMessage::pause : AgentMessage::resume)));
  }
  return say_alive();
}

Result<void> RemoteRanks::say_alive() {
  if (now() - spoke_at_ >= kAlivePause) {
    spoke_at_ = now();
    HR_TRY(channel_.queue(frame_of(AgentMessage::alive)));
  }
  HR_TRY(channel_.flush());
  return {};
}

Result<void> RemoteRanks::handle(const wire::Frame& frame, const RankEvents& events) {
  switch (static_cast<AgentMessage>(frame.type)) {
    case AgentMessage::alive: return {};
    case AgentMessage::failed: return parse_error(frame.payload);
    case AgentMessage::output: {
      HR_TRY(const auto piece, parse_output(frame.payload));
      if (running_.contains(piece.rank)) {
        events.on_bytes(piece.rank, piece.stream, piece.bytes);
      }
      return {};
    }
    case AgentMessage::ended: {
      HR_TRY(const auto end, parse_end(frame.payload));
      if (running_.erase(end.rank) > 0) {
        events.on_end(end);
      }
      return {};
    }
    default: return Error{Errc::corrupt, fmt::format("agent: unknown message {}", frame.type)};
  }
}

Result<void> RemoteRanks::receive(const RankEvents& events) {
  while (!running_.empty()) {  // after the last end the agent closes
    HR_TRY(const auto frame, channel_.try_receive());
    if (!frame) {
      break;
    }
    heard_at_ = now();
    HR_TRY(handle(*frame, events));
  }
  if (now() - heard_at_ > kSilentMost) {
    return Error{Errc::timeout,
                 fmt::format("the agent has been silent for {} s", kSilentMost.count() / 1000000)};
  }
  return {};
}

Result<void> RemoteRanks::pump(const RankEvents& events, bool want_output) {
  if (running_.empty()) {
    return {};
  }
  Result<void> result = receive(events);
  if (result.ok() && !running_.empty()) {
    result = speak(want_output);
  }
  if (!result.ok()) {
    running_.clear();
  }
  return result;
}

void RemoteRanks::stop(std::string_view reason, Millis grace) {
  if (running_.empty()) {
    return;
  }
  // What goes wrong here pump() sees as well.
  static_cast<void>(channel_.queue(
      frame_of(AgentMessage::stop,
               Json::object({{"reason", reason}, {"grace_ms", int64_t{grace.count()}}}))));
  static_cast<void>(channel_.flush());
}

}  // namespace headrace::run
