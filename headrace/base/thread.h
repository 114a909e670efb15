// SPDX-License-Identifier: Apache-2.0
// Threads with a name and an owner, mutexes that clang's thread-safety analysis understands.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "headrace/base/export.h"

#if defined(__clang__)
#define HR_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define HR_THREAD_ATTRIBUTE(x)
#endif
#define HR_CAPABILITY(x) HR_THREAD_ATTRIBUTE(capability(x))
#define HR_SCOPED_CAPABILITY HR_THREAD_ATTRIBUTE(scoped_lockable)
#define HR_GUARDED_BY(x) HR_THREAD_ATTRIBUTE(guarded_by(x))
#define HR_REQUIRES(...) HR_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define HR_EXCLUDES(...) HR_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define HR_ACQUIRE(...) HR_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define HR_RELEASE(...) HR_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define HR_NO_THREAD_SAFETY_ANALYSIS HR_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace headrace::base {

class HR_CAPABILITY("mutex") Mutex {
 public:
  void lock() HR_ACQUIRE() { mutex_.lock(); }
  bool try_lock() HR_THREAD_ATTRIBUTE(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() HR_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class HR_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HR_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() HR_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Condition variable over Mutex. Every wait has a bound.
class CondVar {
 public:
  /// Wait until `ready()` or `timeout`; true when ready. The caller holds `mutex`.
  template <typename Ready>
  bool wait_for(Mutex& mutex, std::chrono::microseconds timeout, Ready ready)
      HR_REQUIRES(mutex) HR_NO_THREAD_SAFETY_ANALYSIS {
    return condition_.wait_for(mutex, timeout, std::move(ready));
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

/// A named thread; joined by its destructor. The body must end soon after its owner asked it to
/// (stop flag, closed queue). Exceptions must not leave the body (std::terminate).
class HR_API Thread {
 public:
  Thread() = default;
  Thread(std::string name, std::function<void()> body);
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();
  bool joinable() const { return thread_.joinable(); }
  void join();

 private:
  std::thread thread_;
};

}  // namespace headrace::base
