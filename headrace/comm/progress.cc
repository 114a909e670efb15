// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "headrace/base/futex.h"
#include "headrace/comm/progress_internal.h"

namespace headrace::comm {

namespace {

constexpr base::Micros kBellMost = std::chrono::milliseconds(50);
constexpr base::Micros kIdleMost = std::chrono::hours(1);  // notify() wakes; no tick

}  // namespace

Progress::Progress(NodeBells bells, SpinBudget spin)
    : bells_(bells), spin_(spin), thread_("hr-comm", [this] { run(); }) {}

Progress::~Progress() {
  stop_.store(true);
  notify();
}

void Progress::add(std::shared_ptr<SetQueue> queue) {
  std::optional<Error> failed;
  {
    base::MutexLock lock(mutex_);
    queues_.push_back(queue);
    if (auto early = early_.extract(queue->id())) {
      failed = std::move(early.mapped());
      std::erase(early_order_, queue->id());
    }
    for (const int rank : queue->world_ranks()) {
      if (const auto dead = dead_.find(rank); !failed && dead != dead_.end()) {
        failed = dead->second;
      }
    }
  }
  if (failed) {
    queue->hear(*failed);
  }
}

void Progress::remove(const SetQueue* queue) {
  base::MutexLock lock(mutex_);
  std::erase_if(queues_, [queue](const auto& one) { return one.get() == queue; });
}

void Progress::notify() {
  notices_.fetch_add(1, std::memory_order_seq_cst);
  base::futex_wake_all(notices_);
  if (at_bell_.load(std::memory_order_seq_cst)) {
    bells_.ring_self();
  }
}

std::vector<std::shared_ptr<SetQueue>> Progress::queues() {
  base::MutexLock lock(mutex_);
  return queues_;
}

void Progress::flush_metrics() {
  for (const auto& queue : queues()) {
    queue->observer().flush();
  }
}

void Progress::fail_sets_of(int world_rank, const Error& error) {
  if (world_rank >= 0) {
    base::MutexLock lock(mutex_);
    dead_.insert({world_rank, error});
  }
  for (const auto& queue : queues()) {
    const auto ranks = queue->world_ranks();
    if (world_rank < 0 || std::find(ranks.begin(), ranks.end(), world_rank) != ranks.end()) {
      queue->fail(error);
    }
  }
  bells_.ring_self();
}

void Progress::fail_set(uint64_t id, const Error& error) {
  constexpr size_t kEarlyMost = 256;
  std::shared_ptr<SetQueue> found;
  {
    base::MutexLock lock(mutex_);
    const auto place = std::find_if(queues_.begin(), queues_.end(),
                                    [id](const auto& one) { return one->id() == id; });
    if (place != queues_.end()) {
      found = *place;
    } else if (early_.insert({id, error}).second) {
      early_order_.push_back(id);
      if (early_order_.size() > kEarlyMost) {  // of a set that is closed here, most likely
        early_.erase(early_order_.front());
        early_order_.pop_front();
      }
    }
  }
  if (found != nullptr) {
    found->hear(error);
    bells_.ring_self();
  }
}

Progress::Round Progress::round(bool before_sleep) {
  Round all = Round::idle;
  for (const auto& queue : queues()) {
    // Whoever holds it drives it, and calls notify() if it leaves something undone.
    if (queue->idle() || !queue->driving().try_lock()) {
      continue;
    }
    const Step step = queue->step();
    if (step == Step::stuck) {
      if (before_sleep) {
        queue->note_stuck();
        queue->look_for_failure();
        queue->ring_bell_once();
      }
      all = std::max(all, queue->waits_on_core() ? Round::stuck_on_core : Round::stuck);
    } else if (step != Step::done) {
      all = Round::moved;
    }
    queue->driving().unlock();
  }
  return all;
}

void Progress::run() {
  Patience patience(spin_);  // knows from operation to operation how long waits are
  while (!stop_.load()) {
    const uint32_t notices = notices_.load(std::memory_order_seq_cst);
    Round now = round(false);
    if (now == Round::idle) {
      patience.renew();
      base::futex_wait(notices_, notices, kIdleMost);
    } else if (now == Round::moved) {
      patience.renew();
    } else if (!patience.pass(now == Round::stuck_on_core)) {
      const uint32_t ticket = bells_.begin_sleep();
      at_bell_.store(true, std::memory_order_seq_cst);
      now = round(true);
      const bool stuck = now == Round::stuck || now == Round::stuck_on_core;
      if (stuck && notices_.load(std::memory_order_seq_cst) == notices) {
        bells_.doze(ticket, kBellMost);
      }
      at_bell_.store(false, std::memory_order_seq_cst);
      bells_.end_sleep();
      if (now == Round::moved) {
        patience.renew();
      }
    }
  }
}

}  // namespace headrace::comm
