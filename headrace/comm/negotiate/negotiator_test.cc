// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/negotiate/negotiator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "headrace/base/random.h"

namespace headrace::comm {
namespace {

using What = Response::What;
using base::Micros;

/// Negotiators of all ranks that hand their messages to one another.
class Job {
 public:
  explicit Job(int ranks, NegotiatorOptions options = {}) {
    std::vector<int> world(static_cast<size_t>(ranks));
    std::iota(world.begin(), world.end(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<Negotiator>(rank, world, options));
    }
  }
  Negotiator& operator[](size_t rank) { return *ranks_[rank]; }

  /// One exchange; what all ranks do, which is the same on each.
  std::vector<Response> turn(Micros now = {}) {
    std::vector<std::string> messages;
    for (auto& rank : ranks_) {
      messages.push_back(rank->message());
      bytes_ = std::max(bytes_, messages.back().size());
    }
    const std::vector<std::string_view> views(messages.begin(), messages.end());
    std::vector<Response> first;
    for (auto& rank : ranks_) {
      auto responses = rank->receive(views, now);
      REQUIRE(responses.ok());
      if (rank == ranks_.front()) {
        first = *std::move(responses);
        continue;
      }
      REQUIRE(responses->size() == first.size());
      for (size_t i = 0; i < first.size(); ++i) {
        REQUIRE(names(responses.value()[i]) == names(first[i]));
        REQUIRE(responses.value()[i].what == first[i].what);
      }
    }
    return first;
  }
  static std::vector<std::string> names(const Response& response) {
    std::vector<std::string> all;
    for (const auto& tensor : response.tensors) {
      all.push_back(tensor->name);
    }
    return all;
  }
  /// The longest message since the last call.
  size_t take_bytes() { return std::exchange(bytes_, 0); }

 private:
  std::vector<std::unique_ptr<Negotiator>> ranks_;
  size_t bytes_ = 0;
};

Request tensor(std::vector<int64_t> shape, NamedKind kind = NamedKind::all_reduce) {
  Request request;
  request.kind = kind;
  request.shape = std::move(shape);
  return request;
}

TEST_CASE("a request is the same after it was encoded and decoded") {
  Request request = tensor({3, 0, 5'000'000'000}, NamedKind::all_to_all);
  request.dtype = Dtype::bf16;
  request.op = Op::product;
  request.root = 7;
  request.prescale = 0.1;
  request.splits = {1, 2, 0};
  request.group = "gradients";
  request.group_size = 3;
  const auto again = decode_request(encode(request));
  REQUIRE(again.ok());
  CHECK(encode(*again) == encode(request));
  CHECK(again->shape == request.shape);
  CHECK(again->splits == request.splits);
  CHECK(again->prescale == 0.1);
  for (size_t cut = 0; cut < encode(request).size(); ++cut) {
    CHECK_FALSE(decode_request(encode(request).substr(0, cut)).ok());
  }
  CHECK_FALSE(decode_request(encode(request) + "x").ok());
}

TEST_CASE("a tensor runs once all ranks have it, in whatever order they came") {
  Job job(3);
  job[0].submit("a", encode(tensor({200'000})));
  job[0].submit("b", encode(tensor({200'000})));
  job[1].submit("b", encode(tensor({200'000})));
  CHECK(job.turn().empty());
  job[2].submit("b", encode(tensor({200'000})));
  auto responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(Job::names(responses[0]) == std::vector<std::string>{"b"});
  CHECK(job[0].waiting());
  job[1].submit("a", encode(tensor({200'000})));
  job[2].submit("a", encode(tensor({200'000})));
  responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].what == What::run);
  CHECK(Job::names(responses[0]) == std::vector<std::string>{"a"});
  CHECK_FALSE(job[0].waiting());
}

TEST_CASE("names that were agreed on once need a few bytes") {
  Job job(2);
  const auto step = [&] {
    for (int i = 0; i < 161; ++i) {
      for (size_t rank = 0; rank < 2; ++rank) {
        job[rank].submit("gradient of a layer with a long name " + std::to_string(i),
                         encode(tensor({64, i})));
      }
    }
    size_t tensors = 0;
    for (const auto& response : job.turn()) {
      tensors += response.tensors.size();
    }
    return tensors;
  };
  CHECK(step() == 161);
  CHECK(job.take_bytes() > 161 * 40);
  CHECK(step() == 161);
  CHECK(job.take_bytes() < 48);
  // A name whose shape has changed is told again, and remembered anew.
  job[0].submit("gradient of a layer with a long name 5", encode(tensor({1})));
  job[1].submit("gradient of a layer with a long name 5", encode(tensor({1})));
  auto responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].tensors[0]->any().shape == std::vector<int64_t>{1});
  CHECK(job.take_bytes() > 40);
  job[0].submit("gradient of a layer with a long name 5", encode(tensor({1})));
  job[1].submit("gradient of a layer with a long name 5", encode(tensor({1})));
  CHECK(job.turn().size() == 1);
  CHECK(job.take_bytes() < 10);
}

TEST_CASE("a remembered name that one rank submits otherwise is a mismatch") {
  Job job(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    job[rank].submit("x", encode(tensor({4})));
  }
  CHECK(job.turn()[0].what == What::run);
  job[0].submit("x", encode(tensor({4})));
  job[1].submit("x", encode(tensor({5})));
  job[2].submit("x", encode(tensor({4})));
  auto responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].what == What::fail);
  CHECK(responses[0].error->code() == Errc::mismatch);
  const std::string& text = responses[0].error->message();
  CHECK(text.find("Mismatched allreduce tensor shapes: [4] on ranks 0, 2, [5] on rank 1") !=
        std::string::npos);
  for (size_t rank = 0; rank < 3; ++rank) {
    job[rank].submit("x", encode(tensor({4})));
  }
  CHECK(job.turn()[0].what == What::run);
}

TEST_CASE("more names than the cache holds") {
  Job job(2, {.cache_capacity = 3});
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 5; ++i) {
      job[0].submit(std::to_string(i), encode(tensor({i})));
      job[1].submit(std::to_string(4 - i), encode(tensor({4 - i})));
    }
    size_t tensors = 0;
    for (const auto& response : job.turn()) {
      CHECK(response.what == What::run);
      tensors += response.tensors.size();
    }
    CHECK(tensors == 5);
  }
}

TEST_CASE("all kinds of disagreement have their words") {
  const auto said = [](const Request& first, const Request& second) {
    Job job(2);
    job[0].submit("t", encode(first));
    job[1].submit("t", encode(second));
    const auto responses = job.turn();
    REQUIRE(responses.size() == 1);
    REQUIRE(responses[0].what == What::fail);
    return responses[0].error->message();
  };
  const auto changed = [](Request request, auto change) {
    change(request);
    return request;
  };
  const Request plain = tensor({2, 3});
  CHECK(said(plain, changed(plain, [](Request& r) { r.dtype = Dtype::i32; })) ==
        "comm: \"t\": Mismatched data types: float32 on rank 0, int32 on rank 1");
  CHECK(said(plain, tensor({2, 3}, NamedKind::all_gather)) ==
        "comm: \"t\": Mismatched operations: allreduce on rank 0, allgather on rank 1");
  CHECK(said(tensor({2, 3}, NamedKind::broadcast), tensor({3, 2}, NamedKind::broadcast)) ==
        "comm: \"t\": Mismatched broadcast tensor shapes: [2, 3] on rank 0, [3, 2] on rank 1");
  CHECK(said(tensor({2, 3}, NamedKind::all_gather), tensor({2, 4}, NamedKind::all_gather)) ==
        "comm: \"t\": Mismatched allgather tensor shapes: dimension 1 is 3 on rank 0, 4 on rank 1");
  CHECK(said(tensor({2, 3}, NamedKind::all_gather), tensor({2}, NamedKind::all_gather)) ==
        "comm: \"t\": Mismatched allgather tensor shapes: number of dimensions is 2 on rank 0, 1 "
        "on rank 1");
  CHECK(said(tensor({}, NamedKind::all_gather), tensor({}, NamedKind::all_gather))
            .find("rank-zero tensor") != std::string::npos);
  CHECK(said(plain, changed(plain, [](Request& r) { r.op = Op::max; })) ==
        "comm: \"t\": Mismatched reduction operation: sum on rank 0, max on rank 1");
  CHECK(said(plain, changed(plain, [](Request& r) { r.prescale = 0.5; })) ==
        "comm: \"t\": Mismatched prescale and/or postscale factors: 1 and 1 on rank 0, 0.5 and 1 "
        "on rank 1");
  CHECK(said(tensor({2}, NamedKind::broadcast),
             changed(tensor({2}, NamedKind::broadcast), [](Request& r) { r.root = 1; })) ==
        "comm: \"t\": Mismatched broadcast root ranks: 0 on rank 0, 1 on rank 1");
  CHECK(said(plain, changed(plain, [](Request& r) {
               r.group = "g";
               r.group_size = 2;
             })) == "comm: \"t\": Mismatched groups: \"\" of 0 on rank 0, \"g\" of 2 on rank 1");
}

TEST_CASE("rows of an allgather may differ") {
  Job job(2);
  job[0].submit("t", encode(tensor({2, 3}, NamedKind::all_gather)));
  job[1].submit("t", encode(tensor({5, 3}, NamedKind::all_gather)));
  const auto responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].what == What::run);
  CHECK(responses[0].tensors[0]->requests[1]->rows() == 5);
}

TEST_CASE("small allreduces of one kind are fused up to the threshold") {
  Job job(2, {.fusion_bytes = 10'000});
  for (size_t rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 5; ++i) {
      job[rank].submit("f" + std::to_string(i), encode(tensor({1000})));  // 4000 bytes
    }
    Request other = tensor({10});
    other.dtype = Dtype::f64;
    job[rank].submit("d", encode(other));
    job[rank].submit("large", encode(tensor({100'000})));
  }
  const auto responses = job.turn();
  std::vector<std::vector<std::string>> names;
  for (const auto& response : responses) {
    names.push_back(Job::names(response));
  }
  CHECK(names == std::vector<std::vector<std::string>>{
                     {"f0", "f1"}, {"f2", "f3"}, {"f4"}, {"d"}, {"large"}});
}

TEST_CASE("a group runs when all its members are there, and fails as one") {
  Job job(2);
  const auto grouped = [](int64_t count) {
    Request request = tensor({count});
    request.group = "g";
    request.group_size = 2;
    return request;
  };
  job[0].submit("g.0", encode(grouped(3)));
  job[1].submit("g.0", encode(grouped(3)));
  CHECK(job.turn().empty());
  job[0].submit("g.1", encode(grouped(4)));
  job[1].submit("g.1", encode(grouped(4)));
  auto responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(Job::names(responses[0]) == std::vector<std::string>{"g.0", "g.1"});

  job[0].submit("g.0", encode(grouped(3)));
  job[0].submit("g.1", encode(grouped(4)));
  job[1].submit("g.0", encode(grouped(3)));
  job[1].submit("g.1", encode(grouped(5)));
  responses = job.turn();
  REQUIRE(responses.size() == 2);
  CHECK(responses[0].what == What::fail);
  CHECK(responses[1].what == What::fail);
  CHECK_FALSE(job[0].waiting());
}

TEST_CASE("a group that lacks members is a stall; one that ranks do not agree on fails") {
  Job job(2);
  const auto grouped = [](const std::string& group) {
    Request request = tensor({3});
    request.group = group;
    request.group_size = 2;
    return encode(request);
  };
  job[0].submit("a", grouped("g"));
  job[1].submit("a", grouped("g"));
  CHECK(job.turn(Micros(5)).empty());
  CHECK(job[0].waiting());
  const auto stalls = job[0].stalled(Micros(5));
  REQUIRE(stalls.size() == 1);
  CHECK(stalls[0].name == "a (with 1 of the 2 members of its group)");
  job[0].submit("b", grouped("g"));
  job[1].submit("b", grouped("another"));
  const auto responses = job.turn();
  REQUIRE(responses.size() == 2);
  CHECK(responses[0].what == What::fail);
  CHECK(responses[1].what == What::fail);
  CHECK(Job::names(responses[1]) == std::vector<std::string>{"a"});
  CHECK_FALSE(job[0].waiting());
}

TEST_CASE("settings that differ are told with both") {
  Negotiator first(0, {0, 1}, {.settings = "cache_capacity 3"});
  Negotiator second(1, {0, 1}, {.settings = "cache_capacity 4"});
  const std::string messages[] = {first.message(), second.message()};
  const std::vector<std::string_view> views(std::begin(messages), std::end(messages));
  const auto refused = second.receive(views, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Errc::mismatch);
  CHECK(refused.error().message().find(
            "rank 0 has cache_capacity 3, rank 1 has cache_capacity 4") != std::string::npos);
}

TEST_CASE("who has joined is not waited for, until all have") {
  Job job(3);
  job[0].submit("early", encode(tensor({1})));
  CHECK(job.turn().empty());
  job[2].join();
  job[1].submit("early", encode(tensor({1})));
  auto responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].what == What::run);
  CHECK(responses[0].tensors[0]->requests[2] == nullptr);

  job[0].submit("gather", encode(tensor({1}, NamedKind::all_gather)));
  job[1].submit("gather", encode(tensor({1}, NamedKind::all_gather)));
  responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].what == What::fail);
  CHECK(responses[0].error->message().find("not supported with Join: rank 2 joined") !=
        std::string::npos);

  job[1].join();
  CHECK(job.turn().empty());
  job[0].join();
  responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].what == What::joined);
  CHECK(responses[0].rank == 0);
  // All take part again.
  job[0].submit("late", encode(tensor({1})));
  CHECK(job.turn().empty());
}

TEST_CASE("the report of a stall tells who waits for whom") {
  Job job(3);
  job[0].submit("layer_1.weight", encode(tensor({1})));
  job[1].submit("layer_1.weight", encode(tensor({1})));
  job[2].submit("layer_2.weight", encode(tensor({1})));
  job.turn(Micros(1'000'000));
  CHECK(job[0].stalled(Micros(500'000)).empty());
  const auto stalls = job[0].stalled(Micros(1'000'000));
  REQUIRE(stalls.size() == 2);
  CHECK(stalls[0].missing == std::vector<int>{2});
  CHECK(job[0].stall_report({stalls[0]}, Micros(71'000'000)) ==
        "one or more tensors were submitted by a subset of ranks, which wait for the others:\n"
        "  layer_1.weight for 70 s on ranks 0-1\n"
        "Missing ranks:\n"
        "2: [layer_1.weight]; it waits for \"layer_2.weight\" itself; its last: layer_2.weight");
}

TEST_CASE("the report of a stall cuts long names, and shows no control characters") {
  Job job(2);
  for (const size_t rank : {0U, 1U}) {
    for (size_t i = 0; i < 20; ++i) {
      const std::string name =
          std::string(60'000, 'n') + "\x1b[2J" + std::to_string(rank * 100 + i);
      job[rank].submit(name, encode(tensor({1})));
    }
    job[rank].submit("a\x1b[2J" + std::to_string(rank), encode(tensor({1})));
  }
  job.turn(Micros(1'000'000));
  const auto stalls = job[0].stalled(Micros(1'000'000));
  CHECK(stalls.size() == 42);
  const std::string report = job[0].stall_report(stalls, Micros(71'000'000));
  CHECK(report.size() < 10'000);
  CHECK(report.find("nnn... (600") != std::string::npos);
  CHECK(report.find("a\\x1b[2J1") != std::string::npos);
  CHECK(report.find('\x1b') == std::string::npos);
}

TEST_CASE("the end is told to all, with who asked for it") {
  Job job(2);
  job[1].shutdown(Errc::cancelled, "ValueError: no data");
  const auto responses = job.turn();
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].what == What::shutdown);
  CHECK(responses[0].rank == 1);
  CHECK(responses[0].error->message() == "ValueError: no data");
}

TEST_CASE("messages that are none are refused") {
  std::vector<int> world = {0, 1};
  base::Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    Negotiator one(0, world, {});
    one.submit("a", encode(tensor({3})));
    std::string own = one.message();
    std::string other = own;
    other[rng.below(other.size())] = static_cast<char>(rng.below(256));
    other.resize(rng.below(other.size() + 1));
    const std::vector<std::string_view> views = {own, other};
    static_cast<void>(one.receive(views, {}));  // an error or not, but no crash
  }
  Negotiator one(0, world, {});
  const std::vector<std::string_view> views = {"", "\x01"};
  CHECK_FALSE(one.receive(views, {}).ok());
}

TEST_CASE("random orders: every tensor runs exactly once") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    base::Rng rng(seed);
    Job job(4, {.fusion_bytes = 3000, .cache_capacity = 16});
    std::vector<int> ran(30, 0);
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<int>> left(4);
      for (auto& order : left) {
        order.resize(ran.size());
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = order.size(); i > 1; --i) {
          std::swap(order[i - 1], order[rng.below(i)]);
        }
      }
      for (int turns = 0; turns < 1000; ++turns) {
        for (size_t rank = 0; rank < 4; ++rank) {
          for (uint64_t n = rng.below(4); n > 0 && !left[rank].empty(); --n) {
            const int i = left[rank].back();
            left[rank].pop_back();
            job[rank].submit("t" + std::to_string(i), encode(tensor({i * 20})));
          }
        }
        for (const auto& response : job.turn()) {
          for (const auto& one : response.tensors) {
            ++ran[static_cast<size_t>(std::stoi(one->name.substr(1)))];
          }
        }
      }
      CHECK(ran == std::vector<int>(30, step + 1));
      CHECK_FALSE(job[0].waiting());
    }
  }
}

TEST_CASE("what rank 0 tunes counts on all ranks from the same turn on") {
  Job job(3);
  Request request;
  request.shape = {10};
  const auto submit = [&](const char* name) {
    for (size_t rank = 0; rank < 3; ++rank) {
      job[rank].submit(name, encode(request));
    }
  };
  submit("a");
  submit("b");
  CHECK(job.turn().size() == 1);  // fused
  submit("a");
  submit("b");
  job[0].tune({.fusion_bytes = 0, .cycle_time = std::chrono::microseconds(7)});
  CHECK(job[0].has_news());
  CHECK(job.turn().size() == 2);  // not fused
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(job[rank].take_tuned() == Tuned{0, std::chrono::microseconds(7)});
    CHECK(!job[rank].take_tuned());
  }

  job[1].tune({});
  std::vector<std::string> messages;
  for (size_t rank = 0; rank < 3; ++rank) {
    messages.push_back(job[rank].message());
  }
  const std::vector<std::string_view> views(messages.begin(), messages.end());
  const auto received = job[0].receive(views, {});
  REQUIRE(!received.ok());
  CHECK(received.error().code() == Errc::corrupt);  // no other rank may
}

}  // namespace
}  // namespace headrace::comm
