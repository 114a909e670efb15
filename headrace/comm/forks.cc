// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <atomic>

#include "headrace/comm/forks_internal.h"

namespace headrace::comm {

namespace {

std::atomic<uint32_t> forks_so_far = 0;

}  // namespace

uint32_t forks() {
  [[maybe_unused]] static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { forks_so_far.fetch_add(1, std::memory_order_relaxed); });
  return forks_so_far.load(std::memory_order_relaxed);
}

Error forked_error() {
  return {Errc::invalid_argument,
          "comm: this process was forked from a rank and cannot take part in its collectives; "
          "call them in the parent (a DataLoader's workers only load), or start the process with "
          "spawn and init there"};
}

}  // namespace headrace::comm
