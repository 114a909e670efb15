// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/comm/tcp_transport_internal.h"

namespace headrace::comm {

namespace {

// The control connection of a dead rank ends with the others; it says who was first.
constexpr base::Micros kControlMost = std::chrono::milliseconds(500);

/// Above, the work of a reduction is shared: it costs one exchange more and saves bytes.
size_t small_bytes_of(size_t ranks, uint64_t configured) {
  if (configured > 0) {
    return configured;
  }
  return std::max(size_t{4} << 10, (size_t{128} << 10) / std::max<size_t>(ranks, 2));
}

}  // namespace

TcpTransport::TcpTransport(TcpLinks links, Members members, Network* network)
    : links_(std::move(links)),
      state_(links_.ranks(), small_bytes_of(members.world_ranks.size(), members.small_bytes)),
      members_(std::move(members)),
      all_{NodeTree::one_node(links_.ranks()).nodes.front(), members_.tree},
      network_(network),
      broken_(members_.world_ranks.size()) {
  state_.world_ranks = members_.world_ranks;
}

bool TcpTransport::closed(int rank) const {
  const auto index = static_cast<size_t>(rank);
  const TcpSetState::Peer& peer = state_.peers[index];
  const int world = members_.world_ranks[index];
  // Of one that has said goodbye beside the stream there may be bytes in it still.
  return peer.closed ||
         (peer.ended && (network_->departed(world) || network_->closed(members_.set, world)));
}

void TcpTransport::look_for_failure() {
  if (left_) {
    return;
  }
  for (size_t r = 0; r < broken_.size(); ++r) {
    const auto rank = static_cast<int>(r);
    if (rank == links_.rank() || links_.broken(rank).empty() || closed(rank) ||
        state_.peers[r].failed) {
      continue;
    }
    if (!broken_[r]) {
      broken_[r] = base::Deadline::in(kControlMost);
    } else if (broken_[r]->passed()) {
      broken_[r] = base::Deadline::never();
      const int world = members_.world_ranks[r];
      Error error(Errc::peer_dead, fmt::format("comm: the connection to rank {} for tensors ended "
                                               "({}), though the one for control did not",
                                               world, links_.broken(rank)));
      Origin origin;
      origin.rank = world;
      error.set_origin(std::move(origin));
      network_->suspect(world, error);
    }
  }
}

std::optional<Error> TcpTransport::failure() {
  base::MutexLock lock(mutex_);
  return fault_;
}

void TcpTransport::hear(const Error& error) {
  base::MutexLock lock(mutex_);
  if (!fault_) {
    fault_ = error;
  }
}

Error TcpTransport::spread(const Error& error) {
  {
    base::MutexLock lock(mutex_);
    if (fault_) {
      return *fault_;
    }
    fault_ = error;
  }
  // All hear of a death by the verdict on it.
  if (error.code() != Errc::peer_dead) {
    network_->tell_set_failed(members_.set, members_.world_ranks, error);
  }
  return error;
}

void TcpTransport::leave() {
  if (!std::exchange(left_, true)) {
    bool failed = false;
    {
      base::MutexLock lock(mutex_);
      failed = fault_.has_value();
    }
    say_goodbye(links_, failed);
    network_->tell_set_closed(members_.set, members_.world_ranks);  // for who looks at no link
    network_->linger(std::move(links_).release(), members_.world_ranks);
  }
}

void TcpTransport::doze(uint32_t, base::Micros most) { links_.refresh(most); }

void TcpTransport::ring_bell_once() { network_->ring_once(links_.ready_fd()); }

}  // namespace headrace::comm
