// SPDX-License-Identifier: Apache-2.0
// Connecting within a deadline: one address after the other, and again while nobody is there yet.
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "headrace/wire/endpoint.h"
#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

constexpr size_t kAddressesMax = 64;
// With retries no round may last to the deadline: one address that swallows packets would keep us
// from asking the others again.
constexpr base::Micros kRoundMost = std::chrono::seconds(3);
constexpr base::Micros kRoundLeast = std::chrono::milliseconds(20);  // less tells nothing new
// Addresses are tried one after the other when each ends, or after this time: what is reached in
// vain would look like a scan of ports there, so the first that works is mostly the only one tried.
constexpr base::Micros kHeadStart = std::chrono::milliseconds(25);

/// One address to try. Without a descriptor it has ended, or not begun, for `cause`.
struct Attempt {
  size_t index = 0;
  std::string target;  // "10.0.0.5:4711", or "node-3:4711 at 10.0.0.5"
  base::Fd fd;
  std::string cause;
  int error_number = 0;
  SocketAddress address = {};
};

/// How a round without a connection ended.
struct Failure {
  Errc code = Errc::io;
  std::string text;
  bool queue_full = false;  // of a Unix socket, which does not wait in it by itself
};

std::string cause_text(int error_number) {
  switch (error_number) {
    case ECONNREFUSED: return "refused: nobody listens there";
    case ETIMEDOUT: return "timeout: the host does not answer";
    case EHOSTUNREACH:
    case ENETUNREACH: return "unreachable: there is no route to it";
    case EAGAIN: return "its queue of connections is full";
    default: return errno_error(error_number, "connecting").message();
  }
}

/// Linux connects a socket with itself when the port it was given by chance is the one it looks
/// for: a server that comes later would find its port taken.
bool is_own_echo(int fd) {
  SocketAddress own;
  SocketAddress peer;
  own.bytes = peer.bytes = sizeof own.storage;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.bytes) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes) == 0 &&
         own.family() != AF_UNIX && endpoint_of(own) == endpoint_of(peer);
}

/// Begin to connect; true when it is connected already.
bool begin(const TcpOptions& tcp, Attempt* attempt) {
  auto fd = open_socket(attempt->address);
  if (!fd.ok()) {
    attempt->cause = fd.error().message();
    return false;
  }
  if (auto tuned = tune_tcp(fd->get(), tcp); !tuned.ok()) {
    attempt->cause = tuned.error().message();
    return false;
  }
  if (::connect(fd->get(), attempt->address.get(), attempt->address.bytes) == 0) {
    attempt->fd = *std::move(fd);
    return true;
  }
  if (errno == EINPROGRESS || errno == EINTR) {
    attempt->fd = *std::move(fd);
  } else {
    attempt->error_number = errno;
    attempt->cause = cause_text(errno);
  }
  return false;
}

/// Ask a socket that has become ready how it ended; true when it is connected.
bool finish(Attempt* attempt) {
  int error_number = 0;
  socklen_t bytes = sizeof error_number;
  if (::getsockopt(attempt->fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) {
    error_number = errno;
  }
  if (error_number == 0 && is_own_echo(attempt->fd.get())) {
    error_number = ECONNREFUSED;
  }
  if (error_number == 0) {
    return true;
  }
  attempt->cause = cause_text(error_number);
  attempt->fd.reset();
  return false;
}

/// Wait for the first that is connected; its place, or none when all have ended or time is up.
std::optional<size_t> wait_first(std::vector<Attempt>* attempts, const base::Deadline& deadline) {
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<size_t> places;
    for (size_t i = 0; i < attempts->size(); ++i) {
      if ((*attempts)[i].fd.valid()) {
        entries.push_back({.fd = (*attempts)[i].fd.get(), .events = POLLOUT, .revents = 0});
        places.push_back(i);
      }
    }
    if (entries.empty()) {
      return std::nullopt;
    }
    const base::Micros left = deadline.left();
    const int count = ::poll(entries.data(), entries.size(), poll_timeout_ms(left));
    for (size_t i = 0; count > 0 && i < entries.size(); ++i) {
      if (entries[i].revents != 0 && finish(&(*attempts)[places[i]])) {
        return places[i];
      }
    }
    if (count <= 0 && left == base::Micros::zero()) {
      return std::nullopt;
    }
  }
}

Failure failure_of(const std::vector<Attempt>& attempts, base::Micros limit) {
  Failure failure;
  for (const Attempt& attempt : attempts) {
    const bool waiting = attempt.fd.valid();
    failure.queue_full = failure.queue_full || attempt.error_number == EAGAIN;
    if (waiting) {
      failure.code = Errc::timeout;
    }
    failure.text +=
        fmt::format("{}{}: {}", failure.text.empty() ? "" : "; ", attempt.target,
                    waiting ? fmt::format("timeout: no answer within {}", duration_text(limit))
                            : attempt.cause);
  }
  return failure;
}

struct Targets {
  std::vector<Attempt> attempts;
  bool found = false;              // an address; else
  Errc missing = Errc::not_found;  // why there is none
};

/// All addresses of all endpoints, and those that have none with the reason.
Targets targets_of(std::span<const Endpoint> endpoints, const base::Deadline& deadline) {
  Targets targets;
  std::vector<Attempt>& attempts = targets.attempts;
  for (size_t index = 0; index < endpoints.size(); ++index) {
    auto addresses = resolve(endpoints[index], deadline);
    Attempt attempt;
    attempt.index = index;
    if (!addresses.ok()) {
      targets.missing = addresses.error().code();
      attempt.target = endpoints[index].text();
      attempt.cause = addresses.error().message();
      attempts.push_back(std::move(attempt));
      continue;
    }
    for (size_t i = 0; i < addresses->size() && attempts.size() < kAddressesMax; ++i) {
      const Endpoint numeric = endpoint_of((*addresses)[i]);
      Attempt one;
      one.index = index;
      one.target = endpoints[index].text();
      if (numeric != endpoints[index]) {
        one.target += " at " + numeric.text();
      }
      one.address = (*addresses)[i];
      one.cause = "not tried: no time was left";
      attempts.push_back(std::move(one));
      targets.found = true;
    }
  }
  return targets;
}

/// Try all addresses of all endpoints once.
std::optional<Connected> try_once(std::span<const Endpoint> endpoints,
                                  const base::Deadline& deadline, const TcpOptions& tcp,
                                  Failure* failure) {
  const base::Micros limit = deadline.left();
  Targets targets = targets_of(endpoints, deadline);
  std::vector<Attempt>& attempts = targets.attempts;
  const auto winner = [&attempts](size_t place) {
    return Connected{.fd = std::move(attempts[place].fd), .index = attempts[place].index};
  };
  for (size_t next = 0; next < attempts.size(); ++next) {
    const bool has_address = attempts[next].address.bytes > 0;
    if (has_address && begin(tcp, &attempts[next]) && finish(&attempts[next])) {
      return winner(next);
    }
    const bool last = next + 1 == attempts.size();
    const auto until = last ? deadline : base::Deadline::in(std::min(deadline.left(), kHeadStart));
    if (const auto place = wait_first(&attempts, until)) {
      return winner(*place);
    }
    if (deadline.passed()) {
      break;
    }
  }
  *failure = failure_of(attempts, limit);
  if (!targets.found) {
    failure->code = targets.missing;
  }
  return std::nullopt;
}

}  // namespace

Result<Connected> connect_first(std::span<const Endpoint> endpoints, const base::Deadline& deadline,
                                const ConnectOptions& options) {
  if (endpoints.empty()) {
    return Error{Errc::invalid_argument, "there is no endpoint to connect to"};
  }
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.kind == Endpoint::Kind::tcp && endpoint.port == 0) {
      return Error{Errc::invalid_argument,
                   endpoint.text() + ": port 0 is for listening; name the port that was chosen"};
    }
  }
  const base::Micros limit = deadline.left();
  Backoff backoff(options.pause_first, options.pause_most);
  Failure before;  // of the last round that had time
  for (int tries = 1;; ++tries) {
    Failure failure;
    const auto round =
        options.retry ? base::Deadline::in(std::min(deadline.left(), kRoundMost)) : deadline;
    const bool is_rushed = round.left() < kRoundLeast;
    if (auto connected = try_once(endpoints, round, options.tcp, &failure)) {
      return *std::move(connected);
    }
    if (tries > 1 && is_rushed) {
      failure = before;
    }
    before = failure;
    if (!options.retry && !failure.queue_full) {
      return Error{failure.code, "connecting to " + failure.text};
    }
    if (deadline.passed()) {
      return Error{Errc::timeout,
                   fmt::format("connecting to {} ({} within {})", failure.text,
                               tries == 1 ? "one try" : fmt::format("{} tries", tries),
                               duration_text(limit))};
    }
    backoff.wait(deadline);
  }
}

Result<base::Fd> connect(const Endpoint& endpoint, const base::Deadline& deadline,
                         const ConnectOptions& options) {
  HR_TRY(Connected connected, connect_first({&endpoint, 1}, deadline, options));
  return std::move(connected.fd);
}

}  // namespace headrace::wire
