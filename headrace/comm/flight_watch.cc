// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "headrace/base/log.h"
#include "headrace/comm/flight_watch_internal.h"

namespace headrace::comm {

namespace {

// What the handler may touch: no lock, no memory that goes away. The descriptor is never closed.
std::atomic<uint32_t> signals = 0;
std::atomic<int> signal_event = -1;
std::atomic<pid_t> signal_process = -1;
static_assert(std::atomic<int>::is_always_lock_free);

/// A child of fork() has the handler and the descriptor too, and must not speak for its parent.
void on_signal(int) {
  const int error = errno;
  if (::getpid() == signal_process.load(std::memory_order_relaxed)) {
    signals.fetch_add(1, std::memory_order_relaxed);
    const uint64_t one = 1;
    static_cast<void>(::write(signal_event.load(std::memory_order_relaxed), &one, sizeof one));
  }
  errno = error;
}

/// Take SIGUSR2 if it would end the process.
void take_signal() {
  struct sigaction now = {};
  if (::sigaction(SIGUSR2, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 ||
      now.sa_handler != SIG_DFL) {
    return;
  }
  struct sigaction ours = {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGUSR2, &ours, nullptr);
}

}  // namespace

FlightWatch& FlightWatch::instance() {
  static std::atomic<FlightWatch*> watch = nullptr;
  FlightWatch* there = watch.load(std::memory_order_acquire);
  while (there == nullptr || there->mark_.forked()) {
    auto* made = new FlightWatch();
    if (watch.compare_exchange_strong(there, made, std::memory_order_acq_rel)) {
      return *made;
    }
    delete made;
  }
  return *there;
}

FlightWatch::FlightWatch() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void FlightWatch::add(std::shared_ptr<FlightRecorder> recorder, bool takes_signal) {
  if (!event_.valid()) {
    base::log_warning("comm: SIGUSR2 and failures write no file: no eventfd can be made");
    return;
  }
  const base::MutexLock threads(threads_);
  signal_event.store(event_.get(), std::memory_order_relaxed);
  signal_process.store(::getpid(), std::memory_order_relaxed);
  {
    const base::MutexLock lock(mutex_);
    if (recorders_.empty()) {
      signals_seen_ = signals.load(std::memory_order_relaxed);  // there was nothing to write
    }
    recorders_.push_back(std::move(recorder));
  }
  if (!thread_.joinable()) {
    stop_.store(false);
    thread_ = base::Thread("hr-flight", [this] { run(); });
  }
  if (takes_signal) {
    take_signal();
  }
}

void FlightWatch::remove(const FlightRecorder* recorder) {
  const base::MutexLock threads(threads_);
  run_tasks();
  bool is_last = false;
  {
    const base::MutexLock lock(mutex_);
    std::erase_if(recorders_, [recorder](const auto& one) { return one.get() == recorder; });
    is_last = recorders_.empty();
  }
  if (is_last && thread_.joinable()) {
    stop_.store(true);
    wake();
    thread_.join();
  }
}

std::vector<std::string> FlightWatch::texts() {
  std::vector<std::shared_ptr<FlightRecorder>> all;
  {
    const base::MutexLock lock(mutex_);
    all = recorders_;
  }
  std::vector<std::string> texts;
  for (const auto& one : all) {
    texts.push_back(one->text("asked for"));
  }
  return texts;
}

void FlightWatch::wake() const {
  const uint64_t one = 1;
  static_cast<void>(::write(event_.get(), &one, sizeof one));
}

void FlightWatch::write_soon(const FlightRecorder* recorder, std::string reason) {
  {
    const base::MutexLock lock(mutex_);
    const auto found = std::find_if(recorders_.begin(), recorders_.end(),
                                    [&](const auto& one) { return one.get() == recorder; });
    const bool is_asked = std::any_of(tasks_.begin(), tasks_.end(),
                                      [&](const Task& one) { return one.first.get() == recorder; });
    if (found == recorders_.end() || is_asked) {
      return;  // what is asked for already tells of this too
    }
    tasks_.emplace_back(*found, std::move(reason));
  }
  wake();
}

std::vector<FlightWatch::Task> FlightWatch::take_tasks() {
  const base::MutexLock lock(mutex_);
  std::vector<Task> taken = std::exchange(tasks_, {});
  const uint32_t seen = signals.load(std::memory_order_relaxed);
  if (std::exchange(signals_seen_, seen) != seen) {
    for (const auto& one : recorders_) {
      taken.emplace_back(one, "SIGUSR2");
    }
  }
  return taken;
}

void FlightWatch::run_tasks() {
  const base::MutexLock writing(writing_);
  for (const auto& [recorder, reason] : take_tasks()) {
    if (files_ < kFilesMost) {
      recorder->write(reason, ++files_);
    } else if (files_++ == kFilesMost) {
      base::log_warning(
          fmt::format("comm: this process has written {} files of what it did last, "
                      "and writes no more",
                      kFilesMost));
    }
  }
}

void FlightWatch::run() {
  while (!stop_.load()) {
    pollfd event = {event_.get(), POLLIN, 0};
    if (::poll(&event, 1, -1) < 0) {
      continue;  // a signal; nothing else can happen to it
    }
    uint64_t count = 0;
    static_cast<void>(::read(event_.get(), &count, sizeof count));
    run_tasks();
  }
}

}  // namespace headrace::comm
