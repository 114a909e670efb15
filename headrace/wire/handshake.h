// SPDX-License-Identifier: Apache-2.0
// How two processes of a job prove to one another that they know its secret: no sockets, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/wire/secret.h"

namespace headrace::wire {

/// What a connection is for. Both sides must mean the same, so that a port that was taken for
/// another is told, and a proof for one is worth nothing at the other.
enum class Service : uint8_t {
  store = 1,    ///< the meeting point
  control = 2,  ///< liveness and membership between ranks
  data = 3,     ///< tensors between ranks
  agent = 4,    ///< orders to a process on another machine
};
HR_API std::string_view service_name(Service service);

/// The side that connected, and the one that accepted.
enum class Side : uint8_t { initiator, acceptor };

/// What a side says of itself, and asks of the other.
struct HandshakeOptions {
  Service service = Service::store;
  std::string job_id = {};         ///< at most 255 bytes; both sides must have the same
  uint64_t generation = 0;         ///< of the membership; both sides must have the same
  bool any_service = false;        ///< acceptor: take any, and ask peer_service() which it is
  bool any_generation = false;     ///< acceptor: take any
  bool full = false;               ///< acceptor: after the proof say that there is no room (`busy`)
  const Secret* secret = nullptr;  ///< borrowed until the connection is made; null: none, insecure
};

using Nonce = std::array<std::byte, 16>;
/// A new one, never used before.
HR_API Nonce make_nonce();

/// Keys of one connection, one per direction.
struct SessionKeys {
  Secret send;
  Secret receive;
};

/// Largest number of bytes either side of a handshake sends, all messages together.
inline constexpr size_t kHandshakeBytesMax = 40 + 255 + 32;

/// One side of a handshake. Feed it what came, send what it gives, until it is done or has an
/// error.
///
/// The acceptor proves itself first: a client never tells a stranger more than its job's id. Errors
/// (to close the connection on, after `out` is sent): `corrupt` for bytes of something else, at the
/// first byte that is wrong; `mismatch` for another version of the protocol, job, generation or
/// service; `auth_failed` for another secret, or a secret on one side only; `busy` as above.
/// Messages: docs/formats/wire.md.
class HR_API Handshake {
 public:
  /// `invalid_argument` for a job id above 255 bytes.
  static Result<Handshake> make(Side side, const HandshakeOptions& options, const Nonce& nonce);

  struct Step {
    size_t taken = 0;            ///< bytes of the input that belonged to the handshake
    std::string out;             ///< to send now
    bool done = false;           ///< keys() are there; what of the input is not taken is frames
    std::optional<Error> error;  ///< the end of it
  };
  /// The first call of an initiator has no input. Calls after the end take nothing.
  Step step(std::string_view in);

  /// Whether a whole first message came: what closes before it was no peer of ours.
  bool heard() const { return heard_; }
  /// REQUIRES done; once.
  SessionKeys take_keys();
  /// What the other side said of itself. For an initiator the acceptor's, which may be 0 when it
  /// takes any. REQUIRES done.
  uint64_t peer_generation() const { return peer_generation_; }
  /// What the connection is for: what the initiator wants. REQUIRES done.
  Service peer_service() const { return peer_service_; }

 private:
  enum class State : uint8_t { start, hello, challenge, proof, verdict, done, failed };
  Handshake(Side side, const HandshakeOptions& options, const Nonce& nonce);
  std::optional<Error> check_start() const;
  size_t wanted() const;
  void handle(Step* step);
  void on_hello(Step* step);
  void on_challenge(Step* step);
  void on_proof(Step* step);
  void on_verdict(Step* step);
  void derive(std::string_view initiator_nonce, std::string_view acceptor_nonce);
  std::string proof_of(Side side) const;
  void fail(Step* step, Errc code, std::string message);

  Side side_;
  State state_;
  HandshakeOptions options_;  // `secret` is not kept: key_ is
  Secret key_;                // the job's secret, or zeros
  bool secured_;
  Nonce nonce_;
  std::string message_;     // the part of the current message that came
  std::string transcript_;  // hello and the challenge up to its proof, as sent
  std::string acceptor_proof_;
  uint64_t peer_generation_ = 0;
  Service peer_service_;
  uint16_t verdict_ = 0;
  bool heard_ = false;
  std::optional<SessionKeys> keys_;
  std::optional<Secret> verdict_key_;
};

}  // namespace headrace::wire
