// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/tcp_operation.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include "headrace/base/clock.h"

namespace headrace::comm {
namespace {

/// Two ranks on one thread, which steps either of them.
class Pair {
 public:
  Pair() {
    std::array<int, 2> fds = {};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()) == 0);
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<base::Fd> connections(2);
      connections[static_cast<size_t>(1 - rank)] = base::Fd(fds[static_cast<size_t>(rank)]);
      auto made = TcpLinks::make(rank, std::move(connections));
      REQUIRE(made.ok());
      links_.push_back(std::move(*made));
      states_.push_back(std::make_unique<TcpSetState>(2, size_t{64} << 10));
    }
  }

  TcpLinks& links(int rank) { return links_[static_cast<size_t>(rank)]; }
  TcpSetState& state(int rank) { return *states_[static_cast<size_t>(rank)]; }
  std::unique_ptr<Operation> start(int rank, const Call& call) {
    return start_tcp_operation(call, group_, links(rank), state(rank));
  }
  bool next_begun(int rank) { return next_tcp_begun(links(rank), state(rank)); }

 private:
  std::vector<TcpLinks> links_;
  std::vector<std::unique_ptr<TcpSetState>> states_;
  TcpGroup group_ = {{0, 1}, NodeTree::one_node(2)};
};

/// Step until it can go on no longer.
Step run(Operation& operation) {
  Step step = Step::moved;
  while (step == Step::moved) {
    step = operation.step();
  }
  return step;
}

Call broadcast_of(std::vector<float>& values, int root) {
  Call call;
  call.kind = Kind::broadcast;
  call.dtype = Dtype::f32;
  call.root = root;
  call.in = reinterpret_cast<const std::byte*>(values.data());
  call.out = reinterpret_cast<std::byte*>(values.data());
  call.count = values.size();
  return call;
}

TEST_CASE("that another rank has begun the next operation is seen before this one has") {
  Pair pair;
  std::vector<float> sent(100, 3.0F);
  std::vector<float> got(100);
  CHECK(!pair.next_begun(0));
  CHECK(!pair.next_begun(1));

  const Call root = broadcast_of(sent, 0);
  CHECK(run(*pair.start(0, root)) == Step::done);

  CHECK(pair.next_begun(1));
  CHECK(!pair.next_begun(0));
  const Call other = broadcast_of(got, 0);
  CHECK(run(*pair.start(1, other)) == Step::done);
  CHECK(got == sent);
  CHECK(!pair.next_begun(1));
  CHECK(!pair.next_begun(0));  // what has come is of the operation before
}

TEST_CASE("a rank that needs nothing from another one is eight operations ahead at most") {
  Pair pair;
  std::vector<std::vector<float>> sent;
  std::vector<Call> calls;
  for (int i = 0; i < 9; ++i) {
    sent.emplace_back(10, static_cast<float>(i));
  }
  for (auto& one : sent) {
    calls.push_back(broadcast_of(one, 0));
  }
  for (size_t i = 0; i < 8; ++i) {
    CHECK(run(*pair.start(0, calls[i])) == Step::done);
  }
  const auto last = pair.start(0, calls[8]);
  CHECK(run(*last) == Step::stuck);
  CHECK(last->missing() == 1);

  for (int i = 0; i < 9; ++i) {
    std::vector<float> got(10);
    const Call call = broadcast_of(got, 0);
    CHECK(run(*pair.start(1, call)) == Step::done);
    CHECK(got.back() == static_cast<float>(i));
  }
  CHECK(run(*last) == Step::done);
}

TEST_CASE("a difference in an operation that nobody waited for is found in the next one") {
  Pair pair;
  std::vector<float> values(10);
  const Call ours = broadcast_of(values, 0);
  CHECK(run(*pair.start(0, ours)) == Step::done);
  Call theirs = broadcast_of(values, 1);
  theirs.name = "odd";
  const auto other = pair.start(1, theirs);
  CHECK(run(*other) == Step::failed);

  const Call later = broadcast_of(values, 1);
  const auto found = pair.start(0, later);
  CHECK(run(*found) == Step::failed);
  CHECK(found->error().code() == Errc::mismatch);
  CHECK(found->error().message() ==
        "comm: operation 0 is broadcast root 0 float32[10] on rank 0 and broadcast root 1 "
        "float32[10] \"odd\" on rank 1; all ranks of a process set must call the same operations "
        "in the same order");
}

TEST_CASE("a goodbye is not the beginning of an operation") {
  Pair pair;
  std::vector<float> values(10);
  say_goodbye(pair.links(1), false);

  const Call call = broadcast_of(values, 1);
  const auto operation = pair.start(0, call);
  CHECK(run(*operation) == Step::stuck);
  CHECK(operation->missing() == 1);
  CHECK(pair.state(0).peers[1].closed);
  CHECK(!pair.next_begun(0));
}

TEST_CASE("who leaves a set that has failed has not closed it: the reason comes another way") {
  Pair pair;
  std::vector<float> values(10);
  say_goodbye(pair.links(1), true);

  const Call call = broadcast_of(values, 1);
  const auto operation = pair.start(0, call);
  CHECK(run(*operation) == Step::stuck);
  CHECK(pair.state(0).peers[1].failed);
  CHECK(!pair.state(0).peers[1].closed);
}

}  // namespace
}  // namespace headrace::comm
