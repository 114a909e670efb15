// SPDX-License-Identifier: Apache-2.0
// A forked child that runs one function: for tests of what only several processes can break. The
// test program must have no other thread while it forks.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <utility>

namespace headrace::base {

class TestProcess {
 public:
  /// The child ends with what `body` returns, or 99 after an exception (a failed REQUIRE).
  explicit TestProcess(const std::function<int()>& body) : pid_(::fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      int code = 99;
      try {
        code = body();
      } catch (...) {
      }
      ::_exit(code);
    }
  }
  TestProcess(TestProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  TestProcess& operator=(TestProcess&&) = delete;
  ~TestProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      int status = 0;
      ::waitpid(pid_, &status, 0);
    }
  }

  void kill() const { ::kill(pid_, SIGKILL); }

  /// Exit code, or minus the signal, within `timeout`; the test fails when it takes longer.
  int wait(std::chrono::milliseconds timeout = std::chrono::seconds(120)) {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    REQUIRE(fd >= 0);
    pollfd event = {fd, POLLIN, 0};
    const int ready = ::poll(&event, 1, static_cast<int>(timeout.count()));
    ::close(fd);
    REQUIRE_MESSAGE(ready == 1, "the child did not end in time");
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

}  // namespace headrace::base
