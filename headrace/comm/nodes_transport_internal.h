// SPDX-License-Identifier: Apache-2.0
// A process set with several ranks on some of its nodes: shared memory within a node, TCP between.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/shm_segment.h"
#include "headrace/comm/algo/shm_operation.h"
#include "headrace/comm/tcp_transport_internal.h"

namespace headrace::comm {

/// Operations go through the node's memory as far as its ranks are concerned, and over TCP once
/// per node or between the ranks that have something for one another.
class NodesTransport : public SetTransport {
 public:
  /// `channel` is that of this node's ranks of the set, in their order.
  NodesTransport(std::unique_ptr<TcpTransport> tcp, base::ShmMapping memory, ShmChannel channel);

  int rank() const override { return tcp_->rank(); }
  std::unique_ptr<Operation> start(const Call& call) override;
  bool next_begun() override { return next_shm_begun(channel_, state_) || tcp_->next_begun(); }
  bool closed(int rank) const override;
  void look_for_failure() override { tcp_->look_for_failure(); }
  std::optional<Error> failure() override;
  Error spread(const Error& error) override;
  void hear(const Error& error) override { tcp_->hear(error); }
  void leave() override;
  void call_others(uint32_t) override {}  // what the operation announces first says it
  bool called(uint32_t) override {
    tcp_->look();  // what is seen here does not ring the bell again
    return next_begun();
  }
  uint32_t begin_sleep() override;
  void doze(uint32_t ticket, base::Micros most) override { channel_.bells().doze(ticket, most); }
  void end_sleep() override { channel_.bells().end_sleep(); }
  void wake() override;
  void ring_bell_once() override { tcp_->ring_bell_once(); }

 private:
  class Phased;
  class Agreed;
  class Reducing;
  class Scattering;
  class Broadcasting;
  class Gathering;
  class Mixed;
  struct Place {
    size_t node = 0;
    size_t place = 0;  // in the node
  };

  const std::vector<int>& own_node() const { return tcp_->tree().nodes[node_]; }
  size_t node_of(int rank) const { return place_[static_cast<size_t>(rank)].node; }
  size_t place_of(int rank) const { return place_[static_cast<size_t>(rank)].place; }

  std::unique_ptr<TcpTransport> tcp_;
  base::ShmMapping memory_;
  ShmChannel channel_;
  ShmSetState state_;
  std::vector<Place> place_;     // by rank of the set
  bool even_ = true;             // all nodes have as many ranks
  size_t node_ = 0;              // of this rank, in the tree
  std::vector<TcpGroup> rails_;  // the i-th ranks of all nodes, as many as the smallest has
  std::vector<std::byte> partial_;
};

}  // namespace headrace::comm
