// SPDX-License-Identifier: Apache-2.0
// Waiting for descriptors with a bound, addresses in the kernel's form, and pauses between tries.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/random.h"
#include "headrace/base/result.h"
#include "headrace/wire/endpoint.h"

namespace headrace::wire {

/// Wait until `fd` has one of `events` (or an error, or an end); false when the deadline passed.
bool wait_ready(int fd, short events, const base::Deadline& deadline);

/// What poll() and epoll_wait() take: rounded up, so that no loop turns without waiting; at most a
/// minute.
int poll_timeout_ms(base::Micros left);

/// "250 ms", "1.5 s".
std::string duration_text(base::Micros duration);

/// One address as bind() and connect() take it.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress socket_address(const sockaddr* address, socklen_t bytes);
/// The endpoint that an address of the kernel means. An abstract name may be anything, also empty.
Endpoint endpoint_of(const SocketAddress& address);
/// `host` as an address literal, or "localhost" (both families, without asking anybody); empty when
/// it is a name.
std::vector<SocketAddress> literal_addresses(const Endpoint& endpoint);
/// All addresses of an endpoint; a name is looked up within the deadline (`not_found`, `timeout`).
Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint,
                                           const base::Deadline& deadline);

/// A non-blocking stream socket of an address' family.
Result<base::Fd> open_socket(const SocketAddress& address);

/// Pauses between tries: each up to twice the one before, with half of it left to chance, so that
/// a thousand clients do not come back in step.
class Backoff {
 public:
  Backoff(base::Micros first, base::Micros most);
  base::Micros next();
  /// Sleep for the next pause, at most until the deadline.
  void wait(const base::Deadline& deadline);

 private:
  base::Micros pause_;
  base::Micros most_;
  base::Rng rng_;
};

}  // namespace headrace::wire
