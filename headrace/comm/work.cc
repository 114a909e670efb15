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
  bool slept = false;
  {
    base::MutexLock lock(mutex);
    if (done()) {
      return;
    }
    outcome = std::move(how);
    then.swap(callbacks);
    slept = status.exchange(1, std::memory_order_acq_rel) == 2;
  }
  if (slept) {
    base::futex_wake_all(status);
  }
  for (const auto& one : then) {
    one(outcome_when_done());
  }
}

bool Work::done() const { return state_->done(); }

Result<void> Work::wait(std::optional<std::chrono::milliseconds> limit) const {
  if (state_->done()) {
    return state_->outcome_when_done();
  }
  const auto deadline = limit ? base::Deadline::in(*limit) : base::Deadline::never();
  while (!state_->done()) {
    if (state_->mark.forked()) {
      return forked_error();
    }
    if (deadline.passed()) {
      const Call& call = state_->call;
      return Error{Errc::timeout,
                   fmt::format("comm: {} (operation {}) is not done after {} ms; it goes on",
                               describe(call.kind, call.op_as_told(), call.dtype, call.count,
                                        call.root, call.name, call.wire16),
                               state_->sequence, limit->count())};
    }
    uint32_t under_way = 0;
    state_->status.compare_exchange_strong(under_way, 2);
    base::futex_wait(state_->status, 2, std::min(kSleepMost, deadline.left()));
  }
  return state_->outcome_when_done();
}

void Work::on_done(std::function<void(const Result<void>&)> then) const {
  if (state_->mark.forked()) {
    return;  // whoever held the mutex when it was forked does not run here
  }
  {
    base::MutexLock lock(state_->mutex);
    if (!state_->done()) {
      state_->callbacks.push_back(std::move(then));
      return;
    }
  }
  then(state_->outcome_when_done());
}

Work Work::ended(uint64_t sequence) {
  // One for all: nothing of it is asked for but that it is done. Never destroyed, for works may
  // be used until the process ends.
  static WorkState* const state = [] {
    auto* made = new WorkState();
    made->complete({});
    return made;
  }();
  Work work(std::shared_ptr<WorkState>(std::shared_ptr<WorkState>(), state));  // counts nothing
  work.sequence_ = sequence;
  return work;
}

int Work::source() const { return state_->source.load(std::memory_order_acquire); }
uint64_t Work::sequence() const { return sequence_.value_or(state_->sequence); }

}  // namespace headrace::comm
