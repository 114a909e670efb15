// SPDX-License-Identifier: Apache-2.0
// Reductions of ranks on several nodes: in the node, between the nodes, in the node.
#pragma once

#include <memory>
#include <vector>

#include "headrace/comm/nodes_phased_internal.h"

namespace headrace::comm {

/// all_reduce and reduce. Small: to the node's first rank, between those, to whoever wants it.
/// Large: reduce_scatter to as many ranks as the smallest node has, each of which exchanges its
/// share, and back.
class NodesTransport::Reducing : public Phased {
 public:
  Reducing(const Call& call, NodesTransport& nodes);

 private:
  bool begin(uint32_t phase, std::unique_ptr<Operation>* out) override;
  void reduce_in_node();
  void exchange();
  std::unique_ptr<Operation> hand_out(uint32_t phase);
  /// The root is the one that exchanges.
  bool straight() const { return small_ && root_place_ == 0; }

  const bool to_all_;
  const bool small_;
  const Dtype partial_;  // type of the node's result
  const size_t root_node_;
  const size_t root_place_;
  const std::vector<uint64_t> counts_;  // elements of each local rank's share
  uint64_t offset_ = 0;                 // of the own share
  std::vector<std::byte> result_;       // of the own share, on its way to the root
};

/// reduce_scatter among nodes of one size: for each node, its like of every other one gets what
/// that node's ranks have for it.
class NodesTransport::Scattering : public Phased {
 public:
  Scattering(const Call& call, NodesTransport& nodes);

 private:
  bool begin(uint32_t phase, std::unique_ptr<Operation>* out) override;

  const Dtype partial_;
  std::vector<uint64_t> offsets_;  // of each rank's part in the contributions
  std::vector<uint64_t> counts_;   // elements of the own rail's ranks
};

}  // namespace headrace::comm
