// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace headrace::base {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, Micros most) {
  const timespec limit = {.tv_sec = most.count() / 1'000'000,
                          .tv_nsec = most.count() % 1'000'000 * 1000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake_all(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace headrace::base
