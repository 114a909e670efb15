// SPDX-License-Identifier: Apache-2.0
#include "headrace/proc/supervisor.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>

#include "headrace/base/clock.h"

namespace headrace::proc {

struct Supervisor::State {
  base::Fd events;
  int64_t children_max = 0;
  ChildId last_id = 0;
  std::map<ChildId, Child> children;
};

Supervisor::Supervisor(std::unique_ptr<State> state) : state_(std::move(state)) {}
Supervisor::Supervisor(Supervisor&&) noexcept = default;
Supervisor& Supervisor::operator=(Supervisor&&) noexcept = default;

Supervisor::~Supervisor() {
  if (state_ != nullptr && !state_->children.empty()) {
    // All at once, so that the wait is 5 s in all and not for each.
    stop_all("its owner let it go", Millis(0));
  }
}

Result<Supervisor> Supervisor::make(int64_t children_max) {
  auto state = std::make_unique<State>();
  state->children_max = children_max;
  state->events = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!state->events.valid()) {
    return errno_error(errno, "watching children");
  }
  return Supervisor(std::move(state));
}

int Supervisor::event_fd() const { return state_->events.get(); }
int64_t Supervisor::running() const { return std::ssize(state_->children); }

Child* Supervisor::find(ChildId id) {
  const auto it = state_->children.find(id);
  return it == state_->children.end() ? nullptr : &it->second;
}

Result<ChildId> Supervisor::start(ChildOptions options) {
  if (running() >= state_->children_max) {
    return Error{Errc::busy, std::to_string(running()) +
                                 " processes run already, which is the most allowed here; wait for "
                                 "one to end"};
  }
  HR_TRY(auto child, Child::spawn(std::move(options)));
  const ChildId id = ++state_->last_id;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(id);
  if (::epoll_ctl(state_->events.get(), EPOLL_CTL_ADD, child.event_fd(), &event) != 0) {
    return errno_error(errno, "watching a child");
  }
  state_->children.emplace(id, std::move(child));
  return id;
}

std::vector<Supervisor::Ended> Supervisor::poll(Millis limit) {
  constexpr int kEvents = 64;
  epoll_event events[kEvents];
  const auto millis = static_cast<int>(std::clamp<int64_t>(limit.count(), 0, 3600 * 1000));
  const int count = ::epoll_wait(state_->events.get(), events, kEvents, millis);
  std::vector<Ended> out;
  for (int i = 0; i < count; ++i) {
    const auto id = static_cast<ChildId>(events[i].data.u64);
    const auto it = state_->children.find(id);
    if (it != state_->children.end() && it->second.pump()) {
      out.push_back({id, *it->second.exit()});
      state_->children.erase(it);  // closes its epoll, which leaves ours by itself
    }
  }
  return out;
}

std::vector<Supervisor::Ended> Supervisor::stop_all(std::string_view reason, Millis grace) {
  for (auto& [id, child] : state_->children) {
    child.begin_stop(reason, grace);
    if (grace.count() <= 0) {
      child.signal(SIGKILL);
    }
  }
  const base::Deadline deadline = base::Deadline::in(grace + Millis(5000));
  std::vector<Ended> out;
  while (!state_->children.empty() && !deadline.passed()) {
    for (Ended& ended : poll(std::chrono::duration_cast<Millis>(deadline.left()) + Millis(1))) {
      out.push_back(std::move(ended));
    }
  }
  return out;
}

}  // namespace headrace::proc
