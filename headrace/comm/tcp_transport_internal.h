// SPDX-License-Identifier: Apache-2.0
// A process set whose ranks have a TCP connection to each other.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/comm/algo/tcp_operation.h"
#include "headrace/comm/set_transport_internal.h"
#include "headrace/comm/transport/network.h"
#include "headrace/comm/transport/tcp_links.h"

namespace headrace::comm {

/// Faults that others tell of come by hear(), those of connections too, once ranks agree on them.
class TcpTransport : public SetTransport {
 public:
  struct Members {
    uint64_t set = 0;
    std::vector<int> world_ranks;
    NodeTree tree;             ///< over ranks of the set
    uint64_t small_bytes = 0;  ///< Config::small_bytes
  };
  /// `network` must live until leave().
  TcpTransport(TcpLinks links, Members members, Network* network);

  std::unique_ptr<Operation> start(const Call& call) override { return start(call, all_); }
  /// The same among some ranks; the others call skip().
  std::unique_ptr<Operation> start(const Call& call, const TcpGroup& group) {
    return start_tcp_operation(call, group, links_, state_);
  }
  void skip() { ++state_.sequence; }
  /// Take note of what has become of the connections.
  void look() { links_.refresh(base::Micros(0)); }
  size_t small_bytes() const { return state_.small_bytes; }
  const NodeTree& tree() const { return all_.tree; }
  int rank() const override { return links_.rank(); }
  bool next_begun() override { return next_tcp_begun(links_, state_); }
  bool closed(int rank) const override;
  void look_for_failure() override;
  std::optional<Error> failure() override HR_EXCLUDES(mutex_);
  Error spread(const Error& error) override HR_EXCLUDES(mutex_);
  void hear(const Error& error) override HR_EXCLUDES(mutex_);
  void leave() override;
  void call_others(uint32_t) override {}  // what the operation sends first says it
  bool called(uint32_t) override { return next_begun(); }
  uint32_t begin_sleep() override { return 0; }
  void doze(uint32_t ticket, base::Micros most) override;
  void end_sleep() override {}
  void wake() override { links_.wake(); }
  void ring_bell_once() override;

 private:
  TcpLinks links_;
  TcpSetState state_;
  const Members members_;
  const TcpGroup all_;
  Network* network_;
  bool left_ = false;
  std::vector<std::optional<base::Deadline>> broken_;  // by rank: until the network must know
  mutable base::Mutex mutex_;                          // leaf
  std::optional<Error> fault_ HR_GUARDED_BY(mutex_);
};

}  // namespace headrace::comm
