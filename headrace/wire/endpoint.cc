// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "headrace/base/printable.h"
#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

constexpr size_t kUnixNameBytesMax = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kHostBytesMax = 253;
constexpr std::string_view kUnixPrefix = "unix:";

Error bad_text(std::string_view text, std::string_view why) {
  return Error{Errc::invalid_argument,
               fmt::format("endpoint \"{}\": {}; write HOST:PORT, [IPV6]:PORT or unix:NAME",
                           base::printable(text), why)};
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

Result<Endpoint> parse_unix(std::string_view text) {
  const std::string_view name = text.substr(kUnixPrefix.size());
  if (name.empty() || name.size() > kUnixNameBytesMax) {
    return bad_text(text, fmt::format("the name has {} bytes, it must have 1 to {}", name.size(),
                                      kUnixNameBytesMax));
  }
  if (base::printable(name) != name) {
    return bad_text(text, "the name has control characters");
  }
  return Endpoint::unix_name(std::string(name));
}

Result<void> set_option(int fd, int level, int name, int value, std::string_view what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) {
    return errno_error(errno, fmt::format("setting {} of a socket", what));
  }
  return {};
}

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) {
    return parse_unix(text);
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return bad_text(text, "there is no port");
  }
  const std::string_view number = text.substr(colon + 1);
  unsigned port = 0;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), port);
  if (number.empty() || end.ec != std::errc() || end.ptr != number.data() + number.size() ||
      port > UINT16_MAX) {
    return bad_text(text, "the port is no number from 0 to 65535");
  }
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  Endpoint endpoint = tcp(std::string(host), static_cast<uint16_t>(port));
  if (bracketed) {
    const auto addresses = literal_addresses(endpoint);
    if (addresses.empty() || addresses.front().family() != AF_INET6) {
      return bad_text(text, "what stands in brackets is no IPv6 address");
    }
    return endpoint;
  }
  if (host.find(':') != std::string_view::npos) {
    return bad_text(text, "an IPv6 address stands in brackets");
  }
  if (host.empty() || host.size() > kHostBytesMax ||
      !std::all_of(host.begin(), host.end(), is_name_character)) {
    return bad_text(text, "the host is neither an address nor a name");
  }
  return endpoint;
}

std::string Endpoint::text() const {
  if (kind == Kind::unix_name) {
    return fmt::format("{}{}", kUnixPrefix, base::printable(host));
  }
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port)
                                             : fmt::format("{}:{}", host, port);
}

bool Endpoint::is_loopback() const {
  if (kind == Kind::unix_name) {
    return true;
  }
  const auto addresses = literal_addresses(*this);
  return !addresses.empty() &&
         std::all_of(addresses.begin(), addresses.end(), [](const SocketAddress& address) {
           if (address.family() == AF_INET) {
             const auto* four = reinterpret_cast<const sockaddr_in*>(&address.storage);
             return (ntohl(four->sin_addr.s_addr) >> 24U) == 127U;
           }
           const auto& six = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
           return IN6_IS_ADDR_LOOPBACK(&six) ||
                  (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
         });
}

Result<void> tune_tcp(int fd, const TcpOptions& options) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) {
    return errno_error(errno, "asking a socket for its family");
  }
  if (domain == AF_UNIX) {
    return {};
  }
  const auto user_timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(options.user_timeout).count();
  HR_TRY(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  HR_TRY(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  HR_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10, "TCP_KEEPIDLE"));
  HR_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5, "TCP_KEEPINTVL"));
  HR_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
  return set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                    static_cast<int>(std::clamp<int64_t>(user_timeout, 0, INT32_MAX)),
                    "TCP_USER_TIMEOUT");
}

void avoid_pacing(int fd) {
  char name[16] = {};  // TCP_CA_NAME_MAX
  socklen_t bytes = sizeof name - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0 ||
      std::string_view(name).substr(0, 3) != "bbr") {
    return;
  }
  for (const std::string_view other : {"cubic", "reno"}) {
    const auto length = static_cast<socklen_t>(other.size());
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, other.data(), length) == 0) {
      return;
    }
  }
}

Result<Listener> Listener::bind(const Endpoint& endpoint, const ListenOptions& options) {
  const std::string what = "listening at " + endpoint.text();
  const auto addresses = literal_addresses(endpoint);
  if (addresses.empty()) {
    return Error{Errc::invalid_argument,
                 what +
                     ": name an address of this machine, 0.0.0.0 or localhost: names are not "
                     "looked up to find one's own address"};
  }
  if (endpoint.kind == Endpoint::Kind::unix_name &&
      (endpoint.host.empty() || endpoint.host.size() > kUnixNameBytesMax)) {
    return Error{Errc::invalid_argument, what + ": the name must have 1 to 107 bytes"};
  }
  const SocketAddress& address = addresses.front();
  HR_TRY(base::Fd fd, open_socket(address), what);
  if (address.family() != AF_UNIX) {
    // Not SO_REUSEPORT: two servers at one port would share the clients.
    HR_TRY(set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  }
  if (address.family() == AF_INET6) {
    HR_TRY(set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0, "IPV6_V6ONLY"));
  }
  if (::bind(fd.get(), address.get(), address.bytes) != 0 ||
      ::listen(fd.get(), options.backlog) != 0) {
    if (errno == EADDRINUSE) {
      return Error{Errc::busy, what +
                                   ": another process listens there; end it, or take another "
                                   "(port 0 takes one that is free)"};
    }
    if (errno == EADDRNOTAVAIL) {
      return Error{Errc::invalid_argument, what + ": this machine has no such address"};
    }
    return errno_error(errno, what);
  }
  SocketAddress bound;
  bound.bytes = sizeof bound.storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) != 0) {
    return errno_error(errno, what);
  }
  Endpoint chosen = endpoint;
  chosen.port = endpoint_of(bound).port;
  return Listener(std::move(fd), std::move(chosen), options.tcp);
}

Result<std::optional<base::Fd>> Listener::accept() {
  for (;;) {
    base::Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      HR_TRY(tune_tcp(fd.get(), tcp_));
      return std::optional<base::Fd>(std::move(fd));
    }
    switch (errno) {
      case EAGAIN: return std::optional<base::Fd>();
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
      case EBADF:
      case EINVAL:
      case ENOTSOCK: return errno_error(errno, "accepting at " + endpoint_.text());
      default: break;  // EINTR, or the connection went before it was taken: there may be others
    }
  }
}

Result<base::Fd> Listener::accept(const base::Deadline& deadline) {
  const base::Micros limit = deadline.left();
  for (;;) {
    HR_TRY(auto fd, accept());
    if (fd.has_value()) {
      return *std::move(fd);
    }
    if (!wait_ready(fd_.get(), POLLIN, deadline)) {
      return Error{Errc::timeout, fmt::format("nobody connected to {} within {}", endpoint_.text(),
                                              duration_text(limit))};
    }
  }
}

namespace {

Result<Endpoint> side_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.bytes = sizeof address.storage;
  if (ask(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    return errno_error(errno, "asking for the address of a connection");
  }
  return endpoint_of(address);
}

}  // namespace

Result<Endpoint> own_side(int fd) { return side_of(fd, &::getsockname); }
Result<Endpoint> other_side(int fd) { return side_of(fd, &::getpeername); }

std::string peer_text(int fd) {
  SocketAddress address;
  address.bytes = sizeof address.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    return "a peer that has gone";
  }
  const Endpoint endpoint = endpoint_of(address);
  if (endpoint.kind == Endpoint::Kind::tcp) {
    return endpoint.text();
  }
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  return fmt::format("{}pid {}, user {}", endpoint.host.empty() ? "" : endpoint.text() + ", ",
                     peer.pid, peer.uid);
}

}  // namespace headrace::wire
