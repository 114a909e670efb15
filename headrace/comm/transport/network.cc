// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/network.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "headrace/base/random.h"
#include "headrace/comm/transport/network_loop_internal.h"

namespace headrace::comm {

namespace {

constexpr uint64_t kStreamSeed = 0x73747265616d;  // mixed into the set of further streams
constexpr uint64_t kMailSet = UINT64_MAX;         // in place of a set: a stream of messages

/// What the connection must be; another rank may have meant something else.
template <class Wanted>
Result<Wanted> as(Arrival arrival) {
  if (auto* wanted = std::get_if<Wanted>(&arrival)) {
    return std::move(*wanted);
  }
  return Error{Errc::mismatch, "comm: a rank connected for another service than this set's"};
}

}  // namespace

Result<std::shared_ptr<Network>> Network::start(const NetworkOptions& options,
                                                const wire::Endpoint& where, NetworkEvents events) {
  auto loop = std::make_shared<Loop>(options, std::move(events));
  HR_TRY(auto listener, wire::Listener::bind(where), "comm");
  loop->epoll = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  loop->wake_fd = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = UINT32_MAX;
  if (!loop->epoll.valid() || !loop->wake_fd.valid() ||
      ::epoll_ctl(loop->epoll.get(), EPOLL_CTL_ADD, loop->wake_fd.get(), &event) != 0) {
    return errno_error(errno, "comm: making an epoll and an event descriptor");
  }
  const wire::HandshakeOptions handshake = {.job_id = options.job,
                                            .generation = options.generation,
                                            .secret = loop->options.secret.get()};
  Loop* raw = loop.get();
  loop->door = std::make_unique<Door>(
      std::move(listener), handshake, loop->name(), loop->epoll.get(),
      [raw](const Hello& hello, Arrival arrival) {
        if (hello.set == kMailSet) {
          if (auto* fd = std::get_if<base::Fd>(&arrival)) {
            raw->mail->adopt(hello.rank, std::move(*fd), false);
          }
          return;
        }
        base::MutexLock lock(raw->mutex);
        raw->arrived.insert_or_assign({hello.set, hello.rank}, std::move(arrival));
        raw->changed.notify_all();
      });
  loop->mail = std::make_unique<Mail>(loop->epoll.get(), [raw](int rank) {
    raw->has_mail[static_cast<size_t>(rank)].store(false);
  });
  loop->thread = base::Thread("hr-net", [raw] { raw->run(); });
  return std::shared_ptr<Network>(new Network(std::move(loop)));
}

Network::Network(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}

Network::~Network() {
  loop_->stopping.store(true);
  loop_->wake();
  loop_->thread.join();
}

uint16_t Network::port() const { return loop_->door->endpoint().port; }

namespace {

/// Say what the connection is for, and hear that it is wanted.
Result<Arrival> introduce(wire::Channel channel, const Hello& hello, wire::Service service,
                          base::Deadline deadline) {
  HR_TRY(channel.send({.type = kHelloFrame, .flags = 0, .payload = hello.bytes()}, deadline));
  const std::string peer = channel.peer();
  if (service != wire::Service::data) {
    HR_TRY(const auto answer, channel.receive(deadline));
    if (answer.type != kWelcomeFrame) {
      return Error{Errc::corrupt, peer + " answers with something else"};
    }
    return Arrival(std::move(channel));
  }
  HR_TRY(base::Fd fd, std::move(channel).release());
  pollfd event = {.fd = fd.get(), .events = POLLIN, .revents = 0};
  const auto limit_ms = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<base::Micros>(deadline.left(), std::chrono::hours(1)));
  static_cast<void>(::poll(&event, 1, static_cast<int>(limit_ms.count())));
  char byte = 0;
  if (::recv(fd.get(), &byte, 1, MSG_DONTWAIT) != 1 || byte != kWelcomeByte) {
    return Error{deadline.passed() ? Errc::timeout : Errc::io,
                 peer + " does not take the connection; see its output"};
  }
  return Arrival(std::move(fd));
}

}  // namespace

Result<Arrival> Network::call(const Hello& hello, wire::Service service, int to,
                              base::Deadline deadline) {
  const NetworkPeer& peer = loop_->peers[static_cast<size_t>(to)];
  const wire::HandshakeOptions options = {.service = service,
                                          .job_id = loop_->options.job,
                                          .generation = loop_->options.generation,
                                          .secret = loop_->options.secret.get()};
  auto channel = wire::Channel::connect(peer.endpoints, options, deadline);
  auto arrival = channel.ok() ? introduce(*std::move(channel), hello, service, deadline)
                              : Result<Arrival>(channel.error());
  if (!arrival.ok()) {
    arrival.error().add_context(
        fmt::format("comm: {} cannot reach {}", loop_->name(), loop_->name_of(to)));
  }
  return arrival;
}

Result<Arrival> Network::await(const Hello& hello, base::Deadline deadline) {
  Loop& loop = *loop_;
  const std::pair<uint64_t, int> key = {hello.set, hello.rank};
  const base::Micros limit = deadline.left();
  base::MutexLock lock(loop.mutex);
  loop.changed.wait_for(loop.mutex, limit, [&]() HR_NO_THREAD_SAFETY_ANALYSIS {
    return loop.arrived.contains(key) || loop.gone.contains(hello.rank);
  });
  auto node = loop.arrived.extract(key);
  if (const auto gone = loop.gone.find(hello.rank); node.empty() && gone != loop.gone.end()) {
    return gone->second;
  }
  if (node.empty()) {
    return Error{Errc::timeout,
                 fmt::format("comm: {} waited {} s at port {} for {}, which did not connect; see "
                             "its output, and whether a firewall is between them",
                             loop.name(), std::chrono::ceil<std::chrono::seconds>(limit).count(),
                             port(), loop.name_of(hello.rank))};
  }
  return std::move(node.mapped());
}

Result<std::vector<std::optional<Arrival>>> Network::link(uint64_t set, wire::Service service,
                                                          std::span<const int> world_ranks,
                                                          int self, base::Deadline deadline) {
  std::vector<std::optional<Arrival>> arrivals(world_ranks.size());
  const int own = loop_->options.rank;
  // To those below; those above come by themselves.
  for (size_t i = 0; i < world_ranks.size(); ++i) {
    if (static_cast<int>(i) != self && world_ranks[i] < own) {
      HR_TRY(arrivals[i], call({.set = set, .rank = own}, service, world_ranks[i], deadline));
    }
  }
  for (size_t i = 0; i < world_ranks.size(); ++i) {
    if (static_cast<int>(i) != self && world_ranks[i] > own) {
      HR_TRY(arrivals[i], await({.set = set, .rank = world_ranks[i]}, deadline));
    }
  }
  return arrivals;
}

void Network::know(std::vector<NetworkPeer> peers) {
  const auto ranks = static_cast<int>(peers.size());
  loop_->peers = std::move(peers);
  loop_->has_departed = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(ranks));
  loop_->has_mail = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(ranks));
  opening_ = std::make_unique<base::Mutex[]>(static_cast<size_t>(ranks));
  loop_->known_ranks.store(ranks, std::memory_order_release);
}

Result<void> Network::meet(base::Deadline deadline) {
  const int ranks = loop_->known_ranks.load();
  std::vector<int> all(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    all[static_cast<size_t>(r)] = r;
  }
  HR_TRY(auto arrivals, link(0, wire::Service::control, all, loop_->options.rank, deadline));
  auto shared = std::make_shared<std::map<int, wire::Channel>>();
  for (size_t r = 0; r < arrivals.size(); ++r) {
    if (arrivals[r].has_value()) {
      HR_TRY(auto channel, as<wire::Channel>(*std::move(arrivals[r])));
      shared->insert({static_cast<int>(r), std::move(channel)});
    }
  }
  loop_->post([loop = loop_.get(), shared] {
    for (auto& [rank, channel] : *shared) {
      loop->adopt(rank, std::move(channel));
    }
  });
  return {};
}

Result<std::vector<base::Fd>> Network::connect(uint64_t set, std::span<const int> world_ranks,
                                               int self, base::Deadline deadline, int streams) {
  std::vector<base::Fd> connections;
  for (int stream = 0; stream < streams; ++stream) {
    const uint64_t key =
        stream == 0 ? set : base::derive_seed(set, kStreamSeed + static_cast<uint64_t>(stream));
    HR_TRY(auto arrivals, link(key, wire::Service::data, world_ranks, self, deadline));
    for (auto& arrival : arrivals) {
      connections.emplace_back();
      if (arrival.has_value()) {
        HR_TRY(connections.back(), as<base::Fd>(*std::move(arrival)));
      }
    }
  }
  return connections;
}

Result<void> Network::open_mail(int rank, base::Deadline deadline) {
  base::MutexLock lock(opening_[static_cast<size_t>(rank)]);
  std::atomic<bool>& there = loop_->has_mail[static_cast<size_t>(rank)];
  if (there.load()) {
    return {};
  }
  HR_TRY(auto arrival,
         call({.set = kMailSet, .rank = loop_->options.rank}, wire::Service::data, rank, deadline));
  HR_TRY(auto stream, as<base::Fd>(std::move(arrival)));
  auto shared = std::make_shared<base::Fd>(std::move(stream));
  there.store(true);  // first: the stream may end at once
  loop_->post(
      [loop = loop_.get(), shared, rank] { loop->mail->adopt(rank, std::move(*shared), true); });
  return {};
}

void Network::send(MailSend send) {
  auto shared = std::make_shared<MailSend>(std::move(send));
  loop_->post([loop = loop_.get(), shared] { loop->mail->send(std::move(*shared)); });
}

void Network::receive(MailReceive receive) {
  auto shared = std::make_shared<MailReceive>(std::move(receive));
  loop_->post([loop = loop_.get(), shared] { loop->mail->receive(std::move(*shared)); });
}

std::function<void(uint64_t, const Error&)> Network::mail_failer() const {
  return [loop = loop_](uint64_t set, const Error& error) {
    loop->post([raw = loop.get(), set, error] { raw->mail->fail_set(set, error); });
  };
}

void Network::linger(std::vector<base::Fd> connections, std::span<const int> world_ranks) {
  auto shared = std::make_shared<std::vector<base::Fd>>(std::move(connections));
  std::vector<int> ranks(world_ranks.begin(), world_ranks.end());
  loop_->post([loop = loop_.get(), shared, ranks = std::move(ranks)] {
    for (size_t i = 0; i < shared->size(); ++i) {
      if ((*shared)[i].valid()) {
        loop->linger(std::move((*shared)[i]), ranks[i % ranks.size()]);
      }
    }
  });
}

bool Network::departed(int rank) const {
  return rank < loop_->known_ranks.load(std::memory_order_acquire) &&
         loop_->has_departed[static_cast<size_t>(rank)].load(std::memory_order_acquire);
}

void Network::suspect(int rank, const Error& error) {
  loop_->post([loop = loop_.get(), rank, error] { loop->on_suspect(rank, error); });
}

void Network::ring_once(int epoll) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u64 = UINT32_MAX - 1;
  if (::epoll_ctl(loop_->epoll.get(), EPOLL_CTL_MOD, epoll, &event) != 0 && errno == ENOENT) {
    static_cast<void>(::epoll_ctl(loop_->epoll.get(), EPOLL_CTL_ADD, epoll, &event));
  }
}

}  // namespace headrace::comm
