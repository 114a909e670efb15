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

#include "headrace/base/log.h"
#include "headrace/base/pool.h"
#include "headrace/base/thread.h"
#include "headrace/run/agent_message.h"
#include "headrace/run/guard.h"
#include "headrace/run/local_ranks.h"
#include "headrace/run/port.h"
#include "headrace/wire/channel.h"

namespace headrace::run {

namespace {

using base::Micros;

constexpr Micros kHandshakeLimit = std::chrono::seconds(3);
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

  /// Whether a launcher proved itself.
  bool run(base::Fd fd) {
    const std::string peer = wire::peer_text(fd.get());
    Result<void> result = serve(std::move(fd));
    if (!result.ok()) {
      base::log_warning(fmt::format("agent: {}: {}", peer, result.error().message()));
      if (channel_) {
        // It may be the launcher itself that has gone.
        static_cast<void>(channel_->send(frame_of(AgentMessage::failed, json_of(result.error())),
                                         base::Deadline::in(kLastWords)));
      }
    }
    end_ranks();
    const bool proved = channel_.has_value();
    channel_.reset();
    if (guard_) {
      guard_->finish();
    }
    return proved;
  }

 private:
  Result<void> serve(base::Fd fd);
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

Result<void> Session::serve(base::Fd fd) {
  HR_TRY(channel_, wire::Channel::accept(std::move(fd),
                                         {.service = wire::Service::agent,
                                          .job_id = std::string(kAgentJob),
                                          .secret = options_.token},
                                         base::Deadline::in(kHandshakeLimit)));
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
      take_connections();
    }
    const uint64_t one = 1;
    static_cast<void>(::write(stop_.get(), &one, sizeof one));
    sessions_.clear();  // joins
    return {};
  }

 private:
  bool stopping() const {
    pollfd fds[2] = {{options_.interrupt_fd, POLLIN, 0}, {options_.owner_fd, POLLIN, 0}};
    return ::poll(fds, 2, 0) > 0;
  }
  bool is_full() const { return std::ssize(sessions_) >= options_.sessions_max; }

  void wait() {
    // At most so long: the end of a session makes room without an event.
    constexpr int kTickMs = 200;
    pollfd fds[3] = {{options_.interrupt_fd, POLLIN, 0},
                     {options_.owner_fd, POLLIN, 0},
                     {is_full() ? -1 : listener_.fd(), POLLIN, 0}};
    ::poll(fds, 3, sessions_.empty() ? -1 : kTickMs);
  }

  void take_connections() {
    while (!is_full()) {
      auto fd = listener_.accept();
      if (!fd.ok()) {
        base::log_warning("agent: " + fd.error().message());
        base::sleep_for(std::chrono::milliseconds(100));
        return;
      }
      if (!fd->has_value()) {
        return;
      }
      auto running = std::make_shared<Running>();
      running->thread = base::Thread(
          "hr-agent",
          [this, raw = running.get(), taken = std::make_shared<base::Fd>(std::move(**fd))] {
            if (Session(options_, stop_.get()).run(std::move(*taken))) {
              served_.store(true);
            }
            raw->over.store(true, std::memory_order_release);
          });
      sessions_.push_back(std::move(running));
    }
  }

  const AgentOptions& options_;
  wire::Listener listener_;
  base::Fd stop_;
  std::atomic<bool> served_{false};
  std::list<std::shared_ptr<Running>> sessions_;
};

}  // namespace

Result<void> serve_agent(const AgentOptions& options) {
  HR_TRY(auto listener, wire::Listener::bind(options.listen));
  return Agent(options, std::move(listener)).serve();
}

}  // namespace headrace::run
