// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/nodes_gathers_internal.h"

namespace headrace::comm {

NodesTransport::Broadcasting::Broadcasting(const Call& call, NodesTransport& nodes)
    : Phased(call, nodes),
      small_(is_small(call.count)),
      root_node_(nodes.node_of(call.root)),
      counts_(shares(small_)) {
  offset_ = std::accumulate(counts_.begin(), counts_.begin() + static_cast<int64_t>(place()),
                            uint64_t{0});
}

bool NodesTransport::Broadcasting::begin(uint32_t phase, std::unique_ptr<Operation>* out) {
  const bool at_root = nodes_.node_ == root_node_;
  if (phase > 2) {
    return false;
  }
  part_ = call_;
  if (phase == 0 && !at_root) {
    part_ = Call();  // who does something else here is found before anybody waits for the network
    *out = within(phase, Kind::barrier);
  } else if (phase == 0) {
    part_.root = static_cast<int>(nodes_.place_of(call_.root));
    *out = within(phase, Kind::broadcast);
  } else if (phase == 1 && place() >= (small_ ? size_t{1} : nodes_.rails_.size())) {
    nodes_.tcp_->skip();
  } else if (phase == 1) {
    part_.root = static_cast<int>(root_node_);
    part_.in = part_.out = call_.out + offset_ * dtype_bytes(call_.dtype);
    part_.count = counts_[place()];
    *out = between(phase, Kind::broadcast, nodes_.rails_[place()]);
  } else if (phase == 2 && !at_root) {
    part_.root = 0;
    part_.in = call_.out + offset_ * dtype_bytes(call_.dtype);
    part_.counts = counts_;
    *out = within(phase, small_ ? Kind::broadcast : Kind::all_gather);
  }
  return true;
}

NodesTransport::Gathering::Gathering(const Call& call, NodesTransport& nodes)
    : Phased(call, nodes), offsets_(offsets_of(call.counts, call.out_offsets)) {
  const auto& all = ranks_of_nodes();
  const size_t here = nodes.own_node().size();
  partners_.ranks.push_back(nodes.tcp_->rank());
  for (size_t n = 0; n < all.size(); ++n) {
    for (size_t first = 0; n != nodes.node_ && first < all[n].size(); first += here) {
      rounds_.push_back({n, first});
    }
    for (size_t p = 0; n != nodes.node_ && p < all[n].size(); ++p) {
      if (p % here == place() || place() % all[n].size() == p) {
        partners_.ranks.push_back(all[n][p]);
      }
    }
  }
  partners_.tree = NodeTree::one_node(static_cast<int>(partners_.ranks.size()));
}

/// Contributions between partners: to the one of each node that this rank's place comes down to.
void NodesTransport::Gathering::exchange() {
  const size_t here = nodes_.own_node().size();
  const auto own = static_cast<size_t>(nodes_.tcp_->rank());
  part_ = call_;
  part_.counts.clear();
  part_.out_offsets.clear();
  for (const int partner : partners_.ranks) {
    const auto rank = static_cast<size_t>(partner);
    const size_t their_place = nodes_.place_of(partner);
    const size_t there = ranks_of_nodes()[nodes_.node_of(partner)].size();
    const bool sends = rank != own && place() % there == their_place;
    const bool takes = rank != own && their_place % here == place();
    part_.send_counts.push_back(sends ? call_.counts[own] : 0);
    part_.recv_counts.push_back(takes ? call_.counts[rank] : 0);
    part_.out_offsets.push_back(offsets_[rank]);
  }
  part_.in_offsets.assign(partners_.ranks.size(), 0);
}

void NodesTransport::Gathering::hand_around(size_t node, size_t first) {
  const auto& ranks = ranks_of_nodes()[node];
  const size_t here = nodes_.own_node().size();
  part_ = call_;
  part_.counts.assign(here, 0);
  part_.out_offsets.assign(here, 0);
  for (size_t i = 0; i < here && first + i < ranks.size(); ++i) {
    const auto rank = static_cast<size_t>(ranks[first + i]);
    part_.counts[i] = call_.counts[rank];
    part_.out_offsets[i] = offsets_[rank];
  }
  part_.count = std::accumulate(part_.counts.begin(), part_.counts.end(), uint64_t{0});
  part_.in = call_.out + part_.out_offsets[place()] * dtype_bytes(call_.dtype);
}

bool NodesTransport::Gathering::begin(uint32_t phase, std::unique_ptr<Operation>* out) {
  if (phase == 1) {
    exchange();
    *out = between(phase, Kind::all_to_all, partners_);
    return true;
  }
  if (phase > rounds_.size() + 1) {
    return false;
  }
  // The own node first: who does something else there is found before anybody waits for the
  // network.
  const Round round = phase == 0 ? Round{nodes_.node_, 0} : rounds_[phase - 2];
  hand_around(round.node, round.first);
  if (phase == 0) {
    part_.in = call_.in;
  }
  *out = within(phase, Kind::all_gather);
  return true;
}

NodesTransport::Mixed::Mixed(const Call& call, NodesTransport& nodes) : Phased(call, nodes) {
  const auto ranks = static_cast<size_t>(nodes.tcp_->tree().ranks());
  const auto own = static_cast<size_t>(nodes.tcp_->rank());
  const auto root = static_cast<size_t>(call.root);
  if (call.kind == Kind::all_to_all) {
    send_counts_ = call.send_counts;
    recv_counts_ = call.recv_counts;
    in_offsets_ = offsets_of(send_counts_, call.in_offsets);
    out_offsets_ = offsets_of(recv_counts_, call.out_offsets);
  } else {
    send_counts_.assign(ranks, 0);
    recv_counts_.assign(ranks, 0);
    in_offsets_.assign(ranks, 0);
    out_offsets_.assign(ranks, 0);
    const bool gathers = call.kind == Kind::gather;
    if (own == root) {
      (gathers ? recv_counts_ : send_counts_) = call.counts;
      (gathers ? out_offsets_ : in_offsets_) =
          offsets_of(call.counts, gathers ? call.out_offsets : call.in_offsets);
    }
    (gathers ? send_counts_ : recv_counts_)[root] = call.counts[own];
  }
  for (const auto& node : ranks_of_nodes()) {
    const bool here = &node == &nodes.own_node();
    others_.ranks.insert(others_.ranks.end(), node.begin(), here ? node.begin() : node.end());
  }
  others_.ranks.push_back(nodes.tcp_->rank());
  others_.tree = NodeTree::one_node(static_cast<int>(others_.ranks.size()));
  near_ = part(nodes.own_node(), true);
  if (call.kind != Kind::all_to_all && nodes.node_of(call.root) != nodes.node_) {
    near_.kind = Kind::barrier;  // to see that all of the node do the same
  }
  far_ = part(others_.ranks, false);
  near_step_ = start_shm_operation(near_, nodes.channel_, nodes.state_);
  far_step_ = nodes.tcp_->start(far_, others_);
}

Call NodesTransport::Mixed::part(const std::vector<int>& ranks, bool with_own) const {
  Call part;
  part.kind = Kind::all_to_all;
  part.dtype = call_.dtype;
  part.in = call_.in;
  part.out = call_.out;
  part.told = &call_;
  part.part = with_own ? 0 : 1;
  for (const int one : ranks) {
    const auto rank = static_cast<size_t>(one);
    const bool moves = with_own || one != nodes_.tcp_->rank();
    part.send_counts.push_back(moves ? send_counts_[rank] : 0);
    part.recv_counts.push_back(moves ? recv_counts_[rank] : 0);
    part.in_offsets.push_back(in_offsets_[rank]);
    part.out_offsets.push_back(out_offsets_[rank]);
  }
  return part;
}

Step NodesTransport::Mixed::step() {
  bool moved = false;
  missing_ = -1;
  for (const bool near : {true, false}) {
    auto& operation = near ? near_step_ : far_step_;
    const Step step = operation == nullptr ? Step::done : operation->step();
    if (step == Step::failed) {
      error_ = operation->error();
      return step;
    }
    if (step == Step::done) {
      moved = moved || operation != nullptr;
      operation.reset();
      continue;
    }
    moved = moved || step == Step::moved;
    const int missing = operation->missing();
    missing_ = near && missing >= 0 ? nodes_.own_node()[static_cast<size_t>(missing)] : missing;
  }
  if (near_step_ == nullptr && far_step_ == nullptr) {
    return Step::done;
  }
  return moved ? Step::moved : Step::stuck;
}

}  // namespace headrace::comm
