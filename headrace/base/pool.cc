// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/pool.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "headrace/base/thread.h"

namespace headrace::base {

namespace {

using Task = std::function<void()>;

constexpr auto kIdle = std::chrono::seconds(60);  // a bound on each wait; waiting goes on after it

/// Tasks of one thread: the owner takes the newest, thieves the oldest.
struct Deque {
  Mutex mu;  // leaf
  std::deque<Task> tasks HR_GUARDED_BY(mu);

  void push(Task task) {
    const MutexLock lock(mu);
    tasks.push_back(std::move(task));
  }
  bool take(bool newest, Task* out) {
    const MutexLock lock(mu);
    if (tasks.empty()) {
      return false;
    }
    if (newest) {
      *out = std::move(tasks.back());
      tasks.pop_back();
    } else {
      *out = std::move(tasks.front());
      tasks.pop_front();
    }
    return true;
  }
};

/// One for_each in flight. Shared by its caller and the helper tasks, because a helper may start
/// after the call has returned (it then finds nothing left).
struct Loop {
  std::vector<int64_t> order;  // empty: index order
  int64_t count = 0;
  const std::function<void(int64_t)>* body = nullptr;  // valid while an index is claimed
  const std::function<bool()>* stop = nullptr;

  Mutex mu;  // leaf
  CondVar idle;
  int64_t next HR_GUARDED_BY(mu) = 0;
  int64_t running HR_GUARDED_BY(mu) = 0;

  /// Claim the next index; false when none is left.
  bool claim(int64_t* index) {
    const MutexLock lock(mu);
    if (next >= count) {
      return false;
    }
    *index = order.empty() ? next : order[static_cast<size_t>(next)];
    ++next;
    ++running;
    return true;
  }
  void finish(bool stopped) {
    {
      const MutexLock lock(mu);
      --running;
      if (stopped) {
        next = count;
      }
    }
    idle.notify_all();
  }
  void run() {
    int64_t index = 0;
    while (claim(&index)) {
      const bool stopped = *stop && (*stop)();
      if (!stopped) {
        (*body)(index);
      }
      finish(stopped);
    }
  }
  void wait() {
    const MutexLock lock(mu);
    while (next < count || running > 0) {
      idle.wait_for(mu, kIdle, [this]() HR_REQUIRES(mu) { return next >= count && running == 0; });
    }
  }
};

}  // namespace

struct Pool::State {
  State(int count, int64_t bound)
      : deques(static_cast<size_t>(count)), queue_max(std::max<int64_t>(1, bound)) {}

  void work(int self);
  /// Wait for a task to be there and reserve it; false when the pool closes and none is left.
  bool reserve();
  Task fetch(int self);

  std::vector<Deque> deques;
  const int64_t queue_max;
  std::atomic<uint64_t> turn{
      0};  // which deque the next outside task goes to; order does not matter

  Mutex mu;  // leaf
  CondVar filled;
  CondVar drained;
  int64_t queued HR_GUARDED_BY(mu) = 0;  // tasks in the deques that nobody has reserved
  bool closing HR_GUARDED_BY(mu) = false;
  std::vector<Thread> threads;  // last: they stop before what they use goes
};

namespace {

/// Which pool and deque the current thread works for.
struct Self {
  const void* pool = nullptr;
  int index = 0;
};
thread_local Self self_of_thread;

}  // namespace

bool Pool::State::reserve() {
  {
    const MutexLock lock(mu);
    while (queued == 0 && !closing) {
      filled.wait_for(mu, kIdle, [this]() HR_REQUIRES(mu) { return queued > 0 || closing; });
    }
    if (queued == 0) {
      return false;
    }
    --queued;
  }
  drained.notify_one();
  return true;
}

Task Pool::State::fetch(int self) {
  Task task;
  // One task per reservation lies in some deque; a scan can miss it only while another thread
  // takes and puts, so this ends.
  for (;;) {
    if (deques[static_cast<size_t>(self)].take(true, &task)) {
      return task;
    }
    const int count = static_cast<int>(deques.size());
    for (int step = 1; step < count; ++step) {
      if (deques[static_cast<size_t>((self + step) % count)].take(false, &task)) {
        return task;
      }
    }
  }
}

void Pool::State::work(int self) {
  self_of_thread = {this, self};
  while (reserve()) {
    fetch(self)();
  }
}

Pool::Pool(int threads, int64_t queue_max) {
  const int count = threads > 0 ? threads : usable_cores();
  state_ = std::make_unique<State>(count, queue_max);
  state_->threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    state_->threads.emplace_back("hr-pool-" + std::to_string(i),
                                 [state = state_.get(), i] { state->work(i); });
  }
}

Pool::~Pool() {
  {
    const MutexLock lock(state_->mu);
    state_->closing = true;
  }
  state_->filled.notify_all();
}

int Pool::threads() const { return static_cast<int>(state_->deques.size()); }

void Pool::submit(std::function<void()> task) {
  State& state = *state_;
  const bool inside = self_of_thread.pool == &state;
  bool full = false;
  {
    const MutexLock lock(state.mu);
    full = state.queued >= state.queue_max;
    while (full && !inside) {
      full = !state.drained.wait_for(state.mu, kIdle, [&state]() HR_REQUIRES(state.mu) {
        return state.queued < state.queue_max;
      });
    }
  }
  if (full) {
    task();  // a pool thread that waited for room could wait for itself
    return;
  }
  // Submitters that saw room at the same moment may pass the bound by their number.
  const uint64_t turn = state.turn.fetch_add(1, std::memory_order_relaxed);
  const size_t where =
      inside ? static_cast<size_t>(self_of_thread.index) : turn % state.deques.size();
  state.deques[where].push(std::move(task));
  {
    const MutexLock lock(state.mu);
    ++state.queued;
  }
  state.filled.notify_one();
}

namespace {

/// Run `loop` on all threads of `pool`. A caller that is one of them takes part, because its thread
/// would be missing otherwise; any other only waits, so that no more threads run than the pool has.
void run_on(Pool& pool, bool inside, const std::shared_ptr<Loop>& loop,
            const std::function<void(int64_t)>& body, const std::function<bool()>& stop) {
  loop->body = &body;
  loop->stop = &stop;
  const int64_t helpers = std::min<int64_t>(pool.threads(), loop->count) - (inside ? 1 : 0);
  for (int64_t i = 0; i < helpers; ++i) {
    pool.submit([loop] { loop->run(); });
  }
  if (inside) {
    loop->run();
  }
  loop->wait();
}

}  // namespace

void Pool::for_each_by_cost(std::span<const double> costs, const std::function<void(int64_t)>& body,
                            const std::function<bool()>& stop) {
  const auto loop = std::make_shared<Loop>();
  loop->count = std::ssize(costs);
  loop->order.resize(costs.size());
  std::iota(loop->order.begin(), loop->order.end(), int64_t{0});
  const auto cost = [&costs](int64_t i) {
    const double value = costs[static_cast<size_t>(i)];
    return std::isnan(value) ? INFINITY : value;  // unknown: better early than last
  };
  std::stable_sort(loop->order.begin(), loop->order.end(),
                   [&cost](int64_t a, int64_t b) { return cost(a) > cost(b); });
  run_on(*this, self_of_thread.pool == state_.get(), loop, body, stop);
}

void Pool::for_each(int64_t count, const std::function<void(int64_t)>& body,
                    const std::function<bool()>& stop) {
  const auto loop = std::make_shared<Loop>();
  loop->count = count;
  run_on(*this, self_of_thread.pool == state_.get(), loop, body, stop);
}

}  // namespace headrace::base
