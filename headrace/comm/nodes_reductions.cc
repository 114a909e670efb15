// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/nodes_reductions_internal.h"

namespace headrace::comm {

namespace {

void make_room(std::vector<std::byte>* buffer, size_t bytes) {
  if (buffer->size() < bytes) {
    buffer->resize(bytes);
  }
}

}  // namespace

NodesTransport::Reducing::Reducing(const Call& call, NodesTransport& nodes)
    : Phased(call, nodes),
      to_all_(call.kind == Kind::all_reduce),
      small_(is_small(call.count)),
      partial_(partial_dtype(call.dtype, call.op)),
      root_node_(nodes.node_of(call.root)),
      root_place_(nodes.place_of(call.root)),
      counts_(shares(small_)) {
  offset_ = std::accumulate(counts_.begin(), counts_.begin() + static_cast<int64_t>(place()),
                            uint64_t{0});
  make_room(&nodes.partial_, counts_[place()] * dtype_bytes(partial_));
}

void NodesTransport::Reducing::reduce_in_node() {
  part_ = call_;
  part_.out = nodes_.partial_.data();
  part_.postscale = 1.0;
  part_.out_dtype = partial_;
  part_.root = 0;
  part_.counts = counts_;
}

void NodesTransport::Reducing::exchange() {
  const size_t element = dtype_bytes(call_.dtype);
  part_ = call_;
  part_.kind = call_.kind;
  part_.dtype = partial_;
  part_.out_dtype = call_.dtype;
  part_.in = nodes_.partial_.data();
  part_.count = counts_[place()];
  part_.prescale = 1.0;
  part_.root = to_all_ ? 0 : static_cast<int>(root_node_);
  if (to_all_) {
    part_.out = call_.out + offset_ * element;
  } else if (nodes_.node_ == root_node_ && straight()) {
    part_.out = call_.out;
  } else if (nodes_.node_ == root_node_) {
    result_.resize(counts_[place()] * element);
    part_.out = result_.data();
  }
}

std::unique_ptr<Operation> NodesTransport::Reducing::hand_out(uint32_t phase) {
  if (!to_all_ && (nodes_.node_ != root_node_ || straight())) {
    return nullptr;
  }
  part_ = call_;
  part_.in = to_all_ ? call_.out + offset_ * dtype_bytes(call_.dtype) : result_.data();
  part_.root = to_all_ ? 0 : static_cast<int>(root_place_);
  part_.counts = counts_;
  if (!to_all_) {
    return within(phase, Kind::gather);
  }
  return within(phase, small_ ? Kind::broadcast : Kind::all_gather);
}

bool NodesTransport::Reducing::begin(uint32_t phase, std::unique_ptr<Operation>* out) {
  switch (phase) {
    case 0:
      reduce_in_node();
      *out = within(phase, small_ ? Kind::reduce : Kind::reduce_scatter);
      return true;
    case 1:
      // Whoever has no share takes no part, and no rank of its like on another node does.
      if (place() < (small_ ? size_t{1} : nodes_.rails_.size())) {
        exchange();
        *out = between(phase, call_.kind, nodes_.rails_[place()]);
      } else {
        nodes_.tcp_->skip();
      }
      return true;
    case 2: *out = hand_out(phase); return true;
    default: return false;
  }
}

NodesTransport::Scattering::Scattering(const Call& call, NodesTransport& nodes)
    : Phased(call, nodes),
      partial_(partial_dtype(call.dtype, call.op)),
      offsets_(offsets_of(call.counts, call.in_offsets)) {
  for (const auto& node : ranks_of_nodes()) {
    counts_.push_back(call.counts[static_cast<size_t>(node[place()])]);
  }
  const uint64_t all = std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
  make_room(&nodes.partial_, all * dtype_bytes(partial_));
}

bool NodesTransport::Scattering::begin(uint32_t phase, std::unique_ptr<Operation>* out) {
  const auto& nodes = ranks_of_nodes();
  if (phase > nodes.size()) {
    return false;
  }
  part_ = call_;
  part_.in_offsets.clear();
  if (phase == nodes.size()) {
    part_.dtype = partial_;
    part_.out_dtype = call_.dtype;
    part_.in = nodes_.partial_.data();
    part_.prescale = 1.0;
    part_.counts = counts_;
    part_.count = std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
    *out = between(phase, Kind::reduce_scatter, nodes_.rails_[place()]);
    return true;
  }
  part_.counts.clear();
  for (const int rank : nodes[phase]) {
    part_.counts.push_back(call_.counts[static_cast<size_t>(rank)]);
    part_.in_offsets.push_back(offsets_[static_cast<size_t>(rank)]);
  }
  part_.count = std::accumulate(part_.counts.begin(), part_.counts.end(), uint64_t{0});
  part_.postscale = 1.0;
  part_.out_dtype = partial_;
  const uint64_t before =
      std::accumulate(counts_.begin(), counts_.begin() + static_cast<int64_t>(phase), uint64_t{0});
  part_.out = nodes_.partial_.data() + before * dtype_bytes(partial_);
  *out = within(phase, Kind::reduce_scatter);
  return true;
}

}  // namespace headrace::comm
