// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/store_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/wire/channel.h"
#include "headrace/wire/rejection_log.h"
#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

using base::Micros;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kStopId = 0;
constexpr uint64_t kListenerId = 1;
constexpr uint64_t kFirstClientId = 2;
constexpr int kAcceptsPerTurn = 64;
constexpr int kRequestsPerTurn = 64;  // of one client, before others have theirs
// A client that leaves this much of its answers unread is not asked for more requests.
constexpr size_t kUnreadBytesMax = size_t{1} << 20;
constexpr Micros kAcceptPause = milliseconds(100);  // when the process is out of descriptors
// A full waiting room throws out who has been silent for this long, when others want in.
constexpr Micros kSilentMost = milliseconds(500);

struct Pending {
  ChannelHandshake handshake;
  Micros since;
};

struct Client {
  Channel channel;
  size_t buffered = 0;  // what `buffers_` counts of it
  uint32_t events = EPOLLIN;
};

}  // namespace

/// All of the server's state belongs to its thread, but what mu_ guards.
class StoreServer::Loop {
 public:
  static Result<std::unique_ptr<Loop>> make(const StoreServerOptions& options) {
    HR_TRY(Listener listener, Listener::bind(options.endpoint));
    auto loop = std::unique_ptr<Loop>(new Loop(options, std::move(listener)));
    loop->epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
    loop->stop_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!loop->epoll_.valid() || !loop->stop_.valid() ||
        !loop->watch(loop->stop_.get(), kStopId, EPOLLIN) ||
        !loop->watch(loop->listener_.fd(), kListenerId, EPOLLIN)) {
      return errno_error(errno, "starting the store at " + options.endpoint.text());
    }
    loop->thread_ = base::Thread("hr-store", [raw = loop.get()] { raw->run(); });
    return loop;
  }
  ~Loop() { stop(); }

  const Endpoint& endpoint() const { return endpoint_; }
  StoreServerStats stats() const HR_EXCLUDES(mu_) {
    const base::MutexLock lock(mu_);
    return published_;
  }
  void stop() {
    const uint64_t one = 1;
    static_cast<void>(::write(stop_.get(), &one, sizeof one));
    thread_.join();
  }

 private:
  Loop(const StoreServerOptions& options, Listener listener)
      : options_(options),
        listener_(std::move(listener)),
        endpoint_(listener_.endpoint()),
        state_(options.limits) {
    if (options.secret != nullptr) {
      secret_ = options.secret->copy();
    }
    options_.secret = nullptr;
  }

  bool watch(int fd, uint64_t id, uint32_t events) {
    epoll_event event = {.events = events, .data = {.u64 = id}};
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  void rewatch(int fd, uint64_t id, uint32_t events) {
    epoll_event event = {.events = events, .data = {.u64 = id}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }

  void run();
  bool turn();
  /// How long a handshake may take now.
  Micros silent_limit() const {
    const bool crowded = pending_.size() >= options_.pending_max;
    return crowded ? std::min(kSilentMost, options_.handshake_limit) : options_.handshake_limit;
  }
  Micros pause() const;
  void reject(std::string_view peer, std::string_view why);
  void listen_or_pause();
  void take_connections();
  void end_silent();
  void advance(uint64_t id);
  void promote(uint64_t id);
  void serve(uint64_t id);
  bool take_request(uint64_t id, Client* client);
  void deliver();
  void settle(uint64_t id);
  void close_client(uint64_t id, std::string_view why);
  void publish() HR_EXCLUDES(mu_);

  StoreServerOptions options_;
  std::optional<Secret> secret_;
  Listener listener_;
  const Endpoint endpoint_;
  base::Fd epoll_;
  base::Fd stop_;
  StoreState state_;
  Micros now_ = Micros::zero();
  uint64_t next_id_ = kFirstClientId;
  std::map<uint64_t, Pending> pending_;  // by id, and so by age
  std::unordered_map<uint64_t, Client> clients_;
  std::set<uint64_t> unfinished_;  // clients with whole requests in their buffers
  size_t buffers_ = 0;
  bool listening_ = true;
  Micros listen_again_ = Micros::min();
  RejectionLog log_{"store"};
  StoreServerStats counts_;
  mutable base::Mutex mu_;  // leaf
  StoreServerStats published_ HR_GUARDED_BY(mu_);
  base::Thread thread_;  // last: ends before what it uses goes
};

void StoreServer::Loop::run() {
  do {
    now_ = base::system_clock().monotonic();
    end_silent();
    state_.on_time(now_);
    deliver();
    listen_or_pause();
    log_.tick(now_);
    publish();
  } while (turn());
  clients_.clear();
  pending_.clear();
}

/// How long nothing has to be done if nothing comes.
Micros StoreServer::Loop::pause() const {
  if (!unfinished_.empty()) {
    return Micros::zero();
  }
  Micros until = now_ + seconds(10);
  if (const auto next = state_.next_time()) {
    until = std::min(until, *next);
  }
  if (!pending_.empty()) {
    until = std::min(until, pending_.begin()->second.since + silent_limit());
  }
  if (!listening_ && listen_again_ > now_) {
    until = std::min(until, listen_again_);
  }
  return std::max(Micros::zero(), until - now_);
}

/// Wait for events and handle them; false when the server shall end.
bool StoreServer::Loop::turn() {
  std::array<epoll_event, 256> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 poll_timeout_ms(pause()));
  now_ = base::system_clock().monotonic();
  const std::set<uint64_t> unfinished = std::exchange(unfinished_, {});
  for (const uint64_t id : unfinished) {
    serve(id);
  }
  for (int i = 0; i < count; ++i) {
    const uint64_t id = events[static_cast<size_t>(i)].data.u64;
    if (id == kStopId) {
      return false;
    }
    if (id == kListenerId) {
      take_connections();
    } else if (pending_.contains(id)) {
      advance(id);
    } else {
      serve(id);
    }
  }
  return true;
}

void StoreServer::Loop::publish() {
  counts_.clients = clients_.size();
  counts_.pending = pending_.size();
  counts_.keys = state_.keys();
  counts_.bytes = state_.bytes();
  counts_.waits = state_.waits();
  const base::MutexLock lock(mu_);
  published_ = counts_;
}

void StoreServer::Loop::reject(std::string_view peer, std::string_view why) {
  ++counts_.rejected;
  log_.note(now_, fmt::format("store {}: refused {}: {}", endpoint_.text(), peer, why));
}

// ---- connections that have not proved themselves ----

void StoreServer::Loop::listen_or_pause() {
  const bool want = pending_.size() < options_.pending_max && now_ >= listen_again_;
  if (want != listening_) {
    rewatch(listener_.fd(), kListenerId, want ? uint32_t{EPOLLIN} : 0U);
    listening_ = want;
  }
}

void StoreServer::Loop::take_connections() {
  for (int i = 0; i < kAcceptsPerTurn && pending_.size() < options_.pending_max; ++i) {
    auto fd = listener_.accept();
    if (!fd.ok()) {
      listen_again_ = now_ + kAcceptPause;
      return reject("a connection", fd.error().message() + "; raise ulimit -n");
    }
    if (!fd->has_value()) {
      return;
    }
    const int raw = (*fd)->get();
    std::string peer = peer_text(raw);
    const HandshakeOptions handshake{.service = Service::store,
                                     .job_id = options_.job_id,
                                     .generation = 0,
                                     .any_generation = true,  // the store outlives them
                                     .full = clients_.size() >= options_.clients_max,
                                     .secret = secret_.has_value() ? &*secret_ : nullptr};
    auto begun =
        ChannelHandshake::begin(*std::move(*fd), Side::acceptor, handshake, std::move(peer));
    if (!begun.ok()) {
      reject("a connection", begun.error().message());
      continue;
    }
    const uint64_t id = next_id_++;
    if (!watch(raw, id, EPOLLIN)) {
      reject(begun->peer(), errno_error(errno, "watching it").message());
      continue;
    }
    pending_.emplace(id, Pending{.handshake = *std::move(begun), .since = now_});
    advance(id);
  }
}

/// Close those whose time is up; in a full room, with others at the door, earlier.
void StoreServer::Loop::end_silent() {
  const Micros limit = silent_limit();
  while (!pending_.empty() && pending_.begin()->second.since + limit <= now_) {
    const ChannelHandshake& handshake = pending_.begin()->second.handshake;
    reject(handshake.peer(),
           fmt::format("it did not end its handshake within {}{}", duration_text(limit),
                       handshake.heard() ? "" : ", and said nothing we know"));
    pending_.erase(pending_.begin());
  }
}

void StoreServer::Loop::advance(uint64_t id) {
  const auto at = pending_.find(id);
  ChannelHandshake& handshake = at->second.handshake;
  const auto done = handshake.advance();
  if (!done.ok()) {
    reject("a connection", done.error().message());
    pending_.erase(at);
    return;
  }
  if (*done) {
    return promote(id);
  }
  const uint32_t events = EPOLLIN | (handshake.wants_write() ? uint32_t{EPOLLOUT} : 0U);
  rewatch(handshake.fd(), id, events);
}

void StoreServer::Loop::promote(uint64_t id) {
  const auto at = pending_.find(id);
  Channel channel = std::move(at->second.handshake).finish();
  pending_.erase(at);
  if (clients_.size() >= options_.clients_max) {
    return reject(channel.peer(), fmt::format("there are {} clients already", clients_.size()));
  }
  ++counts_.accepted;
  rewatch(channel.fd(), id, EPOLLIN);
  clients_.emplace(id, Client{.channel = std::move(channel)});
}

// ---- clients ----

/// Take one request out of a client's bytes; false when there is none, or the client is gone.
bool StoreServer::Loop::take_request(uint64_t id, Client* client) {
  auto frame = client->channel.try_receive();
  if (!frame.ok()) {
    // The end of a connection is how clients leave; anything else is worth a line.
    close_client(id, frame.error().code() == Errc::io ? std::string() : frame.error().message());
    return false;
  }
  if (!frame->has_value()) {
    return false;
  }
  auto request = decode_store_message((*frame)->payload);
  if (!request.ok()) {
    close_client(id, client->channel.peer() + ": " + request.error().message());
    return false;
  }
  ++counts_.requests;
  state_.on_request(id, static_cast<StoreOp>((*frame)->type), *std::move(request), now_);
  deliver();
  return clients_.contains(id);  // it may not have read its answers
}

void StoreServer::Loop::serve(uint64_t id) {
  auto at = clients_.find(id);
  if (at == clients_.end()) {
    return;  // closed by an event before this one
  }
  if (const auto flushed = at->second.channel.flush(); !flushed.ok()) {
    return close_client(id, {});
  }
  for (int i = 0; at->second.channel.queued_bytes() < kUnreadBytesMax; ++i) {
    if (i == kRequestsPerTurn) {
      unfinished_.insert(id);
      break;
    }
    if (!take_request(id, &at->second)) {
      break;
    }
    at = clients_.find(id);
  }
  settle(id);
}

/// Hand the state machine's answers to their clients.
void StoreServer::Loop::deliver() {
  for (StoreState::Answer& answer : state_.take_answers()) {
    const auto at = clients_.find(answer.client);
    if (at == clients_.end()) {
      continue;
    }
    const Frame frame{
        .type = static_cast<uint16_t>(static_cast<uint16_t>(answer.op) | kStoreAnswerBit),
        .flags = 0,
        .payload = encode_store_message(answer.message)};
    Channel& channel = at->second.channel;
    if (const auto queued = channel.queue(frame); !queued.ok()) {
      close_client(answer.client, queued.error().message());
      continue;
    }
    if (const auto flushed = channel.flush(); !flushed.ok()) {
      close_client(answer.client, {});
      continue;
    }
    settle(answer.client);
  }
}

/// After its buffers changed: count them, and wait for what can go on.
void StoreServer::Loop::settle(uint64_t id) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) {
    return;
  }
  Client& client = at->second;
  const size_t buffered = client.channel.queued_bytes() + client.channel.buffered_bytes();
  buffers_ = buffers_ - client.buffered + buffered;
  client.buffered = buffered;
  if (buffers_ > options_.buffers_bytes_max) {
    return close_client(
        id, fmt::format("{}: messages under way have {} bytes, {} of them its own; "
                        "at most {} may be",
                        client.channel.peer(), buffers_, buffered, options_.buffers_bytes_max));
  }
  const bool reads = client.channel.queued_bytes() < kUnreadBytesMax;
  const uint32_t events =
      (reads ? uint32_t{EPOLLIN} : 0U) | (client.channel.wants_write() ? uint32_t{EPOLLOUT} : 0U);
  if (events != client.events) {
    rewatch(client.channel.fd(), id, events);
    client.events = events;
  }
}

/// Close a connection; with a reason when it is not just the client's leaving.
void StoreServer::Loop::close_client(uint64_t id, std::string_view why) {
  const auto at = clients_.find(id);
  if (!why.empty()) {
    reject("a client", why);
  }
  buffers_ -= at->second.buffered;
  clients_.erase(at);
  unfinished_.erase(id);
  state_.on_client_gone(id);
}

// ---- the handle ----

Result<std::unique_ptr<StoreServer>> StoreServer::start(const StoreServerOptions& options) {
  if (!options.endpoint.is_loopback() && options.secret == nullptr && !options.insecure) {
    return Error{Errc::invalid_argument,
                 fmt::format("the store will not listen at {} without a secret: whoever reaches "
                             "that address could steer the job. Give it a secret "
                             "(HEADRACE_SECRET_FILE), or listen at 127.0.0.1",
                             options.endpoint.text())};
  }
  HR_TRY(auto loop, Loop::make(options));
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(loop)));
}

StoreServer::StoreServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
StoreServer::~StoreServer() = default;
const Endpoint& StoreServer::endpoint() const { return loop_->endpoint(); }
StoreServerStats StoreServer::stats() const { return loop_->stats(); }
void StoreServer::stop() { loop_->stop(); }

}  // namespace headrace::wire
