// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/port.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string>

#include "headrace/base/file.h"
#include "headrace/base/random.h"

namespace headrace::run {

namespace {

constexpr uint32_t kLowest = 20000;
constexpr uint32_t kTries = 512;

/// The first port that the kernel gives away by itself.
uint32_t first_ephemeral() {
  uint32_t first = 32768;
  const auto text = base::read_file("/proc/sys/net/ipv4/ip_local_port_range", 256);
  if (text.ok()) {
    std::from_chars(text->data(), text->data() + text->size(), first);
  }
  return first;
}

bool is_free(uint16_t port) {
  const auto all = wire::Listener::bind(wire::Endpoint::tcp("0.0.0.0", port));
  if (!all.ok()) {
    return false;
  }
  const auto loopback = wire::Listener::bind(wire::Endpoint::tcp("::1", port));
  return loopback.ok() || loopback.error().code() != Errc::busy;  // no IPv6 here
}

}  // namespace

Result<ReservedPort> ReservedPort::take() {
  const uint32_t end = std::max(first_ephemeral(), kLowest + 1000);
  uint32_t start = 0;
  base::random_bytes(std::as_writable_bytes(std::span(&start, 1)));
  for (uint32_t i = 0; i < kTries; ++i) {
    const auto port = static_cast<uint16_t>(kLowest + (start + i) % (end - kLowest));
    auto hold =
        wire::Listener::bind(wire::Endpoint::unix_name(fmt::format("headrace-port-{}", port)));
    if (hold.ok() && is_free(port)) {
      return ReservedPort(port, *std::move(hold));
    }
  }
  return Error{Errc::busy, fmt::format("none of {} ports tried between {} and {} is free", kTries,
                                       kLowest, end)};
}

}  // namespace headrace::run
