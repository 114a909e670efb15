// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/transport/tcp_links.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "headrace/base/check.h"
#include "headrace/wire/endpoint.h"

namespace headrace::comm {

namespace {

constexpr uint32_t kWake = UINT32_MAX;  // in place of a rank
// Enough for the data on its way in a rack; the kernel grows no further than its own bound.
constexpr int kSocketBytes = 4 << 20;
constexpr base::Micros kSleepMost = std::chrono::hours(1);

/// A stopped or slow reader is late, not dead: the control connection alone decides who is dead.
/// With TCP_USER_TIMEOUT the kernel would end a stream whose reader has a full window.
void tune(int fd) {
  const int none = 0;
  wire::avoid_pacing(fd);
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none));
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes));
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof kSocketBytes));
}

size_t bytes_of(std::span<const iovec> parts) {
  size_t sum = 0;
  for (const iovec& part : parts) {
    sum += part.iov_len;
  }
  return sum;
}

std::atomic<uint64_t> damaged_pair = 0;  // by tests
uint64_t pair_of(int from, int to) {
  return (static_cast<uint64_t>(from) + 1) << 32U | static_cast<uint64_t>(to);
}

}  // namespace

void testing::damage_next(int from, int to) { damaged_pair.store(pair_of(from, to)); }

Result<TcpLinks> TcpLinks::make(int rank, std::vector<base::Fd> connections, Options options) {
  base::Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  base::Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) {
    return errno_error(errno, "comm: making an epoll and an event descriptor");
  }
  std::vector<Link> links(connections.size());
  for (size_t r = 0; r < connections.size(); ++r) {
    links[r].fd = std::move(connections[r]);
    if (!links[r].fd.valid()) {
      links[r].readable = links[r].writable = false;
      continue;
    }
    const int fd = links[r].fd.get();
    tune(fd);
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u32 = static_cast<uint32_t>(r);
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
        ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return errno_error(errno, "comm: watching a connection");
    }
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = kWake;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return errno_error(errno, "comm: watching an event descriptor");
  }
  return TcpLinks(rank, options, std::move(links), std::move(epoll), std::move(wake));
}

size_t TcpLinks::failed(Link& link, bool* ready, int error_number) {
  *ready = false;
  if (error_number != EAGAIN && error_number != EWOULDBLOCK) {
    link.readable = link.writable = link.takes = false;
    link.broken = error_number == 0 ? "it closed the connection" : std::strerror(error_number);
  }
  return 0;
}

size_t TcpLinks::send(int to, std::span<const iovec> parts, int stream) {
  Link& link = at(to, stream);
  if (!link.writable) {
    return 0;
  }
  if (!checks_) {
    return send(link, parts);
  }
  uint64_t pair = pair_of(rank_, to);
  if (damaged_pair.load(std::memory_order_relaxed) == pair &&
      damaged_pair.compare_exchange_strong(pair, 0)) {
    link.out.damage_next();
  }
  return link.out.gone(send(link, link.out.next(parts)));
}

size_t TcpLinks::send(Link& link, std::span<const iovec> parts) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts.data());  // the kernel only reads it
  message.msg_iovlen = parts.size();
  ssize_t count = 0;
  do {
    count = ::sendmsg(link.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    // What the other side has sent before it went may still be read.
    if (errno == EPIPE || errno == ECONNRESET) {
      link.writable = link.takes = false;
      link.readable = link.broken.empty();
      return 0;
    }
    return failed(link, &link.writable, errno);
  }
  link.writable = static_cast<size_t>(count) == bytes_of(parts);
  return static_cast<size_t>(count);
}

size_t TcpLinks::receive(int from, std::span<const iovec> parts, int stream) {
  Link& link = at(from, stream);
  if (!link.readable) {
    return 0;
  }
  if (!checks_) {
    return receive(link, parts);
  }
  while (link.readable && !link.in.damaged()) {
    const bool header = link.in.wants_header();
    const size_t count = link.in.came(receive(link, link.in.next(parts)));
    if (!header && !link.in.damaged()) {
      return count;
    }
  }
  return 0;
}

bool TcpLinks::damaged(int from) const {
  for (int stream = 0; stream < streams_; ++stream) {
    if (at(from, stream).in.damaged()) {
      return true;
    }
  }
  return false;
}

size_t TcpLinks::receive(Link& link, std::span<const iovec> parts) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(link.fd.get(), &message, MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    return failed(link, &link.readable, count == 0 ? 0 : errno);
  }
  // Less than there was room for: it was all, and the next bytes give an event. An end gives none.
  link.readable = link.ends || static_cast<size_t>(count) == bytes_of(parts);
  return static_cast<size_t>(count);
}

bool TcpLinks::has_bytes_after(int from, size_t bytes, size_t sends) const {
  bytes += checks_ ? at(from, 0).in.extra_bytes(sends) : 0;
  std::array<std::byte, 4096> some;
  HR_CHECK(bytes < some.size(), "a few headers");
  const int fd = at(from, 0).fd.get();
  if (fd < 0) {
    return false;
  }
  const ssize_t there = ::recv(fd, some.data(), bytes + 1, MSG_PEEK | MSG_DONTWAIT);
  return there == 0 || there > static_cast<ssize_t>(bytes);
}

bool TcpLinks::takes(int to) const {
  for (int stream = 0; stream < streams_; ++stream) {
    if (!at(to, stream).takes) {
      return false;
    }
  }
  return true;
}

const std::string& TcpLinks::broken(int rank) const {
  for (int stream = 1; stream < streams_; ++stream) {
    if (!at(rank, stream).broken.empty()) {
      return at(rank, stream).broken;
    }
  }
  return at(rank, 0).broken;
}

bool TcpLinks::refresh(base::Micros most) {
  std::array<epoll_event, 64> events;
  const auto limit_ms = std::chrono::ceil<std::chrono::milliseconds>(std::min(most, kSleepMost));
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(limit_ms.count()));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u32 == kWake) {
      uint64_t taken = 0;
      static_cast<void>(::read(wake_.get(), &taken, sizeof taken));
      continue;
    }
    Link& link = links_[event.data.u32];
    link.ends = link.ends || (event.events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0;
    if (link.broken.empty()) {
      link.readable = link.readable || link.ends || (event.events & EPOLLIN) != 0;
      link.writable = link.takes && (link.writable || (event.events & EPOLLOUT) != 0);
    }
  }
  return count > 0;
}

void TcpLinks::wake() {
  const uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof one));
}

void TcpLinks::finish() {
  for (Link& link : links_) {
    if (link.fd.valid()) {
      ::shutdown(link.fd.get(), SHUT_WR);
    }
  }
}

std::vector<base::Fd> TcpLinks::release() && {
  std::vector<base::Fd> out;
  for (Link& link : links_) {
    out.push_back(std::move(link.fd));
  }
  links_.clear();
  return out;
}

}  // namespace headrace::comm
