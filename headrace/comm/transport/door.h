// SPDX-License-Identifier: Apache-2.0
// The port of a rank: whoever comes proves itself and says what it wants, or is turned away.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "headrace/base/clock.h"
#include "headrace/base/result.h"
#include "headrace/wire/channel.h"
#include "headrace/wire/endpoint.h"

namespace headrace::comm {

/// What a connection between two ranks is for: the operations of a set, or what ranks tell one
/// another beside them (set 0 of the service `control`).
struct Hello {
  uint64_t set = 0;
  int32_t rank = 0;  ///< of the world, who connects

  std::string bytes() const;
  static std::optional<Hello> parse(std::string_view bytes);
};

/// The answer to it is a frame where the connection stays a channel, and one byte before a stream
/// of tensors: a channel would take in what follows.
inline constexpr uint16_t kHelloFrame = 1;
inline constexpr uint16_t kWelcomeFrame = 2;
inline constexpr char kWelcomeByte = 'w';

/// What a visitor has become: a channel for control, a bare stream for tensors.
using Arrival = std::variant<wire::Channel, base::Fd>;

/// Accepts, for the thread of a loop. A visitor that says nothing, or something else than a rank of
/// this job would, is closed without an effect on anybody; a bounded number may be on their way.
class Door {
 public:
  using Admit = std::function<void(const Hello&, Arrival)>;
  /// `name`: of this rank, for the log. `options.secret` is borrowed.
  Door(wire::Listener listener, const wire::HandshakeOptions& options, std::string name, int epoll,
       Admit admit);
  ~Door();

  const wire::Endpoint& endpoint() const { return listener_.endpoint(); }
  /// Events of this key in the epoll set of the loop are for on_event().
  static constexpr uint32_t kListenerKey = 1U << 30;
  static constexpr uint32_t kVisitorKey = 1U << 31;  // and above
  void on_event(uint32_t key);
  /// Turn away who takes too long; when to call again.
  base::Micros expire();

 private:
  struct Visitor {
    uint32_t key = 0;
    std::string peer;
    std::variant<wire::ChannelHandshake, wire::Channel> state;
    base::Deadline deadline;
  };
  using Visitors = std::list<Visitor>;
  void accept();
  void turn_away(Visitors::iterator visitor, std::string_view why);
  /// False: it is gone, or somebody else's by now.
  bool advance(Visitors::iterator visitor);
  Result<bool> welcome(Visitor& visitor);

  wire::Listener listener_;
  wire::HandshakeOptions options_;
  std::string name_;
  int epoll_;
  Admit admit_;
  Visitors visitors_;
  uint32_t next_key_ = kVisitorKey;
  uint64_t turned_away_ = 0;
};

}  // namespace headrace::comm
