// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/nodes_gathers_internal.h"
#include "headrace/comm/nodes_reductions_internal.h"

namespace headrace::comm {

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

std::unique_ptr<Operation> NodesTransport::Phased::between(uint32_t phase, Kind kind,
                                                           const TcpGroup& group) {
  part_.kind = kind;
  part_.told = &call_;
  part_.part = phase;
  in_node_ = false;
  return nodes_.tcp_->start(part_, group);
}

std::unique_ptr<Operation> NodesTransport::Phased::among_all() {
  in_node_ = false;
  return nodes_.tcp_->start(call_);
}

std::vector<uint64_t> NodesTransport::Phased::shares(bool small) const {
  const int rails = small ? 1 : static_cast<int>(nodes_.rails_.size());
  auto counts = equal_parts(call_.count, rails, dtype_bytes(call_.dtype));
  counts.resize(nodes_.own_node().size(), 0);
  return counts;
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
      *out = between(phase, Kind::barrier, nodes_.rails_.front());
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

std::unique_ptr<Operation> NodesTransport::start(const Call& call) {
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce: return std::make_unique<Reducing>(call, *this);
    case Kind::reduce_scatter:
      if (even_) {
        return std::make_unique<Scattering>(call, *this);
      }
      break;
    case Kind::broadcast: return std::make_unique<Broadcasting>(call, *this);
    case Kind::all_gather: return std::make_unique<Gathering>(call, *this);
    case Kind::all_to_all:
    case Kind::gather:
    case Kind::scatter: return std::make_unique<Mixed>(call, *this);
    case Kind::barrier:
    case Kind::send:
    case Kind::recv: break;
  }
  return std::make_unique<Agreed>(call, *this);
}

}  // namespace headrace::comm
