// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/log.h"
#include "headrace/base/pool.h"
#include "headrace/base/thread.h"
#include "headrace/run/agent_message.h"
#include "headrace/run/guard.h"
#include "headrace/run/local_ranks.h"
#include "headrace/run/port.h"
#include "headrace/wire/channel.h"
#include "headrace/wire/rejection_log.h"

namespace headrace::run {

namespace {

using base::Micros;

constexpr Micros kHandshakeLimit = std::chrono::seconds(3);
constexpr size_t kVisitorsMax = 256;  // in their handshake; the first of them makes room for others
// Of a launcher that says nothing; while it waits for other hosts it says that it is alive.
constexpr Micros kOrderLimit = std::chrono::seconds(120);
constexpr Micros kLastWords = std::chrono::seconds(5);
constexpr Millis kGrace{5000};
// Output that waits for the launcher; above, it is left in the ranks' pipes.
constexpr size_t kQueuedBytesMost = size_t{4} << 20;
constexpr size_t kPieceBytes = size_t{1} << 20;

Micros now() { return base::system_clock().monotonic(); }

std::string own_host_name() {
  char name[256] = "unknown";
  ::gethostname(name, sizeof name - 1);
  return name;
}

Error stopped_error() {
  return Error{Errc::cancelled, "the agent on " + own_host_name() + " was stopped"};
}

/// One launcher: its connection and the ranks that it wanted. Lives on a thread of its own, which
/// the ranks' parent-death signal is tied to.
class Session {
 public:
  Session(const AgentOptions& options, int stop_fd) : options_(options), stop_fd_(stop_fd) {}

  /// `channel`: of a launcher that has proved itself.
  void run(wire::Channel channel) {
    const std::string peer = channel.peer();
    channel_ = std::move(channel);
    Result<void> result = serve();
    if (!result.ok()) {
      base::log_warning(fmt::format("agent: {}: {}", peer, result.error().message()));
      // It may be the launcher itself that has gone.
      static_cast<void>(channel_->send(frame_of(AgentMessage::failed, json_of(result.error())),
                                       base::Deadline::in(kLastWords)));
    }
    end_ranks();
    channel_.reset();
    if (guard_) {
      guard_->finish();
    }
  }

 private:
  Result<void> serve();
  Result<std::optional<AgentStart>> wait_for_order();
  Result<void> start(const AgentStart& order);
  Result<void> loop();
  Result<void> handle(const wire::Frame& frame);
  Result<void> receive();
  Result<void> send_what_is_there();
  void wait_for_events();
  void end_ranks();

  const AgentOptions& options_;
  const int stop_fd_;
  std::optional<wire::Channel> channel_;
  std::optional<Guard> guard_;
  std::unique_ptr<LocalRanks> ranks_;
  std::optional<ReservedPort> port_;
  bool paused_ = false;
  bool stopped_ = false;
  Micros spoke_at_{0};
  Micros heard_at_{0};
};

Result<void> Session::serve() {
  HR_TRY(port_, ReservedPort::take());
  HR_TRY(channel_->send(frame_of(AgentMessage::welcome, json_of({.version = HEADRACE_VERSION,
                                                                 .host = own_host_name(),
                                                                 .free_port = port_->number()})),
                        base::Deadline::in(kHandshakeLimit)));
  HR_TRY(const auto order, wait_for_order());
  if (!order) {
    return {};  // it only looked, or another host did not answer
  }
  HR_TRY(start(*order));
  return loop();
}

/// None: the launcher has closed the connection.
Result<std::optional<AgentStart>> Session::wait_for_order() {
  base::Deadline deadline = base::Deadline::in(kOrderLimit);
  for (;;) {
    auto frame = channel_->try_receive();
    if (!frame.ok() && frame.error().code() == Errc::io) {
      return std::optional<AgentStart>();
    }
    HR_TRY(frame);
    if (frame->has_value() && (*frame)->type == static_cast<uint16_t>(AgentMessage::alive)) {
      deadline = base::Deadline::in(kOrderLimit);
      continue;
    }
    if (frame->has_value()) {
      if ((*frame)->type != static_cast<uint16_t>(AgentMessage::start)) {
        return Error{Errc::corrupt,
                     fmt::format("agent: message {} before the order", (*frame)->type)};
      }
      HR_TRY(auto order, parse_start((*frame)->payload));
      return std::optional<AgentStart>(std::move(order));
    }
    pollfd fds[2] = {{channel_->fd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(std::min<int64_t>(deadline.left().count() / 1000, 1000)));
    if (fds[1].revents != 0) {
      return stopped_error();
    }
    if (deadline.passed()) {
      return Error{Errc::timeout,
                   fmt::format("the launcher gave no order and said nothing for {} s",
                               kOrderLimit.count() / 1000000)};
    }
  }
}

Result<void> Session::start(const AgentStart& order) {
  HR_TRY(const base::Path folder, make_private_folder());
  HR_TRY(guard_, Guard::start(options_.program, folder));
  const base::Path secret_file = folder / "secret";
  HR_TRY(options_.token->derive("job " + order.job).write_file(secret_file));
  HR_TRY(const auto shares,
         divide_cores(own_cores(), base::usable_cores(), static_cast<int>(order.ranks.size()),
                      order.cores_per_rank),
         "agent: " + own_host_name());
  const auto is_set = [&order](const char* name) {
    return std::any_of(order.environment.begin(), order.environment.end(),
                       [name](const auto& variable) { return variable.first == name; });
  };
  std::vector<RankStart> starts;
  for (size_t i = 0; i < order.ranks.size(); ++i) {
    const AgentStart::Rank& rank = order.ranks[i];
    Variables variables = order.environment;
    for (const Variables& more : {thread_variables(shares[i].threads, is_set), rank.variables,
                                  Variables{{"HEADRACE_SECRET_FILE", secret_file.string()},
                                            {"HEADRACE_GUARD", guard_->id()}}}) {
      variables.insert(variables.end(), more.begin(), more.end());
    }
    starts.push_back({.rank = rank.rank,
                      .argv = order.argv,
                      .variables = std::move(variables),
                      .whole_environment = true,
                      .folder = order.folder,
                      .cores = shares[i].cores});
  }
  HR_TRY(ranks_, LocalRanks::make(order.job));
  base::log_info(fmt::format("agent: {} ranks for {}", starts.size(), channel_->peer()));
  return ranks_->start(std::move(starts));
}

Result<void> Session::handle(const wire::Frame& frame) {
  switch (static_cast<AgentMessage>(frame.type)) {
    case AgentMessage::alive: return {};
    case AgentMessage::pause: paused_ = true; return {};
    case AgentMessage::resume: paused_ = false; return {};
    case AgentMessage::stop: {
      HR_TRY(const auto json, parse_json(frame.payload, "agent: a stop"));
      const int64_t grace = std::clamp<int64_t>(json.get_integer("grace_ms"), 0, 600'000);
      stopped_ = true;
      ranks_->stop(json.get_string("reason"), Millis(grace));
      return {};
    }
    default: return Error{Errc::corrupt, fmt::format("agent: unknown message {}", frame.type)};
  }
}

Result<void> Session::receive() {
  for (;;) {
    HR_TRY(const auto frame, channel_->try_receive());
    if (!frame) {
      break;
    }
    heard_at_ = now();
    HR_TRY(handle(*frame));
  }
  if (now() - heard_at_ > kSilentMost) {
    return Error{Errc::timeout, fmt::format("the launcher has been silent for {} s",
                                            kSilentMost.count() / 1000000)};
  }
  return {};
}

Result<void> Session::send_what_is_there() {
  Result<void> queued;
  const auto queue = [&](wire::Frame frame) {
    if (queued.ok()) {
      queued = channel_->queue(frame);
    }
  };
  const RankEvents events = {
      .on_bytes =
          [&](int rank, Stream stream, std::string_view bytes) {
            for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPieceBytes))) {
              queue(frame_of(AgentMessage::output,
                             encode_output({rank, stream, bytes.substr(0, kPieceBytes)})));
            }
          },
      .on_end = [&](const RankEnd& end) { queue(frame_of(AgentMessage::ended, json_of(end))); },
  };
  const bool room = channel_->queued_bytes() < kQueuedBytesMost;
  HR_TRY(ranks_->pump(events, room && (!paused_ || stopped_)));
  HR_TRY(queued);
  if (now() - spoke_at_ >= kAlivePause) {
    spoke_at_ = now();
    HR_TRY(channel_->queue(frame_of(AgentMessage::alive)));
  }
  HR_TRY(channel_->flush());
  return {};
}

void Session::wait_for_events() {
  const bool room = channel_->queued_bytes() < kQueuedBytesMost;
  const bool wants = room && (!paused_ || stopped_);
  pollfd fds[3] = {
      {channel_->fd(), static_cast<short>(channel_->wants_write() ? POLLIN | POLLOUT : POLLIN), 0},
      {stop_fd_, POLLIN, 0},
      {ranks_->event_fd(), POLLIN, 0}};
  ::poll(fds, wants ? 3 : 2, static_cast<int>(kAlivePause.count() / 1000));
}

Result<void> Session::loop() {
  heard_at_ = now();
  while (!ranks_->running().empty() || channel_->wants_write()) {
    wait_for_events();
    pollfd stop = {stop_fd_, POLLIN, 0};
    if (::poll(&stop, 1, 0) > 0) {
      return stopped_error();
    }
    HR_TRY(receive());
    HR_TRY(send_what_is_there());
  }
  return {};
}

/// Whatever went wrong: no rank stays.
void Session::end_ranks() {
  if (ranks_ == nullptr) {
    return;
  }
  ranks_->stop("the agent or the launcher has gone", kGrace);
  const base::Deadline deadline = base::Deadline::in(kGrace + std::chrono::seconds(5));
  const RankEvents events = {.on_bytes = {}, .on_end = [](const RankEnd&) {}};
  while (!ranks_->running().empty() && !deadline.passed()) {
    pollfd event = {ranks_->event_fd(), POLLIN, 0};
    ::poll(&event, 1, 200);
    static_cast<void>(ranks_->pump(events, true));
  }
  ranks_.reset();
}

/// A session under way.
struct Running {
  std::atomic<bool> over{false};  // pairs with the acquire in the agent's loop
  base::Thread thread;
};

class Agent {
 public:
  Agent(const AgentOptions& options, wire::Listener listener)
      : options_(options),
        listener_(std::move(listener)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  Result<void> serve() {
    if (options_.on_listening) {
      options_.on_listening(listener_.endpoint());
    }
    while (!stopping() && !(options_.once && served_.load())) {
      wait();
      sessions_.remove_if(
          [](const auto& session) { return session->over.load(std::memory_order_acquire); });
      advance_visitors();
      take_connections();
      refused_.tick(now());
    }
    const uint64_t one = 1;
    static_cast<void>(::write(stop_.get(), &one, sizeof one));
    sessions_.clear();  // joins
    return {};
  }

 private:
  struct Visitor {
    wire::ChannelHandshake handshake;
    base::Deadline deadline;
  };

  bool stopping() const {
    pollfd fds[2] = {{options_.interrupt_fd, POLLIN, 0}, {options_.owner_fd, POLLIN, 0}};
    return ::poll(fds, 2, 0) > 0;
  }

  void wait() {
    // At most so long: the end of a session and that of a handshake's time come without an event.
    constexpr int kTickMs = 200;
    std::vector<pollfd> fds = {{options_.interrupt_fd, POLLIN, 0},
                               {options_.owner_fd, POLLIN, 0},
                               {pauses_ ? -1 : listener_.fd(), POLLIN, 0}};
    for (const Visitor& one : visitors_) {
      const bool writes = one.handshake.wants_write();
      fds.push_back(
          {one.handshake.fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
    }
    const bool idle = sessions_.empty() && visitors_.empty() && !pauses_ && !refused_.owes();
    ::poll(fds.data(), fds.size(), idle ? -1 : kTickMs);
    pauses_ = false;
  }

  void refuse(const std::string& why) { refused_.note(now(), "agent: " + why); }

  void take_connections() {
    const wire::HandshakeOptions handshake = {.service = wire::Service::agent,
                                              .job_id = std::string(kAgentJob),
                                              .secret = options_.token};
    for (size_t i = 0; i < kVisitorsMax; ++i) {
      auto fd = listener_.accept();
      if (!fd.ok()) {  // out of descriptors, as a rule
        refuse(fd.error().message());
        pauses_ = true;
        return;
      }
      if (!fd->has_value()) {
        return;
      }
      if (visitors_.size() >= kVisitorsMax) {
        refuse(visitors_.front().handshake.peer() +
               ": too many come at once, and it was the first of them");
        visitors_.pop_front();
      }
      const std::string peer = wire::peer_text((*fd)->get());
      auto begun =
          wire::ChannelHandshake::begin(*std::move(*fd), wire::Side::acceptor, handshake, peer);
      if (!begun.ok()) {
        refuse(begun.error().message());
        continue;
      }
      visitors_.push_back({*std::move(begun), base::Deadline::in(kHandshakeLimit)});
      if (advance(&visitors_.back())) {
        visitors_.pop_back();
      }
    }
  }

  void advance_visitors() {
    visitors_.remove_if([this](Visitor& one) { return advance(&one); });
  }

  /// True when it is no visitor any longer.
  bool advance(Visitor* visitor) {
    wire::ChannelHandshake& handshake = visitor->handshake;
    const auto done = handshake.advance();
    if (!done.ok()) {
      refuse(done.error().message());
      return true;
    }
    if (*done && std::ssize(sessions_) < options_.sessions_max) {
      begin_session(std::move(handshake).finish());
      return true;
    }
    if (*done || visitor->deadline.passed()) {
      refuse(handshake.peer() + (*done ? ": there are as many launchers as there may be"
                                       : ": it did not end its handshake in time"));
      return true;
    }
    return false;
  }

  void begin_session(wire::Channel channel) {
    auto running = std::make_shared<Running>();
    running->thread = base::Thread(
        "hr-agent",
        [this, raw = running.get(), shared = std::make_shared<wire::Channel>(std::move(channel))] {
          Session(options_, stop_.get()).run(std::move(*shared));
          served_.store(true);
          raw->over.store(true, std::memory_order_release);
        });
    sessions_.push_back(std::move(running));
  }

  const AgentOptions& options_;
  wire::Listener listener_;
  base::Fd stop_;
  bool pauses_ = false;
  std::list<Visitor> visitors_;
  wire::RejectionLog refused_{"agent"};
  std::atomic<bool> served_{false};
  std::list<std::shared_ptr<Running>> sessions_;
};

}  // namespace

Result<void> serve_agent(const AgentOptions& options) {
  HR_TRY(auto listener, wire::Listener::bind(options.listen));
  return Agent(options, std::move(listener)).serve();
}

}  // namespace headrace::run
