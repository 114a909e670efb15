// SPDX-License-Identifier: Apache-2.0
// Sleep on a word of memory that another thread or process changes.
#pragma once

#include <atomic>
#include <cstdint>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"

namespace headrace::base {

/// Sleep while `word` reads `expected`, at most `most`; may return early for no reason. Works
/// between processes that map the same page.
HR_API void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, Micros most);

/// Wake all who sleep on `word`. The caller has changed it before.
HR_API void futex_wake_all(const std::atomic<uint32_t>& word);

/// Order all that this thread wrote before all that it reads after, for all threads that do the
/// same.
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<uint32_t> word;  // the sanitizer knows no fences
  word.fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// One turn of a spinning wait: lets the other hyper-thread of the core go first.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace headrace::base
