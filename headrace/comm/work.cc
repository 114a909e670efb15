// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/base/futex.h"
#include "headrace/comm/work_internal.h"

namespace headrace::comm {

namespace {

// Nobody forgets to wake; the bound is there so that no wait is without one.
constexpr base::Micros kSleepMost = std::chrono::seconds(1);

}  // namespace

void WorkState::complete(Result<void> how) {
  std::vector<std::function<void(const Result<void>&)>> then;
  {
    base::MutexLock lock(mutex);
    if (done()) {
      return;
    }
    outcome = std::move(how);
    then.swap(callbacks);
    status.store(1, std::memory_order_release);
  }
  base::futex_wake_all(status);
  for (const auto& one : then) {
    one(outcome_when_done());
  }
}

bool Work::done() const { return state_->done(); }

Result<void> Work::wait(std::optional<std::chrono::milliseconds> limit) const {
  const auto deadline = limit ? base::Deadline::in(*limit) : base::Deadline::never();
  while (!state_->done()) {
    if (deadline.passed()) {
      const Call& call = state_->call;
      return Error{
          Errc::timeout,
          fmt::format("comm: {} (operation {}) is not done after {} ms; it goes on",
                      describe(call.kind, call.op, call.dtype, call.count, call.root, call.name),
                      state_->sequence, limit->count())};
    }
    base::futex_wait(state_->status, 0, std::min(kSleepMost, deadline.left()));
  }
  return state_->outcome_when_done();
}

void Work::on_done(std::function<void(const Result<void>&)> then) const {
  {
    base::MutexLock lock(state_->mutex);
    if (!state_->done()) {
      state_->callbacks.push_back(std::move(then));
      return;
    }
  }
  then(state_->outcome_when_done());
}

int Work::source() const { return state_->source.load(std::memory_order_acquire); }
uint64_t Work::sequence() const { return state_->sequence; }

}  // namespace headrace::comm
