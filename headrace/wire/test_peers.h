// SPDX-License-Identifier: Apache-2.0
// For tests: places to listen at, two connected ends, and waiting for a thing to become true.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "headrace/base/checksum.h"
#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/random.h"
#include "headrace/base/thread.h"
#include "headrace/wire/channel.h"
#include "headrace/wire/endpoint.h"

namespace headrace::wire {

/// Long enough for a machine under load; nothing waits for it to pass.
inline base::Deadline in_time() { return base::Deadline::in(std::chrono::seconds(30)); }

inline int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// An abstract name that nobody else has.
inline Endpoint unix_endpoint() {
  std::array<std::byte, 8> bytes;
  base::random_bytes(bytes);
  return Endpoint::unix_name("headrace-test-" + base::hex(bytes));
}

/// A port of this machine where nobody listens.
inline Endpoint free_port() {
  const auto listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  REQUIRE(listener.ok());
  return listener->endpoint();
}

/// Whether `is_true` becomes true; asks every millisecond.
inline bool eventually(const std::function<bool()>& is_true) {
  const base::Deadline deadline = in_time();
  while (!is_true()) {
    if (deadline.passed()) {
      return false;
    }
    base::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct Ends {
  Channel client;
  Channel server;
};

/// Two channels, connected with one another by way of `endpoint`.
inline Ends connected_ends(const Endpoint& endpoint, const HandshakeOptions& options) {
  auto listener = Listener::bind(endpoint);
  REQUIRE(listener.ok());
  std::optional<Result<Channel>> client;
  base::Thread thread("client",
                      [&] { client = Channel::connect(listener->endpoint(), options, in_time()); });
  auto fd = listener->accept(in_time());
  REQUIRE(fd.ok());
  auto server = Channel::accept(*std::move(fd), options, in_time());
  thread.join();
  REQUIRE(server.ok());
  REQUIRE(client->ok());
  return {.client = **std::move(client), .server = *std::move(server)};
}

}  // namespace headrace::wire
