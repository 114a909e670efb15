// SPDX-License-Identifier: Apache-2.0
// The job's meeting point: a StoreState behind a socket, on one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/wire/endpoint.h"
#include "headrace/wire/secret.h"
#include "headrace/wire/store.h"

namespace headrace::wire {

struct StoreServerOptions {
  Endpoint endpoint = Endpoint::tcp("127.0.0.1", 0);
  std::string job_id = {};
  const Secret* secret = nullptr;  ///< borrowed for start(); null: none
  bool insecure = false;           ///< allow an address of the network without a secret
  StoreLimits limits = {};
  size_t clients_max = 10'000;
  size_t pending_max = 1024;  ///< connections in their handshake; more wait in the kernel
  base::Micros handshake_limit = std::chrono::seconds(2);  ///< then the connection is closed
  size_t buffers_bytes_max = size_t{256} << 20;  ///< messages under way, all clients together
};

/// Counts since the start and of now.
struct StoreServerStats {
  size_t clients = 0;
  size_t pending = 0;
  size_t keys = 0;
  size_t bytes = 0;
  size_t waits = 0;
  uint64_t accepted = 0;  ///< connections that proved themselves
  uint64_t rejected = 0;  ///< connections that did not, or sent what no client sends
  uint64_t requests = 0;
};

/// A running server. Ends within milliseconds at stop() or destruction. Thread-safe but for those.
///
/// What has not proved itself costs a descriptor and some hundred bytes for at most
/// `handshake_limit`, and gets at nothing; each such connection is a line in the log, at most ten
/// in ten seconds. A client that sends no valid requests, or does not read its answers, is closed.
class HR_API StoreServer {
 public:
  /// Bind and begin. `invalid_argument` for an address that others reach without a secret, unless
  /// `insecure`; errors of Listener::bind.
  static Result<std::unique_ptr<StoreServer>> start(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// With the port that was chosen.
  const Endpoint& endpoint() const;
  StoreServerStats stats() const;
  /// Close everything; clients that wait see it at once.
  void stop();

 private:
  class Loop;
  explicit StoreServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace headrace::wire
