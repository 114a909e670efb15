// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "headrace/comm/liveness_internal.h"

namespace headrace::comm {

Result<std::unique_ptr<Liveness>> Liveness::start(const std::vector<Peer>& peers,
                                                  std::function<void(int)> on_death) {
  base::Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return errno_error(errno, "comm: making an eventfd");
  }
  std::vector<Watched> watched;
  for (const Peer& peer : peers) {
    base::Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    if (!handle.valid() && errno == ESRCH) {
      return Error{Errc::peer_dead, fmt::format("comm: rank {} (process {}) has ended already",
                                                peer.rank, peer.pid)};
    }
    if (!handle.valid()) {
      return errno_error(errno,
                         fmt::format("comm: watching rank {} (process {})", peer.rank, peer.pid));
    }
    watched.push_back({peer.rank, std::move(handle)});
  }
  return std::unique_ptr<Liveness>(
      new Liveness(std::move(watched), std::move(wake), std::move(on_death)));
}

Liveness::Liveness(std::vector<Watched> peers, base::Fd wake, std::function<void(int)> on_death)
    : peers_(std::move(peers)),
      wake_(std::move(wake)),
      on_death_(std::move(on_death)),
      thread_("hr-liveness", [this] { run(); }) {}

Liveness::~Liveness() {
  const uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof one));
}

void Liveness::run() {
  while (true) {
    std::vector<pollfd> events = {{wake_.get(), POLLIN, 0}};
    for (const Watched& peer : peers_) {
      events.push_back({peer.handle.get(), POLLIN, 0});
    }
    if (::poll(events.data(), events.size(), -1) < 0) {
      continue;  // a signal; nothing else can happen to it
    }
    if (events.front().revents != 0) {
      return;
    }
    for (size_t i = peers_.size(); i > 0; --i) {
      if (events[i].revents != 0) {
        const int rank = peers_[i - 1].rank;
        peers_.erase(peers_.begin() + static_cast<int64_t>(i - 1));
        on_death_(rank);
      }
    }
  }
}

}  // namespace headrace::comm
