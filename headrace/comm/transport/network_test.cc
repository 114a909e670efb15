// SPDX-License-Identifier: Apache-2.0
// What ranks need of one another's network when one of them is slow, or gone.
#include "headrace/comm/transport/network.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
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
  std::vector<std::shared_ptr<Network>> networks;

  explicit Ranks(int count) {
    std::vector<NetworkPeer> peers;
    const auto secret = std::make_shared<const wire::Secret>(wire::Secret::generate());
    for (int rank = 0; rank < count; ++rank) {
      auto network = Network::start(
          {.rank = rank, .host = "here", .job = "network test", .secret = secret},
          wire::Endpoint::tcp("127.0.0.1", 0),
          {.on_dead = [](int, const Error&) {},
           .on_set_failed = [](uint64_t, const Error&) {},
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

}  // namespace
}  // namespace headrace::comm
