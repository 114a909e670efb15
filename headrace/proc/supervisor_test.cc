// SPDX-License-Identifier: Apache-2.0
#include "headrace/proc/supervisor.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <csignal>
#include <map>
#include <set>

#include "headrace/base/clock.h"

namespace headrace::proc {

namespace {

ChildOptions shell(const std::string& script) {
  ChildOptions options;
  options.argv = {"sh", "-c", script};
  return options;
}

/// Poll until `count` children ended.
std::map<ChildId, Exit> collect(Supervisor& supervisor, size_t count) {
  std::map<ChildId, Exit> ends;
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(60));
  while (ends.size() < count && !deadline.passed()) {
    for (const Supervisor::Ended& ended : supervisor.poll(Millis(1000))) {
      ends[ended.id] = ended.exit;
    }
  }
  return ends;
}

}  // namespace

TEST_CASE("each child's end and lines come once and under its own id") {
  Supervisor supervisor = *Supervisor::make();
  std::map<int, std::vector<std::string>> lines;
  for (int i = 0; i < 20; ++i) {
    ChildOptions options = shell("echo line " + std::to_string(i) + "; exit " + std::to_string(i));
    options.on_line = [&lines, i](Stream, std::string_view line) { lines[i].emplace_back(line); };
    CHECK(*supervisor.start(std::move(options)) == i + 1);
  }
  CHECK(supervisor.running() == 20);
  const auto ends = collect(supervisor, 20);
  REQUIRE(ends.size() == 20);
  for (int i = 0; i < 20; ++i) {
    CHECK(ends.at(i + 1).code == i);
    CHECK(lines[i] == std::vector<std::string>{"line " + std::to_string(i)});
  }
  CHECK(supervisor.running() == 0);
  CHECK(supervisor.poll(Millis(0)).empty());
}

TEST_CASE(
    "the descriptor is readable when a child has something, so an event loop can wait on it") {
  Supervisor supervisor = *Supervisor::make();
  REQUIRE(supervisor.start(shell("read x")).ok());  // input is empty: ends at once
  pollfd waited = {.fd = supervisor.event_fd(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&waited, 1, 30000) == 1);
  CHECK(collect(supervisor, 1).size() == 1);
  CHECK(::poll(&waited, 1, 0) == 0);
}

TEST_CASE("time limits act while the loop waits on the descriptor") {
  Supervisor supervisor = *Supervisor::make();
  ChildOptions options = shell("sleep 1000");
  options.timeout = Millis(50);
  REQUIRE(supervisor.start(std::move(options)).ok());
  pollfd waited = {.fd = supervisor.event_fd(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&waited, 1, 30000) == 1);
  CHECK(collect(supervisor, 1).at(1).stopped == "timeout of 0.05 s");
}

TEST_CASE("more children than the bound are refused") {
  Supervisor supervisor = *Supervisor::make(1);
  REQUIRE(supervisor.start(shell("sleep 1000")).ok());
  CHECK(supervisor.start(shell("true")).error().code() == Errc::busy);
}

TEST_CASE("stopping all ends the obedient by SIGTERM and the stubborn by SIGKILL") {
  Supervisor supervisor = *Supervisor::make();
  std::set<int> ready;
  for (int i = 0; i < 6; ++i) {
    ChildOptions options = shell(i % 2 == 0 ? "echo; while :; do sleep 0.01; done"
                                            : "trap '' TERM; echo; while :; do sleep 0.01; done");
    options.on_line = [&ready, i](Stream, std::string_view) { ready.insert(i); };
    REQUIRE(supervisor.start(std::move(options)).ok());
  }
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(30));
  while (ready.size() < 6 && !deadline.passed()) {
    CHECK(supervisor.poll(Millis(100)).empty());
  }
  const auto ends = supervisor.stop_all("the run was cancelled", Millis(300));
  REQUIRE(ends.size() == 6);
  for (const Supervisor::Ended& ended : ends) {
    CHECK(ended.exit.signal == (ended.id % 2 == 1 ? SIGTERM : SIGKILL));
    CHECK(ended.exit.stopped == "the run was cancelled");
  }
}

TEST_CASE("letting a supervisor go ends all its children") {
  int64_t pid = -1;
  {
    Supervisor supervisor = *Supervisor::make();
    const ChildId id = *supervisor.start(shell("trap '' TERM; sleep 1000"));
    pid = supervisor.find(id)->pid();
    CHECK(supervisor.find(id + 1) == nullptr);
  }
  CHECK(::kill(static_cast<pid_t>(pid), 0) == -1);
}

}  // namespace headrace::proc
