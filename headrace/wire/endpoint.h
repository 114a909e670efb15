// SPDX-License-Identifier: Apache-2.0
// Where a process listens, and how another gets there: TCP and abstract Unix names.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::wire {

/// One place to listen at. Text forms: "10.0.0.5:4711", "node-3:4711", "[fe80::1%eth0]:4711", and
/// "unix:NAME" for a name in Linux' abstract space, which leaves no file behind.
struct HR_API Endpoint {
  enum class Kind : uint8_t { tcp, unix_name };
  Kind kind = Kind::tcp;
  std::string host;   ///< an address or a name; for unix_name the name, at most 107 bytes
  uint16_t port = 0;  ///< 0: one that is free, to listen at only

  static Endpoint tcp(std::string host, uint16_t port) {
    return {.kind = Kind::tcp, .host = std::move(host), .port = port};
  }
  static Endpoint unix_name(std::string name) {
    return {.kind = Kind::unix_name, .host = std::move(name), .port = 0};
  }
  /// `invalid_argument` says what is wrong with the text.
  static Result<Endpoint> parse(std::string_view text);
  std::string text() const;
  /// Whether only processes of this machine get there: a Unix name, 127.0.0.0/8, ::1, "localhost".
  bool is_loopback() const;
  bool operator==(const Endpoint&) const = default;
};

/// What TCP connections get beside TCP_NODELAY: keep-alive probes after 10 s of silence, and an end
/// (`ETIMEDOUT`) for data that the other side has not acknowledged for `user_timeout`.
struct TcpOptions {
  base::Micros user_timeout = std::chrono::seconds(10);
};
/// Set them; does nothing to a Unix socket. Connections of Listener and connect() have them
/// already.
HR_API Result<void> tune_tcp(int fd, const TcpOptions& options = {});
/// Where this machine has BBR for all connections, give this one CUBIC, or Reno where that is not
/// allowed. BBR sends at the rate that it has seen lately, on a timer; between peers that wait for
/// one another it takes their waiting for a slow network and slows down for good (5 times at 1
/// MiB).
HR_API void avoid_pacing(int fd);

struct ListenOptions {
  int backlog = 1024;  ///< connections that may wait for accept(); the kernel has a bound too
  TcpOptions tcp = {};
};

/// A socket that listens. Move-only; closes at destruction. Not thread-safe.
class HR_API Listener {
 public:
  /// The host must be an address or "localhost": a machine's own name is never looked up, because
  /// on many it gives 127.0.0.1. "0.0.0.0" and "::" mean all addresses, "::" both families. `busy`
  /// when the port or name is taken, `invalid_argument`, `io`.
  static Result<Listener> bind(const Endpoint& endpoint, const ListenOptions& options = {});
  /// Where it listens, with the port that was chosen.
  const Endpoint& endpoint() const { return endpoint_; }
  /// To wait for POLLIN on.
  int fd() const { return fd_.get(); }
  /// Take a connection (non-blocking, close-on-exec); nullopt when none waits. An error (`io`: no
  /// descriptors or memory left) leaves the listener usable.
  Result<std::optional<base::Fd>> accept();
  /// Wait for a connection and take it; `timeout`.
  Result<base::Fd> accept(const base::Deadline& deadline);

 private:
  Listener(base::Fd fd, Endpoint endpoint, const TcpOptions& tcp)
      : fd_(std::move(fd)), endpoint_(std::move(endpoint)), tcp_(tcp) {}
  base::Fd fd_;
  Endpoint endpoint_;
  TcpOptions tcp_;
};

struct ConnectOptions {
  /// Keep trying until the deadline when nobody listens there yet, the host cannot be reached or
  /// its name is not known yet.
  bool retry = false;
  base::Micros pause_first = std::chrono::milliseconds(10);  ///< doubles up to `pause_most`
  base::Micros pause_most = std::chrono::seconds(1);
  TcpOptions tcp = {};
};

struct Connected {
  base::Fd fd;       ///< non-blocking, close-on-exec
  size_t index = 0;  ///< of the endpoint that answered first
};

/// Connect to one endpoint within the deadline. Errors name the endpoint and the cause: `io`
/// (refused, unreachable), `timeout`, `not_found` (no such host), `invalid_argument` (port 0). With
/// `retry` the code is `timeout` and the message ends with the last cause.
HR_API Result<base::Fd> connect(const Endpoint& endpoint, const base::Deadline& deadline,
                                const ConnectOptions& options = {});
/// Connect to the one of several addresses of the same process that answers first. Each is tried as
/// soon as those before it have failed, at the latest 25 ms after the one before. An error names
/// each with its cause. At most 64 addresses, names' included, are tried.
HR_API Result<Connected> connect_first(std::span<const Endpoint> endpoints,
                                       const base::Deadline& deadline,
                                       const ConnectOptions& options = {});

/// The two ends of a TCP connection: this machine's address as the peer sees it, and the peer's.
HR_API Result<Endpoint> own_side(int fd);
HR_API Result<Endpoint> other_side(int fd);

/// Who is at the other end: "10.0.0.7:51234", or "unix:NAME (pid 12, user 1000)"; for messages.
HR_API std::string peer_text(int fd);

}  // namespace headrace::wire
