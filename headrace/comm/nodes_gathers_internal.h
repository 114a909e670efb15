// SPDX-License-Identifier: Apache-2.0
// Moves without arithmetic between ranks of several nodes: through memory in a node, and once over
// the network.
#pragma once

#include <memory>
#include <vector>

#include "headrace/comm/nodes_phased_internal.h"

namespace headrace::comm {

/// broadcast: in the root's node, whose ranks send a share each to their like of the other nodes;
/// there each hands its share to all. Small: by the first ranks alone.
class NodesTransport::Broadcasting : public Phased {
 public:
  Broadcasting(const Call& call, NodesTransport& nodes);

 private:
  bool begin(uint32_t phase, std::unique_ptr<Operation>* out) override;

  const bool small_;
  const size_t root_node_;
  const std::vector<uint64_t> counts_;
  uint64_t offset_ = 0;
};

/// all_gather: in the node; then each rank sends what it has to one of each other node, and each
/// node hands around what came from every other one.
class NodesTransport::Gathering : public Phased {
 public:
  Gathering(const Call& call, NodesTransport& nodes);

 private:
  bool begin(uint32_t phase, std::unique_ptr<Operation>* out) override;
  void exchange();
  /// Ranks of `node` from `first` on, one for each rank here, to all ranks here.
  void hand_around(size_t node, size_t first);

  struct Round {
    size_t node;
    size_t first;
  };
  std::vector<uint64_t> offsets_;
  std::vector<Round> rounds_;
  TcpGroup partners_;
};

/// all_to_all, gather and scatter: what goes to ranks of the node through its memory, the rest over
/// TCP, both at once.
class NodesTransport::Mixed : public Phased {
 public:
  Mixed(const Call& call, NodesTransport& nodes);
  Step step() override;

 private:
  bool begin(uint32_t, std::unique_ptr<Operation>*) override { return false; }
  /// Of the call as an all_to_all, what goes between this rank and `ranks`.
  Call part(const std::vector<int>& ranks, bool with_own) const;

  std::vector<uint64_t> send_counts_;
  std::vector<uint64_t> recv_counts_;
  std::vector<uint64_t> in_offsets_;
  std::vector<uint64_t> out_offsets_;
  TcpGroup others_;  // ranks of other nodes, and this one
  Call near_;
  Call far_;
  std::unique_ptr<Operation> near_step_;
  std::unique_ptr<Operation> far_step_;
};

}  // namespace headrace::comm
