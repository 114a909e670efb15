// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/base/futex.h"
#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/algo/shm_small_internal.h"
#include "headrace/comm/set_queue_internal.h"

namespace headrace::comm {

namespace {

// A publisher wakes us; deadlines and failures told by others are seen at least this often.
constexpr base::Micros kSleepMost = std::chrono::milliseconds(50);

}  // namespace

bool SetQueue::push(const std::shared_ptr<WorkState>& work) {
  std::optional<Error> failed;
  {
    base::MutexLock lock(mutex_);
    failed = failed_;
    if (!failed) {
      const uint64_t queued = queued_.load(std::memory_order_relaxed);
      work->sequence = queued + direct_.load(std::memory_order_relaxed);
      queued_.store(queued + 1, std::memory_order_relaxed);
      queue_.push_back(work);
      pending_.store(static_cast<uint32_t>(queue_.size()), std::memory_order_release);
    }
  }
  if (failed) {
    work->complete(*std::move(failed));
    return false;
  }
  return true;
}

std::shared_ptr<WorkState> SetQueue::first() {
  base::MutexLock lock(mutex_);
  return queue_.empty() ? nullptr : queue_.front();
}

void SetQueue::end_first() {
  operation_.reset();
  closed_seen_ = -1;
  const auto work = std::exchange(current_, nullptr);
  {
    base::MutexLock lock(mutex_);
    queue_.pop_front();
    pending_.store(static_cast<uint32_t>(queue_.size()), std::memory_order_release);
  }
  work->complete({});
}

void SetQueue::set_failed(const Error& error) {
  const Error cause = spread_failure(channel_, error.origin() ? error.origin()->rank : -1, error);
  {
    base::MutexLock lock(mutex_);
    if (!failed_) {
      failed_ = cause;
      failing_.store(true, std::memory_order_release);
    }
  }
  ring_calls();
}

void SetQueue::ring_calls() const {
  NodeBells::fence();
  for (int rank = 0; rank < channel_.ranks(); ++rank) {
    ring_bell(channel_.call_bell(rank), false);
  }
}

void SetQueue::call_others() {
  const uint64_t next = submitted() + 1;
  channel_.mine().called.store(static_cast<uint32_t>(next), std::memory_order_release);
  ring_calls();
}

bool SetQueue::called() const {
  const auto ours = static_cast<uint32_t>(submitted());
  for (int rank = 0; rank < channel_.ranks(); ++rank) {
    const uint32_t theirs = channel_.progress(rank).called.load(std::memory_order_acquire);
    if (rank != channel_.rank() && static_cast<int32_t>(theirs - ours) > 0) {
      return true;
    }
  }
  return false;
}

void SetQueue::wait_called(base::Micros most, const std::function<bool()>& stop) {
  BellLine& bell = channel_.call_bell(channel_.rank());
  const uint32_t ticket = begin_sleep(bell);
  if (!called() && !failure() && !stop()) {
    doze(bell, ticket, most);
  }
  end_sleep(bell);
}

std::optional<Error> SetQueue::failure() {
  {
    base::MutexLock lock(mutex_);
    if (failed_) {
      return failed_;
    }
  }
  if (auto failed = failure_of(channel_)) {
    return failed;
  }
  for (int rank = 0; rank < channel_.ranks(); ++rank) {
    if (closed(rank)) {
      return Error{Errc::cancelled, fmt::format("comm: rank {} has closed the process set", rank)};
    }
  }
  return std::nullopt;
}

void SetQueue::end_all() {
  operation_.reset();
  current_.reset();
  std::deque<std::shared_ptr<WorkState>> ended;
  std::optional<Error> cause;
  {
    base::MutexLock lock(mutex_);
    ended.swap(queue_);
    cause = failed_;
    pending_.store(0, std::memory_order_release);
  }
  for (const auto& work : ended) {
    work->complete(*cause);
  }
}

Step SetQueue::step() {
  if (failing_.load(std::memory_order_acquire)) {
    end_all();
    return Step::done;
  }
  if (current_ == nullptr) {
    current_ = first();
    if (current_ == nullptr) {
      return Step::done;
    }
    operation_ = start_shm_operation(current_->call, channel_, state_);
  }
  const Step step = operation_->step();
  if (step == Step::done) {
    end_first();
    return Step::moved;
  }
  if (step == Step::failed) {
    set_failed(operation_->error());
    end_all();
  }
  return step;
}

SetQueue::Now SetQueue::try_now(Call& call, SpinBudget spin, std::chrono::microseconds timeout,
                                uint64_t& sequence, std::shared_ptr<WorkState>& late) {
  const auto bytes = one_piece_bytes(call);
  if (!idle() || failing_.load(std::memory_order_acquire) || !bytes ||
      *bytes > channel_.geometry().small_bytes) {
    return Now::not_begun;
  }
  const uint64_t direct = direct_.load(std::memory_order_relaxed);
  sequence = direct + queued_.load(std::memory_order_relaxed);
  direct_.store(direct + 1, std::memory_order_relaxed);
  ShmSmall operation(call, channel_, state_, *bytes);
  Step now = operation.step();
  Patience patience(spin);
  while (now == Step::stuck && patience.pass(channel_.shares_core_with(operation.missing()))) {
    now = operation.step();
  }
  if (now == Step::done) {
    return Now::ended;
  }
  late = std::make_shared<WorkState>();
  late->call = std::move(call);
  late->deadline = base::Deadline::in(timeout);
  late->sequence = sequence;
  current_ = late;
  operation_ = std::make_unique<ShmSmall>(operation);
  operation_->set_call(late->call);
  {
    base::MutexLock lock(mutex_);
    queue_.push_front(late);
    pending_.store(static_cast<uint32_t>(queue_.size()), std::memory_order_release);
  }
  if (now == Step::failed) {
    set_failed(operation_->error());
    end_all();
  }
  return Now::begun;
}

bool SetQueue::waits_on_core() const {
  return operation_ != nullptr && channel_.shares_core_with(operation_->missing());
}

void SetQueue::look_for_failure() {
  std::optional<Error> failed = failure_of(channel_);
  if (!failed && current_ != nullptr) {
    waits_for_.store(operation_->missing(), std::memory_order_relaxed);
    failed = failure_of_current();
  }
  if (failed) {
    set_failed(*failed);
    end_all();
  }
}

std::optional<Error> SetQueue::failure_of_current() {
  const WorkState& work = *current_;
  const int missing = operation_->missing();
  const auto text = [&work] {
    const Call& call = work.call;
    return fmt::format("comm: {} (operation {})",
                       describe(call.kind, call.op, call.dtype, call.count, call.root, call.name),
                       work.sequence);
  };
  if (missing >= 0 && closed(missing)) {
    // What it has put before closing is seen by the step after this look.
    if (std::exchange(closed_seen_, missing) == missing) {
      return Error{Errc::cancelled,
                   fmt::format("{}: rank {} has closed the process set", text(), missing)};
    }
  }
  if (work.deadline.passed()) {
    return Error{Errc::timeout,
                 fmt::format("{} reached its time limit: waited for rank {}", text(), missing)};
  }
  return std::nullopt;
}

void SetQueue::close() {
  const bool pending = !idle();
  channel_.mine().closed.store(1, std::memory_order_release);
  channel_.ring_others();
  ring_calls();
  if (pending) {
    fail({Errc::cancelled,
          fmt::format("comm: rank {} has closed the process set", channel_.rank())});
  }
}

void SetQueue::fail(const Error& error) {
  set_failed(error);
  channel_.bells().ring_self();
  if (driving_.try_lock()) {
    end_all();
    driving_.unlock();
  }
}

void SetQueue::run(const WorkState& work, base::Deadline deadline, SpinBudget spin) {
  Patience patience(spin);
  while (!work.done()) {
    Step now = step();
    if (now != Step::stuck) {
      patience.renew();
    } else if (!patience.pass(waits_on_core())) {
      const uint32_t ticket = channel_.bells().begin_sleep();
      now = step();
      if (now == Step::stuck) {
        base::Micros most = std::min(kSleepMost, deadline.left());
        if (current_ != nullptr) {
          most = std::min(most, current_->deadline.left());
        }
        channel_.bells().doze(ticket, most);
      }
      channel_.bells().end_sleep();
      look_for_failure();
      if (deadline.passed()) {
        return;
      }
      if (now != Step::stuck) {
        patience.renew();
      }
    }
  }
}

}  // namespace headrace::comm
