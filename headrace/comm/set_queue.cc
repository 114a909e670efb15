// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "headrace/base/futex.h"
#include "headrace/comm/algo/exchange_plan.h"
#include "headrace/comm/algo/shm_small_internal.h"
#include "headrace/comm/set_queue_internal.h"
#include "headrace/comm/shm_transport_internal.h"
#include "headrace/comm/wire16_operation_internal.h"

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
      observer_->submitted(*work);
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
  observer_->ended(*work, FlightState::done);
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
  transport_->wake_idle();
  if (on_failure_) {
    on_failure_(cause);
  }
}

void SetQueue::call_others() { transport_->call_others(static_cast<uint32_t>(submitted() + 1)); }

bool SetQueue::called() {
  driving_.lock();
  const bool is_called = transport_->called(static_cast<uint32_t>(submitted()));
  driving_.unlock();
  return is_called;
}

void SetQueue::wait_called(base::Micros most, const std::function<bool()>& stop) {
  driving_.lock();
  transport_->look_for_failure();
  const uint32_t ticket = transport_->begin_idle();
  if (!transport_->called(static_cast<uint32_t>(submitted())) && !failure() && !stop()) {
    transport_->doze_idle(ticket, most);
  }
  transport_->end_idle();
  driving_.unlock();
}

std::optional<Error> SetQueue::failure() {
  {
    base::MutexLock lock(mutex_);
    if (failed_) {
      return failed_;
    }
  }
  if (auto failed = transport_->failure()) {
    return failed;
  }
  for (int rank = 0; rank < static_cast<int>(world_ranks_.size()); ++rank) {
    if (rank != rank_ && closed(rank)) {
      return Error{Errc::cancelled,
                   fmt::format("comm: rank {} has closed the process set", told(rank))};
    }
  }
  return std::nullopt;
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
  if (operation_ != nullptr && current_ != nullptr) {
    observer_->stuck(*current_, operation_->missing());  // when it failed
    observer_->moved(*current_);
  }
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
    observer_->ended(*work, FlightState::failed);
    work->complete(*cause);
  }
}

Step SetQueue::step() {
  if (failing_.load(std::memory_order_acquire)) {
    end_what_can();
    end_all();
    return Step::done;
  }
  if (current_ == nullptr) {
    current_ = first();
    if (current_ == nullptr) {
      return Step::done;
    }
    operation_ = start_operation(*transport_, current_->call, scratch_);
    observer_->started(*current_, operation_->algorithm());
  }
  const Step step = operation_->step();
  if (step != Step::stuck) {
    observer_->moved(*current_);
  }
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

ShmTransport* SetQueue::takes_now(std::optional<size_t> bytes) {
  ShmTransport* const shared = transport_->shared_memory();
  const bool takes = shared != nullptr && idle() && !failing_.load(std::memory_order_acquire) &&
                     bytes && *bytes <= shared->channel().geometry().small_bytes;
  return takes ? shared : nullptr;
}

SetQueue::Now SetQueue::try_at_once(const QuickReduce& what, SpinBudget spin, uint64_t& sequence) {
  // Some microseconds: longer waits may as well begin with words.
  constexpr uint32_t kLooksMost = 100;
  ShmTransport* const shared = takes_now(what.count * dtype_bytes(what.dtype));
  if (shared == nullptr || shared->state().others_done + 1 < shared->state().sequence) {
    return Now::not_begun;
  }
  sequence = take_number();
  const auto looks = static_cast<int>(spin.crowded ? 0 : std::min(kLooksMost, spin.turns));
  if (!try_quick(what, shared->channel(), shared->state(), looks)) {
    return Now::begun;
  }
  observer_->ended_at_once(what, sequence, what.count * dtype_bytes(what.dtype));
  return Now::ended;
}

uint64_t SetQueue::take_number() {
  const uint64_t direct = direct_.load(std::memory_order_relaxed);
  direct_.store(direct + 1, std::memory_order_relaxed);
  return direct + queued_.load(std::memory_order_relaxed);
}

SetQueue::Now SetQueue::try_now(Call& call, SpinBudget spin, std::chrono::microseconds timeout,
                                bool announced, uint64_t& sequence,
                                std::shared_ptr<WorkState>& late) {
  const auto bytes = one_piece_bytes(call);
  ShmTransport* const shared = announced                     ? transport_->shared_memory()
                               : call.wire16 == Wire16::none ? takes_now(bytes)
                                                             : nullptr;
  if (shared == nullptr) {
    return Now::not_begun;
  }
  if (!announced) {
    sequence = take_number();
  }
  ShmSmall operation(call, shared->channel(), shared->state(), *bytes, true);
  if (announced) {
    operation.set_announced();
  }
  Step now = operation.step();
  Patience patience(spin);
  while (now == Step::stuck && patience.pass(shared->shares_core_with(operation.missing()))) {
    now = operation.step();
  }
  if (now == Step::done) {
    observer_->ended_at_once(call, sequence, *bytes, operation.algorithm());
    return Now::ended;
  }
  late = std::make_shared<WorkState>();
  late->call = std::move(call);
  late->deadline = base::Deadline::in(timeout);
  late->sequence = sequence;
  observer_->begun_late(*late, operation.algorithm());
  current_ = late;
  auto moved = std::make_unique<ShmSmall>(operation);
  moved->set_call(late->call);
  moved->ring_itself();
  operation_ = std::move(moved);
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

void SetQueue::note_stuck() {
  if (current_ != nullptr) {
    observer_->stuck(*current_, operation_->missing());
  }
}

void SetQueue::ring_ended() const { transport_->shared_memory()->channel().ring_others(Fence::no); }

bool SetQueue::waits_on_core() const {
  return operation_ != nullptr && transport_->shares_core_with(operation_->missing());
}

void SetQueue::look_for_failure() {
  transport_->look_for_failure();
  std::optional<Error> failed = transport_->failure();
  const bool of_current = !failed && current_ != nullptr;
  if (of_current) {
    waits_for_.store(operation_->missing(), std::memory_order_relaxed);
    failed = failure_of_current();
  }
  if (!failed) {
    return;
  }
  end_what_can();
  if (of_current && current_ == nullptr) {
    return;  // it was not too late: whoever looks late has slept longer than it took
  }
  set_failed(*failed);
  end_all();
}

/// Others may have failed at an operation that comes after the one under way here, which has all
/// it needs then and ends well, as it did on them. Not large ones: whoever tells of a failure is
/// not to be held up by copying.
void SetQueue::end_what_can() {
  constexpr uint64_t kBytesMost = uint64_t{1} << 20;
  if (current_ == nullptr || operation_ == nullptr) {
    return;
  }
  const MovedBytes bytes = moved_bytes_of(current_->call, rank_);
  if (bytes.in + bytes.out > kBytesMost) {
    return;
  }
  Step now = Step::moved;
  while (now == Step::moved && current_ != nullptr && operation_ != nullptr) {
    now = operation_->step();
  }
  if (now == Step::done && current_ != nullptr) {
    end_first();
  }
}

std::string SetQueue::absent_text() const {
  std::string text;
  for (const int rank : operation_->absent()) {
    text += fmt::format("{}rank {}", text.empty() ? "" : ", ", told(rank));
  }
  return text.empty() ? "others" : text;
}

std::optional<Error> SetQueue::failure_of_current() {
  const WorkState& work = *current_;
  const int missing = operation_->missing();
  const auto text = [&work] {
    const Call& call = work.call;
    return fmt::format("comm: {} (operation {})",
                       describe(call.kind, call.op_as_told(), call.dtype, call.count, call.root,
                                call.name, call.wire16),
                       work.sequence);
  };
  if (missing >= 0 && closed(missing)) {
    // What it has put before closing is seen by the step after this look.
    if (std::exchange(closed_seen_, missing) == missing) {
      return Error{Errc::cancelled,
                   fmt::format("{}: rank {} has closed the process set", text(), told(missing))};
    }
  }
  if (work.deadline.passed()) {
    return Error{Errc::timeout, fmt::format("{} reached its time limit: waited for {}{}", text(),
                                            absent_text(), observer_->advice())};
  }
  return std::nullopt;
}

void SetQueue::close() {
  const bool pending = !idle();
  if (pending) {
    fail({Errc::cancelled, fmt::format("comm: rank {} has closed the process set", told(rank_))});
  }
  driving_.lock();  // whoever drives it ends soon: nothing is left to do
  transport_->leave();
  driving_.unlock();
}

void SetQueue::fail(const Error& error) {
  set_failed(error);
  transport_->wake();
  if (driving_.try_lock()) {
    end_what_can();
    end_all();
    driving_.unlock();
  }
}

void SetQueue::hear(const Error& error) {
  transport_->hear(error);
  fail(error);
}

void SetQueue::run(const WorkState& work, base::Deadline deadline, SpinBudget spin) {
  Patience patience(spin);
  while (!work.done()) {
    Step now = step();
    if (now != Step::stuck) {
      patience.renew();
    } else if (!patience.pass(waits_on_core())) {
      const uint32_t ticket = transport_->begin_sleep();
      now = step();
      if (now == Step::stuck) {
        base::Micros most = std::min(kSleepMost, deadline.left());
        if (current_ != nullptr) {
          most = std::min(most, current_->deadline.left());
        }
        note_stuck();
        transport_->doze(ticket, most);
      }
      transport_->end_sleep();
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
