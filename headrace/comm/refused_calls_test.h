// SPDX-License-Identifier: Apache-2.0
// A process to which the kernel refuses system calls, as in a container with a filter.
#pragma once

#include <doctest/doctest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace::comm::testing {

/// From now on, in this process: `calls` (SYS_...) answer `error`. False where filters are refused
/// too.
inline bool refuse_calls(const std::vector<int>& calls, int error) {
  const auto statement = [](int code, uint32_t value, size_t yes = 0, size_t no = 0) {
    return sock_filter{static_cast<uint16_t>(code), static_cast<uint8_t>(yes),
                       static_cast<uint8_t>(no), value};
  };
  std::vector<sock_filter> program = {
      statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (size_t i = 0; i < calls.size(); ++i) {
    program.push_back(
        statement(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(calls[i]), calls.size() - i));
  }
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(statement(
      BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (static_cast<uint32_t>(error) & SECCOMP_RET_DATA)));
  const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace headrace::comm::testing
