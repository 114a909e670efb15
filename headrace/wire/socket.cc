// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

constexpr base::Micros kPollMost = std::chrono::minutes(1);

uint64_t new_seed() {
  std::array<std::byte, sizeof(uint64_t)> bytes;
  base::random_bytes(bytes);
  uint64_t seed = 0;
  std::memcpy(&seed, bytes.data(), sizeof seed);
  return seed;
}

void append_addresses(const addrinfo* list, std::vector<SocketAddress>* out) {
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      out->push_back(socket_address(entry->ai_addr, entry->ai_addrlen));
    }
  }
}

/// A name that is being looked up. The C library's thread works on it, so it stays where it is.
struct Lookup {
  std::string host;
  std::string port;
  addrinfo hints = {};
  gaicb block = {};
};

Result<std::vector<SocketAddress>> look_up(const Endpoint& endpoint,
                                           const base::Deadline& deadline) {
  auto lookup = std::make_unique<Lookup>();
  lookup->host = endpoint.host;
  lookup->port = std::to_string(endpoint.port);
  lookup->hints.ai_socktype = SOCK_STREAM;
  lookup->hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  lookup->block.ar_name = lookup->host.c_str();
  lookup->block.ar_service = lookup->port.c_str();
  lookup->block.ar_request = &lookup->hints;
  gaicb* list[] = {&lookup->block};
  int code = ::getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr);
  while (code == 0 && (code = ::gai_error(&lookup->block)) == EAI_INPROGRESS) {
    const base::Micros left = std::min(deadline.left(), kPollMost);
    if (left == base::Micros::zero()) {
      if (::gai_cancel(&lookup->block) == EAI_NOTCANCELED) {
        // The resolver is at it and cannot be told to stop: what it writes to is left to it, some
        // hundred bytes per look-up that a broken name server holds up.
        static_cast<void>(lookup.release());
      }
      return Error{Errc::timeout,
                   fmt::format("looking up \"{}\" took too long; is the name server reachable?",
                               endpoint.host)};
    }
    const timespec wait = {.tv_sec = left.count() / 1'000'000,
                           .tv_nsec = left.count() % 1'000'000 * 1000};
    ::gai_suspend(list, 1, &wait);
    code = 0;
  }
  std::vector<SocketAddress> out;
  if (code == 0 && lookup->block.ar_result != nullptr) {
    append_addresses(lookup->block.ar_result, &out);
    ::freeaddrinfo(lookup->block.ar_result);
  }
  if (out.empty()) {
    return Error{Errc::not_found,
                 fmt::format("there is no host \"{}\" ({})", endpoint.host, ::gai_strerror(code))};
  }
  return out;
}

}  // namespace

int poll_timeout_ms(base::Micros left) {
  const base::Micros most = std::min(left, kPollMost);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(most).count());
}

bool wait_ready(int fd, short events, const base::Deadline& deadline) {
  for (;;) {
    const base::Micros left = deadline.left();
    pollfd entry = {.fd = fd, .events = events, .revents = 0};
    const int count = ::poll(&entry, 1, poll_timeout_ms(left));
    if (count > 0) {
      return true;
    }
    if (left == base::Micros::zero()) {
      return false;  // asked once more when the time was up
    }
  }
}

std::string duration_text(base::Micros duration) {
  const double seconds = static_cast<double>(duration.count()) * 1e-6;
  return seconds < 1.0 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

SocketAddress socket_address(const sockaddr* address, socklen_t bytes) {
  SocketAddress out;
  out.bytes = std::min(bytes, static_cast<socklen_t>(sizeof out.storage));
  std::memcpy(&out.storage, address, out.bytes);
  return out;
}

Endpoint endpoint_of(const SocketAddress& address) {
  if (address.family() == AF_UNIX) {
    const auto* name = reinterpret_cast<const sockaddr_un*>(&address.storage);
    const size_t head = offsetof(sockaddr_un, sun_path) + 1;  // the zero that says "abstract"
    return Endpoint::unix_name(address.bytes > head
                                   ? std::string(name->sun_path + 1, address.bytes - head)
                                   : std::string());
  }
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  ::getnameinfo(address.get(), address.bytes, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return Endpoint::tcp(host, static_cast<uint16_t>(std::strtoul(port, nullptr, 10)));
}

std::vector<SocketAddress> literal_addresses(const Endpoint& endpoint) {
  std::vector<SocketAddress> out;
  if (endpoint.kind == Endpoint::Kind::unix_name) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    const size_t bytes = std::min(endpoint.host.size(), sizeof name.sun_path - 1);
    std::memcpy(name.sun_path + 1, endpoint.host.data(), bytes);
    out.push_back(
        socket_address(reinterpret_cast<const sockaddr*>(&name),
                       static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes)));
    return out;
  }
  if (endpoint.host == "localhost") {
    // Not asked for: /etc/hosts of a container may say anything, or not be there.
    out = literal_addresses(Endpoint::tcp("127.0.0.1", endpoint.port));
    const auto six = literal_addresses(Endpoint::tcp("::1", endpoint.port));
    out.insert(out.end(), six.begin(), six.end());
    return out;
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  if (::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list) == 0) {
    append_addresses(list, &out);
    ::freeaddrinfo(list);
  }
  return out;
}

Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint,
                                           const base::Deadline& deadline) {
  std::vector<SocketAddress> literals = literal_addresses(endpoint);
  return literals.empty() ? look_up(endpoint, deadline) : std::move(literals);
}

Result<base::Fd> open_socket(const SocketAddress& address) {
  base::Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return errno_error(errno, "making a socket");
  }
  return fd;
}

Backoff::Backoff(base::Micros first, base::Micros most)
    : pause_(std::max(first, base::Micros(1))), most_(std::max(most, first)), rng_(new_seed()) {}

base::Micros Backoff::next() {
  const base::Micros half = pause_ / 2;
  const base::Micros pause =
      half + base::Micros(rng_.below(static_cast<uint64_t>((pause_ - half).count()) + 1));
  pause_ = std::min(pause_ * 2, most_);
  return pause;
}

void Backoff::wait(const base::Deadline& deadline) {
  base::sleep_for(std::min(next(), deadline.left()));
}

}  // namespace headrace::wire
