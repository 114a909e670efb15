// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <string>

#include "headrace/base/random.h"
#include "headrace/wire/store.h"

namespace headrace::wire {

namespace {

using base::Micros;
using std::chrono::milliseconds;
using Texts = std::vector<std::string>;

/// A store and a clock that stands still until it is told to go on.
struct Store {
  StoreState state;
  Micros now = std::chrono::hours(1);
  explicit Store(const StoreLimits& limits = {}) : state(limits) {}

  /// Ask; the answers to all clients since the last time.
  std::vector<StoreState::Answer> ask(uint64_t client, StoreOp op, Texts texts, int64_t number = 0,
                                      uint64_t ms = 0) {
    state.on_request(
        client, op, {.id = client * 100, .number = number, .detail = ms, .texts = std::move(texts)},
        now);
    return state.take_answers();
  }
  StoreMessage one(StoreOp op, Texts texts, int64_t number = 0, uint64_t ms = 0) {
    auto answers = ask(1, op, std::move(texts), number, ms);
    REQUIRE(answers.size() == 1);
    return answers[0].message;
  }
  std::vector<StoreState::Answer> pass(Micros time) {
    now += time;
    state.on_time(now);
    return state.take_answers();
  }
};

StoreStatus status_of(const StoreMessage& answer) {
  return static_cast<StoreStatus>(answer.detail);
}
StoreStatus status_of(const StoreState::Answer& answer) { return status_of(answer.message); }

}  // namespace

TEST_CASE("a key has the value that was set last, until it is removed") {
  Store store;
  CHECK(status_of(store.one(StoreOp::get, {"a"})) == StoreStatus::not_found);
  CHECK(status_of(store.one(StoreOp::set, {"a", "1"})) == StoreStatus::ok);
  CHECK(status_of(store.one(StoreOp::set, {"a", std::string("\0\xff", 2)})) == StoreStatus::ok);
  CHECK(store.one(StoreOp::get, {"a"}).texts == Texts{std::string("\0\xff", 2)});
  CHECK(store.one(StoreOp::remove, {"a"}).number == 1);
  CHECK(store.one(StoreOp::remove, {"a"}).number == 0);
  CHECK(store.state.keys() == 0);
  CHECK(store.state.bytes() == 0);
}

TEST_CASE("numbers are added to, and what is none is a mismatch") {
  Store store;
  CHECK(store.one(StoreOp::add, {"n"}, 5).number == 5);
  CHECK(store.one(StoreOp::add, {"n"}, -7).number == -2);
  CHECK(store.one(StoreOp::get, {"n"}).texts == Texts{"-2"});
  store.one(StoreOp::set, {"n", "two"});
  CHECK(status_of(store.one(StoreOp::add, {"n"}, 1)) == StoreStatus::mismatch);
  store.one(StoreOp::set, {"n", std::to_string(INT64_MAX)});
  CHECK(status_of(store.one(StoreOp::add, {"n"}, 1)) == StoreStatus::mismatch);
}

TEST_CASE("compare-and-set changes a value only from what was expected") {
  Store store;
  CHECK(store.one(StoreOp::compare_and_set, {"fault/3", "rank 5"}).number == 1);
  StoreMessage second = store.one(StoreOp::compare_and_set, {"fault/3", "rank 2"});
  CHECK(second.number == 0);
  CHECK(second.texts == Texts{"rank 5"});  // the first cause wins
  CHECK(store.one(StoreOp::compare_and_set, {"fault/3", "rank 2", "rank 5"}).number == 1);
  CHECK(store.one(StoreOp::compare_and_set, {"none", "x", "y"}).texts.empty());
}

TEST_CASE("a wait ends when the last of its keys comes, and names those that are missing") {
  Store store;
  CHECK(store.ask(1, StoreOp::wait, {"b", "a", "c", "a"}, 0, 1000).empty());
  CHECK(store.ask(2, StoreOp::set, {"a", ""}).size() == 1);
  CHECK(store.ask(2, StoreOp::set, {"b", ""}).size() == 1);
  CHECK(store.ask(2, StoreOp::remove, {"a"}).size() == 1);
  CHECK(store.ask(2, StoreOp::set, {"c", ""}).size() == 1);  // a is missing again
  auto answers = store.ask(2, StoreOp::set, {"a", ""});
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].client == 1);
  CHECK(answers[0].message.id == 100);
  CHECK(status_of(answers[0]) == StoreStatus::ok);
  CHECK(store.state.waits() == 0);

  CHECK(store.ask(1, StoreOp::wait, {"x", "a", "y"}, 0, 1000).empty());
  CHECK(store.state.next_time() == store.now + milliseconds(1000));
  CHECK(store.pass(milliseconds(999)).empty());
  answers = store.pass(milliseconds(1));
  REQUIRE(answers.size() == 1);
  CHECK(status_of(answers[0]) == StoreStatus::timeout);
  CHECK(answers[0].message.number == 2);
  CHECK(answers[0].message.texts == Texts{"x", "y"});
  CHECK_FALSE(store.state.next_time().has_value());

  CHECK(status_of(store.one(StoreOp::wait, {"a", "b"})) == StoreStatus::ok);
  CHECK(status_of(store.one(StoreOp::wait, {"a", "z"})) == StoreStatus::timeout);
}

TEST_CASE("a wait for a count ends with the key that makes it full") {
  Store store;
  store.one(StoreOp::set, {"rank/0", ""});
  store.one(StoreOp::set, {"ranks", ""});
  for (const uint64_t client : {5U, 6U}) {
    CHECK(store.ask(client, StoreOp::wait_count, {"rank/"}, 3, 1000).empty());
  }
  CHECK(store.ask(7, StoreOp::wait_count, {"rank/"}, 4, 1000).empty());
  CHECK(store.ask(1, StoreOp::set, {"rank/1", ""}).size() == 1);
  CHECK(store.ask(1, StoreOp::set, {"rank/1", "again"}).size() == 1);
  const auto answers = store.ask(1, StoreOp::set, {"rank/2", ""});
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].client == 5);
  CHECK(answers[1].client == 6);
  CHECK(answers[0].message.number == 3);
  CHECK(store.one(StoreOp::wait_count, {"rank/"}, 2).number == 3);

  const auto late = store.pass(milliseconds(1000));
  REQUIRE(late.size() == 1);
  CHECK(late[0].client == 7);
  CHECK(status_of(late[0]) == StoreStatus::timeout);
  CHECK(late[0].message.number == 3);
  CHECK(store.state.waits() == 0);
}

TEST_CASE("a key with a time to live ends then, and a later set decides anew") {
  Store store;
  store.one(StoreOp::set, {"lease", "me"}, 0, 500);
  store.one(StoreOp::set, {"kept", "x"}, 0, 500);
  store.one(StoreOp::set, {"kept", "x"});
  store.one(StoreOp::compare_and_set, {"lock", "a"}, 0, 700);
  store.pass(milliseconds(499));
  CHECK(store.one(StoreOp::get, {"lease"}).texts == Texts{"me"});
  store.now += milliseconds(1);  // nobody has told the store; a request does
  CHECK(status_of(store.one(StoreOp::get, {"lease"})) == StoreStatus::not_found);
  CHECK(store.one(StoreOp::get, {"kept"}).texts == Texts{"x"});
  store.pass(milliseconds(200));
  CHECK(store.one(StoreOp::compare_and_set, {"lock", "b"}).number == 1);

  store.one(StoreOp::set, {"m/1", ""}, 0, 10);
  CHECK(store.ask(2, StoreOp::wait_count, {"m/"}, 2, 1000).empty());
  CHECK(store.ask(3, StoreOp::wait, {"m/1", "m/2"}, 0, 1000).empty());
  store.pass(milliseconds(10));
  CHECK(store.ask(1, StoreOp::set, {"m/2", ""}).size() == 1);  // m/1 has gone: neither is full
  CHECK(store.ask(1, StoreOp::set, {"m/1", ""}).size() == 3);
}

TEST_CASE("a list is sorted, and comes in parts when it is long") {
  StoreLimits limits;
  limits.list_bytes_max = 40;
  Store store(limits);
  for (const char* key : {"p/3", "p/1", "q", "p/2", "o"}) {
    store.one(StoreOp::set, {key, "0123456789"});
  }
  StoreMessage part = store.one(StoreOp::list, {"p/", ""});
  CHECK(part.texts == Texts{"p/1", "0123456789"});
  CHECK(part.number == 1);
  part = store.one(StoreOp::list, {"p/", "p/1"});
  CHECK(part.texts == Texts{"p/2", "0123456789"});
  part = store.one(StoreOp::list, {"p/", "p/2"});
  CHECK(part.number == 0);
  CHECK(store.one(StoreOp::list, {"p/", "p/3"}).texts.empty());
  CHECK(store.one(StoreOp::list, {"none", ""}).texts.empty());
}

TEST_CASE("what is too large or too much is refused, and what was there stays") {
  StoreLimits limits;
  limits.key_bytes_max = 8;
  limits.value_bytes_max = 100;
  limits.total_bytes_max = 300;
  limits.wait_keys_max = 3;
  limits.waits_per_client_max = 2;
  Store store(limits);
  CHECK(status_of(store.one(StoreOp::set, {"123456789", ""})) == StoreStatus::refused);
  CHECK(status_of(store.one(StoreOp::set, {"", "x"})) == StoreStatus::refused);
  CHECK(status_of(store.one(StoreOp::set, {"k", std::string(101, 'x')})) == StoreStatus::refused);
  CHECK(status_of(store.one(StoreOp::set, {"k"})) == StoreStatus::refused);
  CHECK(status_of(store.one(static_cast<StoreOp>(99), {"k"})) == StoreStatus::refused);
  CHECK(status_of(store.one(StoreOp::wait, {})) == StoreStatus::refused);

  CHECK(status_of(store.one(StoreOp::set, {"k", std::string(100, 'x')})) == StoreStatus::ok);
  CHECK(status_of(store.one(StoreOp::set, {"l", ""})) == StoreStatus::full);
  CHECK(status_of(store.one(StoreOp::set, {"k", ""})) == StoreStatus::ok);
  CHECK(status_of(store.one(StoreOp::set, {"l", ""})) == StoreStatus::ok);

  CHECK(status_of(store.one(StoreOp::wait, {"a", "b", "c", "d"}, 0, 9)) == StoreStatus::full);
  CHECK(store.ask(1, StoreOp::wait, {"a"}, 0, 9).empty());
  CHECK(store.ask(1, StoreOp::wait_count, {"z"}, 1, 9).empty());
  CHECK(status_of(store.one(StoreOp::wait, {"b"}, 0, 9)) == StoreStatus::full);
  store.state.on_client_gone(1);
  CHECK(store.state.waits() == 0);
  CHECK_FALSE(store.state.next_time().has_value());
  CHECK(store.ask(1, StoreOp::wait, {"a", "b", "c"}, 0, 9).empty());
}

TEST_CASE("ten thousand ranks that meet cost a request each, whoever comes last") {
  constexpr uint64_t kRanks = 10'000;
  Store store;
  size_t answered = 0;
  for (uint64_t rank = 0; rank < kRanks; ++rank) {
    for (const auto& answer :
         store.ask(rank, StoreOp::set, {"rank/" + std::to_string(rank), "x"})) {
      answered += answer.op == StoreOp::wait_count ? 1 : 0;
    }
    answered += store.ask(rank, StoreOp::wait_count, {"rank/"}, kRanks, 60'000).size();
  }
  CHECK(answered == kRanks);
  CHECK(store.state.waits() == 0);
}

TEST_CASE("a store agrees with a plain map over random requests") {
  constexpr uint64_t kSeed = 20261130;
  CAPTURE(kSeed);
  base::Rng rng(kSeed);
  Store store;
  std::map<std::string, std::string> plain;
  for (int i = 0; i < 20'000; ++i) {
    const std::string key(1, static_cast<char>('a' + rng.below(6)));
    const std::string value = std::to_string(rng.below(4));
    switch (rng.below(5)) {
      case 0:
        store.one(StoreOp::set, {key, value});
        plain[key] = value;
        break;
      case 1: {
        const StoreMessage answer = store.one(StoreOp::get, {key});
        CHECK((status_of(answer) == StoreStatus::ok) == plain.contains(key));
        CHECK((answer.texts.empty() || answer.texts[0] == plain[key]));
        break;
      }
      case 2:
        CHECK(store.one(StoreOp::remove, {key}).number == (plain.erase(key) > 0 ? 1 : 0));
        break;
      case 3: {
        const std::string expected = std::to_string(rng.below(4));
        const bool same = plain.contains(key) && plain[key] == expected;
        CHECK(store.one(StoreOp::compare_and_set, {key, value, expected}).number == (same ? 1 : 0));
        if (same) {
          plain[key] = value;
        }
        break;
      }
      default: {
        const bool there = plain.contains(key) && plain.contains("a");
        CHECK((status_of(store.one(StoreOp::wait, {key, "a"})) == StoreStatus::ok) == there);
      }
    }
  }
  CHECK(store.state.keys() == plain.size());
}

TEST_CASE("messages read back as they were written, and other bytes are corrupt") {
  const StoreMessage message{.id = UINT64_MAX,
                             .number = INT64_MIN,
                             .detail = 7,
                             .texts = {"", "key", std::string("\0\xff", 2)}};
  const std::string bytes = encode_store_message(message);
  const auto read = decode_store_message(bytes);
  REQUIRE(read.ok());
  CHECK(*read == message);
  for (size_t count = 0; count < bytes.size(); ++count) {
    CHECK(decode_store_message(std::string_view(bytes).substr(0, count)).error().code() ==
          Errc::corrupt);
  }
  CHECK(!decode_store_message(bytes + "x").ok());
  std::string many = bytes;
  many[27] = '\x7f';  // two billion texts
  CHECK(!decode_store_message(many).ok());
}

}  // namespace headrace::wire
