// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/base/futex.h"
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
      work->sequence = submitted_++;
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
  const Error cause = transport_->spread(error);
  {
    base::MutexLock lock(mutex_);
    if (failed_) {
      return;
    }
    failed_ = cause;
    failing_.store(true, std::memory_order_release);
  }
  if (on_failure_) {
    on_failure_(cause);
  }
}

std::optional<Error> SetQueue::failed() {
  if (driving_.try_lock()) {  // else whoever has it looks
    look_for_failure();
    driving_.unlock();
  }
  base::MutexLock lock(mutex_);
  return failed_;
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
    operation_ = transport_->start(current_->call);
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

void SetQueue::look_for_failure() {
  std::optional<Error> failed = transport_->failure();
  if (!failed && current_ != nullptr) {
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
  if (pending) {
    fail({Errc::cancelled, fmt::format("comm: rank {} has closed the process set", rank_)});
  }
  base::MutexLock lock(driving_);  // whoever drives it ends soon: nothing is left to do
  transport_->leave();
}

void SetQueue::fail(const Error& error) {
  set_failed(error);
  transport_->wake();
  if (driving_.try_lock()) {
    end_all();
    driving_.unlock();
  }
}

void SetQueue::hear(const Error& error) {
  transport_->hear(error);
  fail(error);
}

void SetQueue::run(const WorkState& work, base::Deadline deadline, SpinBudget spin) {
  uint32_t turns = 0;
  while (!work.done()) {
    Step now = step();
    if (now == Step::stuck && ++turns > spin.turns) {
      const uint32_t ticket = transport_->begin_sleep();
      now = step();
      if (now == Step::stuck) {
        base::Micros most = std::min(kSleepMost, deadline.left());
        if (current_ != nullptr) {
          most = std::min(most, current_->deadline.left());
        }
        transport_->doze(ticket, most);
      }
      transport_->end_sleep();
      look_for_failure();
      if (deadline.passed()) {
        return;
      }
    }
    if (now == Step::stuck) {
      base::spin_pause();
    } else {
      turns = 0;
    }
  }
}

}  // namespace headrace::comm
