// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "headrace/comm/liveness_internal.h"

namespace headrace::comm {

namespace {

constexpr int kLookMs = 100;  // at processes without a handle

/// When a process was started, as the kernel counts it; empty for one that has ended; nullopt where
/// that cannot be told now (no descriptor is left, say).
std::optional<std::string> birth_of(int64_t pid) {
  constexpr int kState = 0;  // fields behind the name, which may hold anything
  constexpr int kStart = 19;
  const auto stat = base::read_file(fmt::format("/proc/{}/stat", pid), 4096);
  const size_t name_end = stat.ok() ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) {
    const bool ended = ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
    return ended ? std::optional(std::string()) : std::nullopt;
  }
  std::istringstream fields(stat->substr(name_end + 1));
  std::string field;
  for (int i = 0; fields >> field; ++i) {
    if (i == kState && (field == "Z" || field == "X")) {
      return std::string();
    }
    if (i == kStart) {
      return field;
    }
  }
  return std::nullopt;
}

Error ended_already(const Liveness::Peer& peer) {
  return {Errc::peer_dead,
          fmt::format("comm: rank {} (process {}) has ended already", peer.rank, peer.pid)};
}

}  // namespace

Result<Liveness::Watched> Liveness::watch(const Peer& peer) {
  base::Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (handle.valid()) {
    return Watched{peer.rank, std::move(handle), peer.pid, {}};
  }
  if (errno == ESRCH) {
    return ended_already(peer);
  }
  if (errno != EPERM && errno != ENOSYS && errno != EACCES) {
    return errno_error(errno,
                       fmt::format("comm: watching rank {} (process {})", peer.rank, peer.pid));
  }
  auto born = birth_of(peer.pid);
  if (!born) {
    return Error{Errc::io, fmt::format("comm: watching rank {}: /proc/{}/stat cannot be read",
                                       peer.rank, peer.pid)};
  }
  if (born->empty()) {
    return ended_already(peer);
  }
  return Watched{peer.rank, {}, peer.pid, *std::move(born)};
}

Result<std::unique_ptr<Liveness>> Liveness::start(const std::vector<Peer>& peers,
                                                  std::function<void(int)> on_death) {
  base::Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return errno_error(errno, "comm: making an eventfd");
  }
  std::vector<Watched> watched;
  for (const Peer& peer : peers) {
    HR_TRY(auto one, watch(peer));
    watched.push_back(std::move(one));
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
    const bool looks = std::any_of(peers_.begin(), peers_.end(),
                                   [](const Watched& one) { return !one.handle.valid(); });
    if (::poll(events.data(), events.size(), looks ? kLookMs : -1) < 0) {
      continue;  // a signal; nothing else can happen to it
    }
    if (events.front().revents != 0) {
      return;
    }
    for (size_t i = peers_.size(); i > 0; --i) {
      const Watched& peer = peers_[i - 1];
      bool ended = events[i].revents != 0;
      if (!peer.handle.valid()) {
        const auto born = birth_of(peer.pid);
        ended = born && *born != peer.born;
      }
      if (ended) {
        const int rank = peer.rank;
        peers_.erase(peers_.begin() + static_cast<int64_t>(i - 1));
        on_death_(rank);
      }
    }
  }
}

}  // namespace headrace::comm
