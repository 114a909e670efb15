// SPDX-License-Identifier: Apache-2.0
// Messages over a connection whose two ends have proved themselves: blocking with a deadline, or
// for event loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/wire/endpoint.h"
#include "headrace/wire/frame.h"
#include "headrace/wire/handshake.h"

namespace headrace::wire {

/// Frame types from here on belong to the channel itself.
inline constexpr uint16_t kFrameTypeReserved = 0xff00;

/// A process at the other end of a Unix socket, as the kernel knows it.
struct PeerCredentials {
  int64_t pid = -1;
  uint32_t uid = 0;
  uint32_t gid = 0;
};

/// Messages between two processes. Move-only; closes at destruction. Not thread-safe.
///
/// Errors name the peer. `io`: it closed the connection or the network did; `corrupt`: its bytes
/// were altered; `timeout`. After any error but `timeout` the channel is of no more use.
class HR_API Channel {
 public:
  /// Connect and shake hands within the deadline. Errors of connect() and of Handshake, with the
  /// endpoint in front; `auth_failed` also for a Unix peer of another user (root excepted).
  static Result<Channel> connect(const Endpoint& endpoint, const HandshakeOptions& options,
                                 const base::Deadline& deadline,
                                 const ConnectOptions& connect_options = {});
  /// Connect to a process that has several addresses. An address may lead somewhere else (every
  /// machine has a 172.17.0.1): where the handshake fails, the other addresses are tried, and the
  /// error is that of the first, with what became of the others as a note.
  static Result<Channel> connect(std::span<const Endpoint> endpoints,
                                 const HandshakeOptions& options, const base::Deadline& deadline,
                                 const ConnectOptions& connect_options = {});
  /// The other side: shake hands over a connection that a Listener gave.
  static Result<Channel> accept(base::Fd fd, const HandshakeOptions& options,
                                const base::Deadline& deadline);

  /// Hand a message to the kernel. On `timeout` what is left goes out first with the next send() or
  /// flush(): the message is not taken back.
  Result<void> send(const Frame& frame, const base::Deadline& deadline);
  /// Wait for a message. On `timeout` nothing is lost.
  Result<Frame> receive(const base::Deadline& deadline);

  /// For event loops, none of these wait. Put a message behind what is to go out; `busy` when more
  /// than 64 MiB wait already.
  Result<void> queue(const Frame& frame);
  /// Send what the kernel takes; true when nothing is left.
  Result<bool> flush();
  /// The next message; nullopt when none is whole. Call it until then: what was read already gives
  /// no further event of poll().
  Result<std::optional<Frame>> try_receive();
  bool wants_write() const { return out_begin_ < out_.size(); }
  /// Bytes that wait in this process, to go out and to be handed out.
  size_t queued_bytes() const { return out_.size() - out_begin_; }
  size_t buffered_bytes() const { return reader_.buffered_bytes(); }

  /// Unix only (`unsupported`): send a copy of a descriptor, in order with the messages, and take
  /// one. The receiver must call receive_descriptor() where the sender called send_descriptor();
  /// else `mismatch`. A send_descriptor() that ends with `timeout` ends the channel.
  Result<void> send_descriptor(int fd, const base::Deadline& deadline);
  Result<base::Fd> receive_descriptor(const base::Deadline& deadline);
  /// Unix only: who is there. Its user is this process' or root's, the handshake has looked.
  Result<PeerCredentials> peer_credentials() const;

  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  uint64_t peer_generation() const { return peer_generation_; }
  Service service() const { return service_; }
  /// Give the connection away after the handshake, for bytes without frames. `busy` when messages
  /// wait in either direction.
  Result<base::Fd> release() &&;

 private:
  friend class ChannelHandshake;
  Channel(base::Fd fd, std::string peer, Handshake handshake);
  Channel(base::Fd fd, std::string peer, SessionKeys keys);
  Result<bool> fill();
  Result<Frame> next_of(bool descriptor, const base::Deadline& deadline);
  Error closed(int error_number) const;
  Error timed_out(std::string_view what, base::Micros limit) const;

  base::Fd fd_;
  std::string peer_;
  bool local_;  // a Unix socket, which may bring descriptors
  uint64_t peer_generation_ = 0;
  Service service_ = Service::store;
  FrameSealer sealer_;
  FrameReader reader_;
  std::string out_;
  size_t out_begin_ = 0;  // bytes of `out_` that are gone
  std::deque<base::Fd> descriptors_;
};

/// A handshake under way on a non-blocking connection, for event loops. Move-only.
class HR_API ChannelHandshake {
 public:
  /// `auth_failed` at once for a Unix peer of another user. The errors that follow name `peer`.
  static Result<ChannelHandshake> begin(base::Fd fd, Side side, const HandshakeOptions& options,
                                        std::string peer);
  /// Read and write what is possible without waiting; true when done. Errors of Handshake; `io`
  /// when the peer closes.
  Result<bool> advance();
  bool wants_write() const { return !out_.empty(); }
  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  /// Whether a whole message of the protocol came from the peer.
  bool heard() const { return handshake_.heard(); }
  /// REQUIRES advance() said true; once.
  Channel finish() &&;

 private:
  ChannelHandshake(base::Fd fd, std::string peer, Handshake handshake)
      : fd_(std::move(fd)), peer_(std::move(peer)), handshake_(std::move(handshake)) {}
  Result<void> write_out();
  Error with_peer(Error error) const;

  base::Fd fd_;
  std::string peer_;
  Handshake handshake_;
  std::string out_;
  bool begun_ = false;
  bool done_ = false;
};

}  // namespace headrace::wire
