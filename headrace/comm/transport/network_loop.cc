// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/base/log.h"
#include "headrace/comm/transport/network_loop_internal.h"

namespace headrace::comm {

namespace {

constexpr uint32_t kWakeKey = UINT32_MAX;
constexpr uint32_t kReadyKey = UINT32_MAX - 1;
constexpr base::Micros kNever = std::chrono::hours(1);
// The arbiter has heard of it as soon as this rank, or is dead or stopped itself.
constexpr base::Micros kVerdictMost = std::chrono::milliseconds(300);
constexpr base::Micros kDrainMost = std::chrono::seconds(1);
constexpr base::Micros kDrainPause = std::chrono::milliseconds(2);
constexpr base::Micros kLingerPause = std::chrono::milliseconds(100);  // for a slow reader

enum FrameType : uint16_t {
  suspect_frame = 16,
  verdict_frame,
  set_failed_frame,
  goodbye_frame,
  set_closed_frame
};

Json json_of(const Error& error) {
  Json json =
      Json::object({{"code", static_cast<int>(error.code())}, {"message", error.message()}});
  if (const auto& origin = error.origin()) {
    json.set("origin", Json::object({{"rank", origin->rank},
                                     {"host", origin->host},
                                     {"pid", origin->pid},
                                     {"exit", origin->exit}}));
  }
  return json;
}

Error error_of(const Json& json) {
  const int64_t code = json.get_integer("code");
  const bool known = code >= 0 && code <= static_cast<int64_t>(Errc::internal);
  Error error(known ? static_cast<Errc>(code) : Errc::internal, json.get_string("message"));
  if (const Json* from = json.find("origin")) {
    Origin origin;
    origin.rank = static_cast<int>(from->get_integer("rank"));
    origin.host = from->get_string("host");
    origin.pid = from->get_integer("pid");
    origin.exit = from->get_string("exit");
    error.set_origin(std::move(origin));
  }
  return error;
}

wire::Frame frame_about_rank(FrameType type, int rank, const Error& error) {
  const Json json = Json::object({{"rank", rank}, {"error", json_of(error)}});
  return {.type = type, .flags = 0, .payload = json.dump()};
}

/// The kernels look whether the other one is still there: nobody has to wake up for it, and a
/// stopped process still counts as there.
void tune_control(int fd, base::Micros silence) {
  static_cast<void>(wire::tune_tcp(fd, {.user_timeout = silence}));
  const int second = 1;
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second));
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof second));
}

size_t unsent_bytes(int fd) {
  int domain = AF_UNIX;
  socklen_t size = sizeof domain;
  static_cast<void>(::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size));
  if (domain == AF_UNIX) {
    return 0;  // the kernel keeps them for the reader
  }
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

/// Throw away what has come: a connection that is closed with unread bytes loses those it has still
/// to send. False: it is of no more use.
bool discard_input(int fd) {
  std::array<std::byte, 65'536> nowhere;
  ssize_t count = 1;
  for (int turn = 0; count > 0 && turn < 16; ++turn) {  // others get their turn
    count = ::recv(fd, nowhere.data(), nowhere.size(), MSG_DONTWAIT);
  }
  return count >= 0 || errno == EAGAIN || errno == EINTR;
}

}  // namespace

void Network::Loop::post(std::function<void()> task) {
  {
    base::MutexLock lock(mutex);
    tasks.push_back(std::move(task));
  }
  wake();
}

void Network::Loop::wake() const {
  const uint64_t one = 1;
  static_cast<void>(::write(wake_fd.get(), &one, sizeof one));
}

std::string Network::Loop::name() const {
  return fmt::format("rank {} on {}", options.rank, options.host);
}

std::string Network::Loop::name_of(int rank) const {
  return fmt::format("rank {} on {}", rank, peers[static_cast<size_t>(rank)].host);
}

void Network::Loop::run() {
  base::Micros next = kNever;
  while (!stopping.load()) {
    std::array<epoll_event, 64> ready;
    const auto limit_ms = std::chrono::ceil<std::chrono::milliseconds>(next);
    const int count = ::epoll_wait(epoll.get(), ready.data(), static_cast<int>(ready.size()),
                                   static_cast<int>(limit_ms.count()));
    for (int i = 0; i < count; ++i) {
      on_event(ready[static_cast<size_t>(i)].data.u64);
    }
    next = turn();
  }
  turn();  // what was asked for before the end
  say_goodbye();
}

/// Do what was posted and what is due; when to come again at the latest.
base::Micros Network::Loop::turn() {
  std::deque<std::function<void()>> posted;
  {
    base::MutexLock lock(mutex);
    posted.swap(tasks);
  }
  for (const auto& task : posted) {
    task();
  }
  return std::min({door->expire(), check_suspects(), check_lingering(), mail->check()});
}

void Network::Loop::on_event(uint64_t key) {
  if (key == kWakeKey) {
    uint64_t taken = 0;
    static_cast<void>(::read(wake_fd.get(), &taken, sizeof taken));
  } else if (key == kReadyKey) {
    events.on_ready();
  } else if (key >= Mail::kKey) {
    mail->on_event(key);
  } else if (key >= Door::kListenerKey) {
    door->on_event(static_cast<uint32_t>(key));
  } else {
    flush(static_cast<int>(key));
    drain(static_cast<int>(key));
  }
}

void Network::Loop::adopt(int rank, wire::Channel channel) {
  tune_control(channel.fd(), options.silence);
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<uint32_t>(rank);
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, channel.fd(), &event) != 0) {
    on_suspect(rank, errno_error(errno, "comm: watching a connection"));
    return;
  }
  controls.insert_or_assign(rank, std::move(channel));
  drain(rank);  // what came with the welcome gives no event
}

void Network::Loop::drain(int rank) {
  while (true) {
    const auto found = controls.find(rank);
    if (found == controls.end()) {
      return;
    }
    auto frame = found->second.try_receive();
    if (!frame.ok()) {
      on_closed(rank, frame.error());
      return;
    }
    if (!frame->has_value()) {
      return;
    }
    on_frame(rank, **frame);
  }
}

void Network::Loop::on_frame(int rank, const wire::Frame& frame) {
  if (frame.type == goodbye_frame) {
    has_departed[static_cast<size_t>(rank)].store(true, std::memory_order_release);
    events.on_ready();  // those that wait for it look again
    return;
  }
  const auto json = parse_json(frame.payload, "what another rank says");
  if (frame.type == set_closed_frame && json.ok()) {
    on_set_closed(static_cast<uint64_t>(json->get_integer("set")), rank,
                  static_cast<size_t>(json->get_integer("ranks")));
    return;
  }
  const Json* error = json.ok() ? json->find("error") : nullptr;
  if (error == nullptr) {
    return;
  }
  const auto about = static_cast<int>(json->get_integer("rank"));
  if (about < 0 || about >= known_ranks.load()) {
    return;
  }
  if (frame.type == set_failed_frame) {
    events.on_set_failed(static_cast<uint64_t>(json->get_integer("set")), error_of(*error));
  } else if (frame.type == verdict_frame) {
    apply(about, error_of(*error));
  } else if (frame.type == suspect_frame) {
    on_suspect(about, error_of(*error));
  }
}

void Network::Loop::on_closed(int rank, const Error& error) {
  controls.erase(rank);
  if (has_departed[static_cast<size_t>(rank)].load()) {
    return;
  }
  const NetworkPeer& peer = peers[static_cast<size_t>(rank)];
  Error found(Errc::peer_dead, fmt::format("comm: {} is dead, or cut off: {}; see its output",
                                           name_of(rank), error.message()));
  Origin origin;
  origin.rank = rank;
  origin.host = peer.host;
  found.set_origin(std::move(origin));
  on_suspect(rank, found);
}

void Network::Loop::on_set_closed(uint64_t set, int rank, size_t ranks) {
  base::MutexLock lock(mutex);
  std::set<int>& closers = set_closed[set];
  closers.insert(rank);
  if (closers.size() == ranks) {
    set_closed.erase(set);  // nobody is left to ask
  }
}

/// The lowest rank that takes part and is not suspected says what counts, so that all hear of the
/// same first cause.
int Network::Loop::arbiter() const {
  for (int rank = 0; rank < known_ranks.load(); ++rank) {
    if (rank == options.rank || (controls.contains(rank) && !suspects.contains(rank) &&
                                 !has_departed[static_cast<size_t>(rank)].load())) {
      return rank;
    }
  }
  return options.rank;
}

void Network::Loop::on_suspect(int rank, const Error& error) {
  if (rank == options.rank || dead.contains(rank) || suspects.contains(rank) ||
      has_departed[static_cast<size_t>(rank)].load()) {
    return;
  }
  suspects.insert({rank, {error, base::Deadline::in(kVerdictMost)}});
  const int judge = arbiter();
  if (judge == options.rank) {
    decide(rank, error);
  } else {
    send(judge, frame_about_rank(suspect_frame, rank, error));
  }
}

void Network::Loop::decide(int rank, const Error& error) {
  for (int other = 0; other < known_ranks.load(); ++other) {
    if (other != rank) {
      send(other, frame_about_rank(verdict_frame, rank, error));
    }
  }
  apply(rank, error);
}

void Network::Loop::apply(int rank, const Error& error) {
  suspects.erase(rank);
  if (rank == options.rank || !dead.insert(rank).second) {
    return;
  }
  {
    base::MutexLock lock(mutex);
    gone.insert({rank, error});
    changed.notify_all();
  }
  events.on_dead(rank, error);
}

void Network::Loop::send(int rank, const wire::Frame& frame) {
  const auto found = controls.find(rank);
  if (found != controls.end() && found->second.queue(frame).ok()) {
    flush(rank);
  }
}

/// What the kernel does not take now goes out when it has room again.
void Network::Loop::flush(int rank) {
  const auto found = controls.find(rank);
  if (found == controls.end() || !found->second.wants_write()) {
    return;
  }
  const auto all = found->second.flush();
  epoll_event event = {};
  event.events = all.ok() && !*all ? EPOLLIN | EPOLLOUT : EPOLLIN;  // drain() sees what broke
  event.data.u64 = static_cast<uint32_t>(rank);
  static_cast<void>(::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, found->second.fd(), &event));
}

base::Micros Network::Loop::check_suspects() {
  base::Micros next = kNever;
  for (auto it = suspects.begin(); it != suspects.end();) {
    const auto [rank, suspect] = *it++;
    if (suspect.deadline.passed()) {
      decide(rank, suspect.error);
    } else {
      next = std::min(next, suspect.deadline.left());
    }
  }
  return next;
}

void Network::Loop::linger(base::Fd fd, int rank) {
  lingering.push_back({std::move(fd), rank, base::Deadline::in(kDrainMost)});
}

base::Micros Network::Loop::check_lingering() {
  base::Micros next = kNever;
  std::erase_if(lingering, [&](const Lingering& one) {
    const bool known = one.rank >= 0 && one.rank < known_ranks.load();
    const bool left = known && has_departed[static_cast<size_t>(one.rank)].load();
    const bool ends = left || dead.contains(one.rank) || !discard_input(one.fd.get()) ||
                      unsent_bytes(one.fd.get()) == 0;
    if (!ends) {
      next = std::min(next, one.often.passed() ? kLingerPause : kDrainPause);
    }
    return ends;
  });
  return next;
}

void Network::Loop::say_goodbye() {
  for (auto& [rank, channel] : controls) {
    send(rank, {.type = goodbye_frame, .flags = 0, .payload = {}});
    ::shutdown(channel.fd(), SHUT_WR);
  }
  for (auto& [rank, fd] : mail->release()) {
    linger(std::move(fd), rank);
  }
  const auto deadline = base::Deadline::in(kDrainMost);
  while (!deadline.passed()) {
    const bool unsent = std::any_of(controls.begin(), controls.end(), [](const auto& one) {
      return unsent_bytes(one.second.fd()) > 0;
    });
    if (check_lingering() == kNever && !unsent) {
      return;
    }
    base::sleep_for(kDrainPause);
  }
}

void Network::tell_set_failed(uint64_t set, std::span<const int> world_ranks, const Error& error) {
  const Json json = Json::object({{"set", static_cast<int64_t>(set)}, {"error", json_of(error)}});
  const wire::Frame frame = {.type = set_failed_frame, .flags = 0, .payload = json.dump()};
  std::vector<int> ranks(world_ranks.begin(), world_ranks.end());
  loop_->post([loop = loop_.get(), frame, ranks = std::move(ranks)] {
    for (const int rank : ranks) {
      loop->send(rank, frame);
    }
  });
}

void Network::tell_set_closed(uint64_t set, std::span<const int> world_ranks) {
  const Json json = Json::object(
      {{"set", static_cast<int64_t>(set)}, {"ranks", static_cast<int64_t>(world_ranks.size())}});
  const wire::Frame frame = {.type = set_closed_frame, .flags = 0, .payload = json.dump()};
  std::vector<int> ranks(world_ranks.begin(), world_ranks.end());
  loop_->post([loop = loop_.get(), set, frame, ranks = std::move(ranks)] {
    loop->on_set_closed(set, loop->options.rank, ranks.size());
    for (const int rank : ranks) {
      loop->send(rank, frame);
    }
  });
}

bool Network::closed(uint64_t set, int rank) const {
  base::MutexLock lock(loop_->mutex);
  const auto found = loop_->set_closed.find(set);
  return found != loop_->set_closed.end() && found->second.contains(rank);
}

}  // namespace headrace::comm
