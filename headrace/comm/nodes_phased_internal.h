// SPDX-License-Identifier: Apache-2.0
// What the operations of a NodesTransport have in common.
#pragma once

#include <memory>
#include <vector>

#include "headrace/comm/nodes_transport_internal.h"

namespace headrace::comm {

/// An operation made of others, one after the other.
class NodesTransport::Phased : public Operation {
 public:
  Phased(const Call& call, NodesTransport& nodes) : call_(call), nodes_(nodes) {}
  Step step() override;
  Algorithm algorithm() const override { return Algorithm::nodes; }

 protected:
  /// Start the phase of that number; null: this rank has no part in it. False: there is none.
  virtual bool begin(uint32_t phase, std::unique_ptr<Operation>* out) = 0;

  /// A part of the call within the node.
  std::unique_ptr<Operation> within(uint32_t phase, Kind kind);
  /// A part of it between this rank and some of other nodes.
  std::unique_ptr<Operation> between(uint32_t phase, Kind kind, const TcpGroup& group);

  /// The call itself, between all ranks of the set.
  std::unique_ptr<Operation> among_all();

  /// Elements of the call that each rank of the node has to do with between the nodes: all its
  /// first rank's, or as many ranks share them as the smallest node has.
  std::vector<uint64_t> shares(bool small) const;
  bool is_small(uint64_t count) const {
    return count * dtype_bytes(call_.dtype) <= nodes_.tcp_->small_bytes();
  }
  size_t place() const { return static_cast<size_t>(nodes_.channel_.rank()); }
  const std::vector<std::vector<int>>& ranks_of_nodes() const { return nodes_.tcp_->tree().nodes; }

  const Call& call_;
  NodesTransport& nodes_;
  Call part_;  // that is being done

 private:
  std::unique_ptr<Operation> current_;
  bool in_node_ = false;
  uint32_t phase_ = 0;
  bool begun_ = false;
};

}  // namespace headrace::comm
