// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/door.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "headrace/base/log.h"

namespace headrace::comm {

namespace {

constexpr size_t kVisitorsMax = 256;
constexpr base::Micros kVisitMost = std::chrono::seconds(10);
constexpr uint64_t kLoggedFirst = 20;   // each of them, then only every
constexpr uint64_t kLoggedEach = 1000;  // of those that follow

Result<void> watch(int epoll, int operation, int fd, uint32_t events, uint32_t key) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) {
    return errno_error(errno, "comm: watching a connection");
  }
  return {};
}

}  // namespace

std::string Hello::bytes() const {
  std::string out(sizeof set + sizeof rank, '\0');
  std::memcpy(out.data(), &set, sizeof set);
  std::memcpy(out.data() + sizeof set, &rank, sizeof rank);
  return out;
}

std::optional<Hello> Hello::parse(std::string_view bytes) {
  Hello hello;
  if (bytes.size() != sizeof hello.set + sizeof hello.rank) {
    return std::nullopt;
  }
  std::memcpy(&hello.set, bytes.data(), sizeof hello.set);
  std::memcpy(&hello.rank, bytes.data() + sizeof hello.set, sizeof hello.rank);
  return hello;
}

Door::Door(wire::Listener listener, const wire::HandshakeOptions& options, std::string name,
           int epoll, Admit admit)
    : listener_(std::move(listener)),
      options_(options),
      name_(std::move(name)),
      epoll_(epoll),
      admit_(std::move(admit)) {
  options_.any_service = true;
  static_cast<void>(watch(epoll_, EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, kListenerKey));
}

Door::~Door() = default;

void Door::on_event(uint32_t key) {
  if (key == kListenerKey) {
    accept();
    return;
  }
  const auto found = std::find_if(visitors_.begin(), visitors_.end(),
                                  [key](const Visitor& one) { return one.key == key; });
  if (found != visitors_.end()) {
    advance(found);
  }
}

void Door::accept() {
  while (true) {
    auto fd = listener_.accept();
    if (!fd.ok()) {
      // Out of descriptors: those who wait are seen again when one has become free.
      base::log_warning(fmt::format("comm: {}: {}", name_, fd.error().message()));
      return;
    }
    if (!fd->has_value()) {
      return;
    }
    if (visitors_.size() >= kVisitorsMax) {
      turn_away(visitors_.begin(),
                visitors_.front().peer + ": too many come at once, and it was the first of them");
    }
    const std::string peer = wire::peer_text((*fd)->get());
    const int number = (*fd)->get();
    auto handshake =
        wire::ChannelHandshake::begin(std::move(**fd), wire::Side::acceptor, options_, peer);
    if (!handshake.ok()) {
      base::log_warning(fmt::format("comm: {}: {}", name_, handshake.error().message()));
      continue;
    }
    next_key_ = next_key_ == UINT32_MAX ? kVisitorKey : next_key_ + 1;
    visitors_.push_back({next_key_, peer, std::move(*handshake), base::Deadline::in(kVisitMost)});
    if (watch(epoll_, EPOLL_CTL_ADD, number, EPOLLIN, next_key_).ok()) {
      advance(std::prev(visitors_.end()));
    } else {
      visitors_.pop_back();
    }
  }
}

void Door::turn_away(Visitors::iterator visitor, std::string_view why) {
  ++turned_away_;
  if (turned_away_ <= kLoggedFirst || turned_away_ % kLoggedEach == 0) {
    base::log_warning(fmt::format("comm: {} turned a connection away, the {}. so far: {}", name_,
                                  turned_away_, why));
  }
  visitors_.erase(visitor);
}

Result<bool> Door::welcome(Visitor& visitor) {
  auto& channel = std::get<wire::Channel>(visitor.state);
  HR_TRY(auto frame, channel.try_receive());
  if (!frame.has_value()) {
    return false;
  }
  const auto hello =
      frame->type == kHelloFrame ? Hello::parse(frame->payload) : std::optional<Hello>();
  if (!hello) {
    return Error{Errc::corrupt, "it did not say what it wants"};
  }
  static_cast<void>(watch(epoll_, EPOLL_CTL_DEL, channel.fd(), 0, 0));
  if (channel.service() == wire::Service::data) {
    HR_TRY(base::Fd fd, std::move(channel).release());
    if (::send(fd.get(), &kWelcomeByte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
      return Error{Errc::io, "it does not take an answer"};
    }
    admit_(*hello, std::move(fd));
    return true;
  }
  HR_TRY(channel.queue({.type = kWelcomeFrame, .flags = 0, .payload = {}}));
  HR_TRY(const bool sent, channel.flush());
  if (!sent) {
    return Error{Errc::io, "it does not take an answer"};
  }
  admit_(*hello, std::move(channel));
  return true;
}

bool Door::advance(Visitors::iterator visitor) {
  if (auto* handshake = std::get_if<wire::ChannelHandshake>(&visitor->state)) {
    auto done = handshake->advance();
    if (!done.ok()) {
      turn_away(visitor, done.error().message());
      return false;
    }
    if (!*done) {
      const uint32_t events = handshake->wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN;
      static_cast<void>(watch(epoll_, EPOLL_CTL_MOD, handshake->fd(), events, visitor->key));
      return true;
    }
    const int fd = handshake->fd();
    visitor->state = std::move(*handshake).finish();
    static_cast<void>(watch(epoll_, EPOLL_CTL_MOD, fd, EPOLLIN, visitor->key));
  }
  auto admitted = welcome(*visitor);
  if (!admitted.ok()) {
    turn_away(visitor, admitted.error().message());
    return false;
  }
  if (*admitted) {
    visitors_.erase(visitor);
  }
  return !*admitted;
}

base::Micros Door::expire() {
  base::Micros next = std::chrono::hours(1);
  for (auto it = visitors_.begin(); it != visitors_.end();) {
    const auto visitor = it++;
    if (visitor->deadline.passed()) {
      turn_away(visitor, visitor->peer + ": it did not end its handshake in time");
    } else {
      next = std::min(next, visitor->deadline.left());
    }
  }
  return next;
}

}  // namespace headrace::comm
