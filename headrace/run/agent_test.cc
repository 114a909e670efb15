// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/agent.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <map>

#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"
#include "headrace/run/remote_ranks.h"
#include "headrace/wire/channel.h"

namespace headrace::run {

namespace {

using std::chrono::seconds;

/// An agent on a thread, with a script for a guard: wait for the end of the input, remove.
class TestAgent {
 public:
  TestAgent() : stop_(::eventfd(0, EFD_CLOEXEC)) {
    const base::Path guard = folder_.path() / "guard";
    REQUIRE(base::replace_file(guard, "#!/bin/sh\ncat > /dev/null\nrm -r \"$3\"\n", 0755).ok());
    options_.program = guard.string();
    options_.listen = wire::Endpoint::tcp("127.0.0.1", 0);
    options_.token = &token_;
    options_.interrupt_fd = stop_.get();
    options_.on_listening = [this](const wire::Endpoint& endpoint) { port_ = endpoint.port; };
    thread_ = base::Thread("agent", [this] { served_ = serve_agent(options_).ok(); });
    const base::Deadline deadline = base::Deadline::in(seconds(30));
    while (port_ == 0 && !deadline.passed()) {
      base::sleep_for(std::chrono::milliseconds(1));
    }
    REQUIRE(port_ != 0);
  }
  ~TestAgent() { stop(); }
  void stop() {
    const uint64_t one = 1;
    static_cast<void>(::write(stop_.get(), &one, sizeof one));
    if (thread_.joinable()) {
      thread_.join();
    }
    CHECK(served_);
  }
  wire::Endpoint endpoint() const { return wire::Endpoint::tcp("127.0.0.1", port_); }
  const wire::Secret& token() const { return token_; }
  Result<std::unique_ptr<RemoteRanks>> connect() const {
    return RemoteRanks::connect("here", endpoint(), token_, base::Deadline::in(seconds(30)));
  }

 private:
  base::TestFolder folder_;
  wire::Secret token_ = wire::Secret::generate();
  AgentOptions options_;
  base::Fd stop_;
  std::atomic<uint16_t> port_{0};
  std::atomic<bool> served_{false};
  base::Thread thread_;
};

struct Heard {
  std::map<int, std::string> output;
  std::map<int, RankEnd> ends;
  std::optional<Error> error;
};

/// Pump until `done`, or the ranks are gone.
void pump(RemoteRanks& ranks, Heard* heard, const std::function<bool()>& done) {
  const RankEvents events = {
      .on_bytes = [&](int rank, Stream, std::string_view bytes) { heard->output[rank] += bytes; },
      .on_end = [&](const RankEnd& end) { heard->ends[end.rank] = end; }};
  const base::Deadline deadline = base::Deadline::in(seconds(60));
  while (!done() && !ranks.running().empty()) {
    REQUIRE_FALSE(deadline.passed());
    pollfd event = {ranks.event_fd(), ranks.wanted_events(), 0};
    ::poll(&event, 1, static_cast<int>(ranks.pump_within().count()));
    const auto pumped = ranks.pump(events, true);
    if (!pumped.ok()) {
      heard->error = pumped.error();
    }
  }
}

std::vector<RankStart> two(const std::string& script) {
  std::vector<RankStart> starts;
  for (int rank = 4; rank < 6; ++rank) {
    starts.push_back({.rank = rank,
                      .argv = {"sh", "-c", script},
                      .variables = {{"RANK", std::to_string(rank)}}});
  }
  return starts;
}

void set_job(RemoteRanks& ranks) {
  ranks.set_job("job", {{"PATH", "/usr/bin:/bin"}, {"MINE", "a b"}}, 0);
}

}  // namespace

TEST_CASE("an agent starts ranks, and their output and ends come back") {
  const TestAgent agent;
  auto ranks = agent.connect();
  REQUIRE_MESSAGE(ranks.ok(), ranks.error().message());
  CHECK((*ranks)->welcome().free_port != 0);
  set_job(**ranks);
  REQUIRE((*ranks)->start(two("echo $RANK $MINE; exit $RANK")).ok());
  Heard heard;
  pump(**ranks, &heard, [] { return false; });
  CHECK_FALSE(heard.error.has_value());
  CHECK(heard.output == std::map<int, std::string>{{4, "4 a b\n"}, {5, "5 a b\n"}});
  CHECK(heard.ends[5].code == 5);
}

TEST_CASE("a launcher that waits for other hosts may say so before its order") {
  const TestAgent agent;
  auto ranks = agent.connect();
  REQUIRE(ranks.ok());
  REQUIRE((*ranks)->say_alive().ok());
  set_job(**ranks);
  REQUIRE((*ranks)->start(two("echo fine")).ok());
  Heard heard;
  pump(**ranks, &heard, [] { return false; });
  CHECK_FALSE(heard.error.has_value());
  CHECK(heard.output[4] == "fine\n");
}

TEST_CASE("ranks that are to stop do so") {
  const TestAgent agent;
  auto ranks = agent.connect();
  REQUIRE(ranks.ok());
  set_job(**ranks);
  REQUIRE((*ranks)->start(two("echo ready; exec sleep 1000")).ok());
  Heard heard;
  pump(**ranks, &heard, [&] { return heard.output.size() == 2; });
  (*ranks)->stop("a test", Millis(5000));
  pump(**ranks, &heard, [] { return false; });
  CHECK(heard.ends[4].signal == SIGTERM);
  CHECK(heard.ends[4].text.find("a test") != std::string::npos);
}

TEST_CASE("a stopped agent tells its launchers, also one that has not given its order") {
  TestAgent agent;
  auto waiting = agent.connect();
  REQUIRE(waiting.ok());
  auto ranks = agent.connect();
  REQUIRE(ranks.ok());
  set_job(**ranks);
  REQUIRE((*ranks)->start(two("echo ready; exec sleep 1000")).ok());
  Heard heard;
  pump(**ranks, &heard, [&] { return heard.output.size() == 2; });
  agent.stop();
  pump(**ranks, &heard, [] { return false; });
  REQUIRE(heard.error.has_value());
  CHECK(heard.error->message().find("was stopped") != std::string::npos);
}

TEST_CASE("who does not know the token gets nowhere, and disturbs nobody") {
  const TestAgent agent;
  auto ranks = agent.connect();
  REQUIRE(ranks.ok());
  const auto other = wire::Secret::generate();
  const auto refused =
      RemoteRanks::connect("here", agent.endpoint(), other, base::Deadline::in(seconds(30)));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Errc::auth_failed);
  for (int i = 0; i < 20; ++i) {
    auto stranger = wire::connect(agent.endpoint(), base::Deadline::in(seconds(30)));
    REQUIRE(stranger.ok());
    static_cast<void>(::write(stranger->get(), "GET / HTTP/1.1\r\n\r\n", 18));
  }
  set_job(**ranks);
  REQUIRE((*ranks)->start(two("echo fine")).ok());
  Heard heard;
  pump(**ranks, &heard, [] { return false; });
  CHECK(heard.output[5] == "fine\n");
}

TEST_CASE("a program that is not there is the launcher's error") {
  const TestAgent agent;
  auto ranks = agent.connect();
  REQUIRE(ranks.ok());
  set_job(**ranks);
  REQUIRE((*ranks)->start({{.rank = 0, .argv = {"no-such-program"}}}).ok());
  Heard heard;
  pump(**ranks, &heard, [] { return false; });
  REQUIRE(heard.error.has_value());
  CHECK(heard.error->message().find("no-such-program") != std::string::npos);
}

TEST_CASE("output waits at the agent while the launcher does not want it") {
  const TestAgent agent;
  auto ranks = agent.connect();
  REQUIRE(ranks.ok());
  set_job(**ranks);
  REQUIRE((*ranks)->start(two("seq 400000")).ok());
  size_t bytes = 0;
  const RankEvents events = {
      .on_bytes = [&](int, Stream, std::string_view piece) { bytes += piece.size(); },
      .on_end = [](const RankEnd&) {}};
  const base::Deadline pause = base::Deadline::in(std::chrono::milliseconds(300));
  while (!pause.passed()) {
    pollfd event = {(*ranks)->event_fd(), POLLIN, 0};
    ::poll(&event, 1, 50);
    REQUIRE((*ranks)->pump(events, false).ok());
  }
  CHECK((*ranks)->running().size() == 2);
  const base::Deadline deadline = base::Deadline::in(seconds(60));
  while (!(*ranks)->running().empty()) {
    REQUIRE_FALSE(deadline.passed());
    pollfd event = {(*ranks)->event_fd(), (*ranks)->wanted_events(), 0};
    ::poll(&event, 1, 100);
    REQUIRE((*ranks)->pump(events, true).ok());
  }
  CHECK(bytes == 2 * 2688895);
}

}  // namespace headrace::run
