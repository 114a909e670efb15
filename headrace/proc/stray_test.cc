// SPDX-License-Identifier: Apache-2.0
#include "headrace/proc/stray.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "headrace/base/clock.h"
#include "headrace/base/test_folder.h"

namespace headrace::proc {

namespace {

Child marked(const std::string& mark, const std::string& script) {
  ChildOptions options;
  options.argv = {"sh", "-c", script};
  options.environment = {{"HEADRACE_TEST_MARK", mark}};
  auto child = Child::spawn(std::move(options));
  REQUIRE(child.ok());
  return *std::move(child);
}

}  // namespace

TEST_CASE("strays are killed with what they started, others are left alone") {
  const base::TestFolder folder;
  const std::string mine = "stray-" + std::to_string(::getpid());
  // The middle one has left the group of the first, and its parent is gone.
  Child stray = marked(
      mine, "(setsid sleep 600 &) ; echo x > " + (folder / "begun").string() + "; exec sleep 600");
  Child other = marked(mine + "0", "exec sleep 600");
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(20));
  while (!std::filesystem::exists(folder / "begun") && !deadline.passed()) {
    base::sleep_for(std::chrono::milliseconds(2));
  }
  const auto is_mine = [&](const Environment& environment) {
    return value_in(environment, "HEADRACE_TEST_MARK") == mine;
  };

  const auto killed = kill_strays(is_mine, Millis(10'000));

  REQUIRE(killed.ok());
  CHECK(*killed >= 2);
  const auto exit = stray.wait(Millis(10'000));
  REQUIRE(exit.ok());
  CHECK(exit->signal == SIGKILL);
  CHECK(!other.pump());
  CHECK(*kill_strays(is_mine, Millis(10'000)) == 0);
}

TEST_CASE("variables are found by their whole name") {
  const Environment environment = {"AB=1", "A=2=3", "C"};
  CHECK(value_in(environment, "A") == "2=3");
  CHECK(value_in(environment, "AB") == "1");
  CHECK(value_in(environment, "B").empty());
  CHECK(value_in(environment, "C").empty());
}

TEST_CASE("a group is known before its program runs, and a child that is called off runs none") {
  const base::TestFolder folder;
  GroupNotice notice;
  ChildOptions options;
  options.argv = {"sh", "-c", "exit 0"};
  options.notice = &notice;
  auto child = Child::spawn(options);
  REQUIRE(child.ok());
  CHECK(notice.group.load() == child->pid());
  REQUIRE(child->wait(Millis(10'000)).ok());

  notice.called_off.store(true);
  options.argv = {"sh", "-c", "echo x > " + (folder / "ran").string()};
  const auto called_off = Child::spawn(options);
  REQUIRE(!called_off.ok());
  CHECK(called_off.error().code() == Errc::cancelled);
  CHECK(notice.group.load() == 0);
  CHECK(!std::filesystem::exists(folder / "ran"));

  notice.called_off.store(false);
  options.argv = {"/nowhere/at/all"};
  CHECK(!Child::spawn(options).ok());
  CHECK(notice.group.load() == 0);
}

}  // namespace headrace::proc
