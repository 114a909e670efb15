// SPDX-License-Identifier: Apache-2.0
// Long calls from Python: the work runs on threads of ours without the GIL, while the calling
// thread waits for it, reports progress and notices Ctrl-C.
#pragma once

#include "python/src/border.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/base/thread.h"

namespace headrace::python {

/// What the work tells and is told.
struct Waiting {
  std::atomic<bool> stop{false};  // relaxed: a flag that is asked again soon
  std::atomic<int64_t> done{0};
  std::atomic<int64_t> total{0};
};

/// Run `work` on a thread of its own and wait. Called with the GIL, which is let go while waiting.
/// Every 100 ms signals are handled and `progress(done, total)` is called when given; an exception
/// of either (KeyboardInterrupt) sets `stop`, and is raised once the work has ended.
inline void run_waiting(const nb::object& progress, const std::function<void(Waiting*)>& work) {
  constexpr std::chrono::milliseconds kTick{100};
  Waiting waiting;
  base::Mutex mutex;
  base::CondVar ended_changed;
  bool ended = false;
  base::Thread thread("python call", [&] {
    work(&waiting);
    const base::MutexLock lock(mutex);
    ended = true;
    ended_changed.notify_all();
  });
  std::unique_ptr<nb::python_error> raised;
  bool is_over = false;
  while (!is_over) {
    {
      const nb::gil_scoped_release release;
      const base::MutexLock lock(mutex);
      is_over = ended_changed.wait_for(mutex, kTick, [&] { return ended; });
    }
    if (raised != nullptr) {
      continue;
    }
    try {
      if (PyErr_CheckSignals() != 0) {
        throw nb::python_error();
      }
      if (!progress.is_none()) {
        progress(waiting.done.load(), waiting.total.load());
      }
    } catch (nb::python_error& error) {
      raised = std::make_unique<nb::python_error>(std::move(error));
      waiting.stop = true;
    }
  }
  {
    const nb::gil_scoped_release release;
    thread.join();
  }
  if (raised != nullptr) {
    throw nb::python_error(std::move(*raised));
  }
}

}  // namespace headrace::python
