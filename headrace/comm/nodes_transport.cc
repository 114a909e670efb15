// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/nodes_transport_internal.h"

namespace headrace::comm {

/// An operation made of others, one after the other.
class NodesTransport::Phased : public Operation {
 public:
  Phased(const Call& call, NodesTransport& nodes) : call_(call), nodes_(nodes) {}
  Step step() override;
  std::vector<int> absent() const override;

 protected:
  /// Start the phase of that number; null: this rank has no part in it. False: there is none.
  virtual bool begin(uint32_t phase, std::unique_ptr<Operation>* out) = 0;

  /// A part of the call within the node.
  std::unique_ptr<Operation> within(uint32_t phase, Kind kind);
  /// A part of it between this rank and its like of the other nodes.
  std::unique_ptr<Operation> between(uint32_t phase, const TcpGroup& group);

  /// The call itself, between all ranks of the set.
  std::unique_ptr<Operation> among_all();

  const Call& call_;
  NodesTransport& nodes_;
  Call part_;  // that is being done

 private:
  std::unique_ptr<Operation> current_;
  bool in_node_ = false;
  uint32_t phase_ = 0;
  bool begun_ = false;
};

Step NodesTransport::Phased::step() {
  bool moved = false;
  while (true) {
    if (!begun_) {
      if (!begin(phase_, &current_)) {
        return Step::done;
      }
      begun_ = true;
    }
    const Step step = current_ == nullptr ? Step::done : current_->step();
    if (step == Step::failed) {
      error_ = current_->error();
      return step;
    }
    if (step != Step::done) {
      const int missing = current_->missing();
      missing_ =
          in_node_ && missing >= 0 ? nodes_.own_node()[static_cast<size_t>(missing)] : missing;
      return moved ? Step::moved : step;
    }
    current_.reset();
    begun_ = false;
    moved = true;
    ++phase_;
  }
}

std::vector<int> NodesTransport::Phased::absent() const {
  std::vector<int> ranks = current_ == nullptr ? Operation::absent() : current_->absent();
  for (int& one : ranks) {
    one = current_ != nullptr && in_node_ ? nodes_.own_node()[static_cast<size_t>(one)] : one;
  }
  return ranks;
}

std::unique_ptr<Operation> NodesTransport::Phased::within(uint32_t phase, Kind kind) {
  part_.kind = kind;
  part_.told = &call_;
  part_.part = phase;
  in_node_ = true;
  return start_shm_operation(part_, nodes_.channel_, nodes_.state_);
}

std::unique_ptr<Operation> NodesTransport::Phased::between(uint32_t phase, const TcpGroup& group) {
  part_.told = &call_;
  part_.part = phase;
  in_node_ = false;
  return nodes_.tcp_->start(part_, group);
}

std::unique_ptr<Operation> NodesTransport::Phased::among_all() {
  in_node_ = false;
  return nodes_.tcp_->start(call_);
}

/// Small: reduce to the node's first rank, exchange, broadcast. Large: reduce_scatter to as many
/// ranks as the smallest node has, each exchanges its share, all_gather.
class NodesTransport::ThroughNode : public Phased {
 public:
  ThroughNode(const Call& call, NodesTransport& nodes);

 private:
  bool begin(uint32_t phase, std::unique_ptr<Operation>* out) override;
  void reduce_in_node();
  void exchange();
  void hand_out();

  size_t local_;   // place in the node
  Dtype partial_;  // type of the node's result
  bool small_;
  std::vector<uint64_t> counts_;  // elements of each local rank's share
  uint64_t offset_ = 0;           // of the own share
};

NodesTransport::ThroughNode::ThroughNode(const Call& call, NodesTransport& nodes)
    : Phased(call, nodes),
      local_(static_cast<size_t>(nodes.channel_.rank())),
      partial_(partial_dtype(call.dtype, call.op)),
      small_(call.count * dtype_bytes(call.dtype) <= nodes.tcp_->small_bytes()) {
  const size_t rails = small_ ? 1 : nodes.rails_.size();
  counts_ = equal_parts(call.count, static_cast<int>(rails), dtype_bytes(call.dtype));
  counts_.resize(static_cast<size_t>(nodes.channel_.ranks()), 0);
  offset_ =
      std::accumulate(counts_.begin(), counts_.begin() + static_cast<int64_t>(local_), uint64_t{0});
  const size_t bytes = counts_[local_] * dtype_bytes(partial_);
  if (nodes.partial_.size() < bytes) {
    nodes.partial_.resize(bytes);
  }
}

void NodesTransport::ThroughNode::reduce_in_node() {
  part_ = call_;
  part_.out = nodes_.partial_.data();
  part_.postscale = 1.0;
  part_.out_dtype = partial_;
  part_.root = 0;
  part_.counts = counts_;
}

void NodesTransport::ThroughNode::exchange() {
  part_ = call_;
  part_.kind = Kind::all_reduce;
  part_.dtype = partial_;
  part_.out_dtype = call_.dtype;
  part_.in = nodes_.partial_.data();
  part_.out = call_.out + offset_ * dtype_bytes(call_.dtype);
  part_.count = counts_[local_];
  part_.prescale = 1.0;
}

void NodesTransport::ThroughNode::hand_out() {
  part_ = call_;
  part_.in = call_.out + offset_ * dtype_bytes(call_.dtype);
  part_.root = 0;
  part_.counts = counts_;
}

bool NodesTransport::ThroughNode::begin(uint32_t phase, std::unique_ptr<Operation>* out) {
  switch (phase) {
    case 0:
      reduce_in_node();
      *out = within(phase, small_ ? Kind::reduce : Kind::reduce_scatter);
      return true;
    case 1:
      // Whoever has no share takes no part, and no rank of its like on another node does.
      if (local_ < (small_ ? size_t{1} : nodes_.rails_.size())) {
        exchange();
        *out = between(phase, nodes_.rails_[local_]);
      } else {
        nodes_.tcp_->skip();
      }
      return true;
    case 2:
      hand_out();
      *out = within(phase, small_ ? Kind::broadcast : Kind::all_gather);
      return true;
    default: return false;
  }
}

/// Agree within the node, then do it over TCP: a barrier between the first ranks, all else between
/// all.
class NodesTransport::Agreed : public Phased {
 public:
  using Phased::Phased;

 private:
  bool begin(uint32_t phase, std::unique_ptr<Operation>* out) override {
    const bool barrier = call_.kind == Kind::barrier;
    if (phase == 1 && !barrier) {
      *out = among_all();
    } else if (phase == 1 && nodes_.channel_.rank() == 0) {
      part_ = call_;
      *out = between(phase, nodes_.rails_.front());
    } else if (phase == 1) {
      nodes_.tcp_->skip();
    } else if (phase == 0 || (phase == 2 && barrier)) {
      part_ = Call();
      *out = within(phase, Kind::barrier);
    } else {
      return false;
    }
    return true;
  }
};

NodesTransport::NodesTransport(std::unique_ptr<TcpTransport> tcp, base::ShmMapping memory,
                               ShmChannel channel)
    : tcp_(std::move(tcp)), memory_(std::move(memory)), channel_(std::move(channel)) {
  const auto& nodes = tcp_->tree().nodes;
  size_t least = nodes.front().size();
  for (size_t n = 0; n < nodes.size(); ++n) {
    least = std::min(least, nodes[n].size());
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

std::unique_ptr<Operation> NodesTransport::start(const Call& call) {
  if (call.kind == Kind::all_reduce) {
    return std::make_unique<ThroughNode>(call, *this);
  }
  return std::make_unique<Agreed>(call, *this);
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
