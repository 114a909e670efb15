// SPDX-License-Identifier: Apache-2.0
// What ranks need of one another's network when one of them is slow, or gone.
#include "headrace/comm/transport/network.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/thread.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Networks of ranks in one process that have met.
struct Ranks {
  std::atomic<int> failed_sets = 0;  // that a rank was told of
  std::vector<std::shared_ptr<Network>> networks;

  explicit Ranks(int count) {
    std::vector<NetworkPeer> peers;
    const auto secret = std::make_shared<const wire::Secret>(wire::Secret::generate());
    for (int rank = 0; rank < count; ++rank) {
      auto network =
          Network::start({.rank = rank, .host = "here", .job = "network test", .secret = secret},
                         wire::Endpoint::tcp("127.0.0.1", 0),
                         {.on_dead = [](int, const Error&) {},
                          .on_set_failed = [this](uint64_t, const Error&) { ++failed_sets; },
                          .on_ready = [] {}});
      REQUIRE(network.ok());
      peers.push_back({"here", {wire::Endpoint::tcp("127.0.0.1", (*network)->port())}});
      networks.push_back(*std::move(network));
    }
    for (auto& one : networks) {
      one->know(peers);
    }
    each([](Network& network, int) { CHECK(network.meet(base::Deadline::in(seconds(20))).ok()); });
  }

  void each(const std::function<void(Network&, int)>& body) {
    std::vector<base::Thread> threads;
    for (size_t i = 0; i < networks.size(); ++i) {
      threads.emplace_back("rank", [&, i] { body(*networks[i], static_cast<int>(i)); });
    }
  }
};

constexpr std::array kBoth = {0, 1};

TEST_CASE("a set that is closed keeps what a slow reader has not taken yet") {
  Ranks ranks(2);
  std::vector<std::vector<base::Fd>> connections(2);
  ranks.each([&](Network& network, int rank) {
    auto made = network.connect(7, kBoth, rank, base::Deadline::in(seconds(20)));
    REQUIRE(made.ok());
    connections[static_cast<size_t>(rank)] = *std::move(made);
  });
  const int from = connections[0][1].get();
  const int to = connections[1][0].get();
  const std::vector<std::byte> some(100'000, std::byte{5});
  size_t sent = 0;
  ssize_t count = 0;
  while ((count = ::send(from, some.data(), some.size(), MSG_DONTWAIT)) > 0) {
    sent += static_cast<size_t>(count);
  }
  CHECK(::send(to, some.data(), some.size(), MSG_DONTWAIT) > 0);  // nobody reads it
  ::shutdown(from, SHUT_WR);
  ranks.networks[0]->linger(std::move(connections[0]), kBoth);
  base::sleep_for(milliseconds(5500));  // more than a closed set was once kept for
  CHECK(::send(to, some.data(), some.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0);
  std::vector<std::byte> in(some.size());
  size_t came = 0;
  while ((count = ::recv(to, in.data(), in.size(), 0)) > 0) {
    came += static_cast<size_t>(count);
  }
  CHECK(count == 0);
  CHECK(came == sent);
}

/// The outcome of one message, for a thread that waits for it.
struct Outcome {
  base::Mutex mutex;
  base::CondVar changed;
  std::optional<Result<void>> how HR_GUARDED_BY(mutex);

  MailDone done() {
    return [this](const Result<void>& result, int) {
      base::MutexLock lock(mutex);
      how = result;
      changed.notify_all();
    };
  }
  Result<void> wait() {
    base::MutexLock lock(mutex);
    const auto there = [&]() HR_NO_THREAD_SAFETY_ANALYSIS { return how.has_value(); };
    if (!changed.wait_for(mutex, seconds(20), there)) {
      return Error{Errc::internal, "a message has no end"};
    }
    return *how;
  }
};

/// A message of `set` from the first rank to the second.
void send(Network& network, uint64_t set, const std::vector<std::byte>& data, Outcome* outcome) {
  MailSend send;
  send.set = set;
  send.to = 1;
  send.data = data.data();
  send.bytes = data.size();
  send.what = "a message";
  send.done = outcome->done();
  network.send(std::move(send));
}

void receive(Network& network, uint64_t set, std::vector<std::byte>* data, MailDone done) {
  MailReceive receive;
  receive.set = set;
  receive.from = 0;
  receive.data = data->data();
  receive.bytes = data->size();
  receive.what = "a message";
  receive.done = std::move(done);
  network.receive(std::move(receive));
}

TEST_CASE("a message that is given up in the middle costs the stream and its other sets nothing") {
  // What the networks' threads write to, so before them.
  std::vector<std::byte> large(size_t{64} << 20, std::byte{3});
  std::vector<std::byte> large_in(large.size());
  std::vector<std::byte> other(100'000, std::byte{4});
  std::vector<std::byte> other_in(other.size());
  std::vector<std::byte> none;
  std::vector<std::byte> nobody;
  std::array<Outcome, 5> outcomes;
  auto& [large_sent, large_received, other_sent, other_received, none_sent] = outcomes;
  std::atomic<bool> go_on = false;
  Ranks ranks(2);
  Network& sender = *ranks.networks[0];
  REQUIRE(sender.open_mail(1, base::Deadline::in(seconds(20))).ok());
  receive(*ranks.networks[1], 5, &large_in, large_received.done());
  // The reader stops behind its place for the large one: that one stays in the middle.
  receive(*ranks.networks[1], 8, &none, [&](const Result<void>&, int) {
    const auto deadline = base::Deadline::in(seconds(20));
    while (!go_on.load() && !deadline.passed()) {
      base::sleep_for(milliseconds(1));
    }
  });
  // All three headers go out before the first answer is looked at.
  receive(sender, 7, &nobody, [](const Result<void>&, int) { base::sleep_for(milliseconds(200)); });
  sender.mail_failer()(7, {Errc::cancelled, "the test has it wait"});
  base::sleep_for(milliseconds(20));
  send(sender, 5, large, &large_sent);
  send(sender, 8, none, &none_sent);
  send(sender, 6, other, &other_sent);
  base::sleep_for(milliseconds(600));
  sender.mail_failer()(5, {Errc::cancelled, "the set has failed"});
  const auto how = large_sent.wait();
  REQUIRE(!how.ok());
  CHECK(how.error().code() == Errc::cancelled);
  std::fill(large.begin(), large.end(), std::byte{9});  // it is the caller's again
  go_on = true;
  receive(*ranks.networks[1], 6, &other_in, other_received.done());
  for (Outcome* one : {&large_received, &other_sent, &other_received}) {
    const auto result = one->wait();
    CHECK_MESSAGE(result.ok(), result.error().message());
  }
  CHECK(std::count(large_in.begin(), large_in.end(), std::byte{3}) == std::ssize(large_in));
  CHECK(other_in == other);
}

TEST_CASE("what a slow rank is told of sets comes whole, without more being said") {
  std::atomic<bool> go_on = false;
  std::vector<std::byte> none;
  Ranks ranks(2);
  receive(*ranks.networks[1], 8, &none, [&](const Result<void>&, int) {
    const auto deadline = base::Deadline::in(seconds(20));
    while (!go_on.load() && !deadline.passed()) {
      base::sleep_for(milliseconds(1));
    }
  });
  ranks.networks[1]->mail_failer()(8, {Errc::cancelled, "the test has it wait"});
  const int frames = 1000;
  for (int i = 0; i < frames; ++i) {  // more than the kernels keep
    ranks.networks[0]->tell_set_failed(9, kBoth, {Errc::cancelled, std::string(20'000, 'x')});
  }
  base::sleep_for(milliseconds(100));
  go_on = true;
  const auto deadline = base::Deadline::in(seconds(20));
  while (ranks.failed_sets.load() < frames && !deadline.passed()) {
    base::sleep_for(milliseconds(5));
  }
  CHECK(ranks.failed_sets.load() == frames);
}

TEST_CASE("who waits for a rank to connect hears of its death") {
  Ranks ranks(2);
  base::Thread waits("waits", [&] {
    const auto made = ranks.networks[0]->connect(9, kBoth, 0, base::Deadline::in(seconds(20)));
    REQUIRE(!made.ok());
    CHECK(made.error().code() == Errc::peer_dead);
  });
  base::sleep_for(milliseconds(20));
  ranks.networks[0]->suspect(1, {Errc::peer_dead, "rank 1 is dead"});
  waits.join();
}

TEST_CASE("a rank that is slow to take a stream for messages holds up none to another one") {
  std::atomic<bool> is_held = false;
  std::atomic<bool> go_on = false;
  std::atomic<bool> slow_ended = false;
  std::vector<std::byte> none;
  Ranks ranks(3);
  receive(*ranks.networks[1], 8, &none, [&](const Result<void>&, int) {
    is_held = true;
    const auto deadline = base::Deadline::in(seconds(20));
    while (!go_on.load() && !deadline.passed()) {
      base::sleep_for(milliseconds(1));
    }
  });
  ranks.networks[1]->mail_failer()(8, {Errc::cancelled, "the test has it wait"});
  for (int i = 0; i < 20'000 && !is_held.load(); ++i) {
    base::sleep_for(milliseconds(1));
  }
  base::Thread slow("slow", [&] {
    CHECK(ranks.networks[0]->open_mail(1, base::Deadline::in(seconds(30))).ok());
    slow_ended = true;
  });
  base::sleep_for(milliseconds(100));
  CHECK(ranks.networks[0]->open_mail(2, base::Deadline::in(seconds(30))).ok());
  CHECK(!slow_ended.load());
  go_on = true;
  slow.join();
}

}  // namespace
}  // namespace headrace::comm
