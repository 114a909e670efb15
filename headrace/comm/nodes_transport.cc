// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "headrace/comm/nodes_transport_internal.h"

namespace headrace::comm {

NodesTransport::NodesTransport(std::unique_ptr<TcpTransport> tcp, base::ShmMapping memory,
                               ShmChannel channel)
    : tcp_(std::move(tcp)), memory_(std::move(memory)), channel_(std::move(channel)) {
  const auto& nodes = tcp_->tree().nodes;
  size_t least = nodes.front().size();
  place_.resize(static_cast<size_t>(tcp_->tree().ranks()));
  for (size_t n = 0; n < nodes.size(); ++n) {
    least = std::min(least, nodes[n].size());
    even_ = even_ && nodes[n].size() == nodes.front().size();
    for (size_t p = 0; p < nodes[n].size(); ++p) {
      place_[static_cast<size_t>(nodes[n][p])] = {n, p};
    }
    if (std::find(nodes[n].begin(), nodes[n].end(), tcp_->rank()) != nodes[n].end()) {
      node_ = n;
    }
  }
  for (size_t i = 0; i < least; ++i) {
    TcpGroup rail;
    for (const auto& node : nodes) {
      rail.ranks.push_back(node[i]);
    }
    rail.tree = NodeTree::one_node(static_cast<int>(nodes.size()));
    rails_.push_back(std::move(rail));
  }
}

bool NodesTransport::closed(int rank) const {
  const auto& local = own_node();
  const auto found = std::find(local.begin(), local.end(), rank);
  if (found != local.end() &&
      channel_.progress(static_cast<int>(found - local.begin())).closed.load() != 0) {
    return true;
  }
  return tcp_->closed(rank);
}

std::optional<Error> NodesTransport::failure() {
  auto found = failure_of(channel_);
  return found ? found : tcp_->failure();
}

Error NodesTransport::spread(const Error& error) {
  // First of the node, then of the set: all of the node tell the others the same.
  const Error first = spread_failure(channel_, error.origin() ? error.origin()->rank : -1, error);
  static_cast<void>(tcp_->spread(first));
  return first;
}

void NodesTransport::leave() {
  channel_.mine().closed.store(1, std::memory_order_release);
  channel_.ring_others();
  tcp_->leave();
}

uint32_t NodesTransport::begin_sleep() {
  const uint32_t ticket = channel_.bells().begin_sleep();
  tcp_->ring_bell_once();
  return ticket;
}

void NodesTransport::wake() {
  channel_.bells().ring_self();
  tcp_->wake();
}

}  // namespace headrace::comm
