// SPDX-License-Identifier: Apache-2.0
// How this process reaches the other ranks over TCP, and what ranks tell one another beside the
// tensors: who has left, who is dead, which set has failed.
//
// One thread owns the port and one control connection to each other rank. It sleeps until something
// happens. Whether a silent host is still there is asked by the kernels (keep-alive probes, and an
// end for what stays unacknowledged), so a rank that was stopped is late, not dead.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/base/thread.h"
#include "headrace/comm/transport/door.h"
#include "headrace/comm/transport/mail.h"
#include "headrace/wire/secret.h"

namespace headrace::comm {

/// Another rank, as it has said of itself in the store.
struct NetworkPeer {
  std::string host;
  std::vector<wire::Endpoint> endpoints;  ///< best first
};

struct NetworkOptions {
  int rank = 0;
  std::string host;  ///< of this rank, for messages
  std::string job;
  uint64_t generation = 0;
  std::shared_ptr<const wire::Secret> secret;
  base::Micros silence = std::chrono::seconds(2);  ///< after which a host counts as lost
};

/// Called on the network's thread, or on that of a call. They must not wait.
struct NetworkEvents {
  std::function<void(int rank, const Error&)> on_dead;
  std::function<void(uint64_t set, const Error&)> on_set_failed;
  std::function<void()> on_ready;  ///< what ring_once() was called for
};

/// Thread-safe, but for know(), meet() and connect(), which one thread at a time calls.
class Network {
 public:
  /// Listen at `where` (port 0) and start the thread.
  static Result<std::shared_ptr<Network>> start(const NetworkOptions& options,
                                                const wire::Endpoint& where, NetworkEvents events);
  /// Says goodbye to all and waits shortly until the kernels have what was sent.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  uint16_t port() const;

  /// Who the others are, by rank; the own entry is not used. Before anything below.
  void know(std::vector<NetworkPeer> peers);
  /// Connect with all others, who do the same. The error names
  /// who cannot reach whom, and where: `peer_dead` with the reason, or `timeout`.
  Result<void> meet(base::Deadline deadline);
  /// Connections of a new set by its ranks, the own one empty; all its ranks call it. Those of
  /// `streams` streams come one stream after the other.
  Result<std::vector<base::Fd>> connect(uint64_t set, std::span<const int> world_ranks, int self,
                                        base::Deadline deadline, int streams = 1);
  /// Keep connections that were finished until the other side has all that was sent, however long
  /// it takes, or has gone; then close. What comes is thrown away. They are those of `world_ranks`,
  /// once or several times.
  void linger(std::vector<base::Fd> connections, std::span<const int> world_ranks);

  /// `rank` has closed everything in order.
  bool departed(int rank) const;
  /// `rank` has said that it closed `set`; what it sent before may be on its way.
  bool closed(uint64_t set, int rank) const;
  /// This rank has closed a set of these ranks.
  void tell_set_closed(uint64_t set, std::span<const int> world_ranks);
  /// The connection to `rank` shows that it, or the way to it, is gone. All ranks come to hear of
  /// the same first cause.
  void suspect(int rank, const Error& error);
  /// A set has failed for a reason that the members do not know yet.
  void tell_set_failed(uint64_t set, std::span<const int> world_ranks, const Error& error);

  /// A stream for messages to `rank`, if there is none, or none any longer; waits for the other
  /// side's network.
  Result<void> open_mail(int rank, base::Deadline deadline);
  /// After open_mail(send.to); else, or if the stream has ended since, it fails.
  void send(MailSend send);
  void receive(MailReceive receive);
  /// Ends the messages of a set. It may be called when the network is no more.
  std::function<void(uint64_t set, const Error&)> mail_failer() const;

  /// Call `on_ready` once when `epoll` is readable, which may be now.
  void ring_once(int epoll);

 private:
  struct Loop;
  explicit Network(std::shared_ptr<Loop> loop);
  Result<Arrival> call(const Hello& hello, wire::Service service, int to, base::Deadline deadline);
  Result<Arrival> await(const Hello& hello, base::Deadline deadline);
  Result<std::vector<std::optional<Arrival>>> link(uint64_t set, wire::Service service,
                                                   std::span<const int> world_ranks, int self,
                                                   base::Deadline deadline);

  std::shared_ptr<Loop> loop_;              // mail_failer() may outlive the network
  std::unique_ptr<base::Mutex[]> opening_;  // by rank: its mail stream is being opened
};

}  // namespace headrace::comm
