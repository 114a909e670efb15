// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/agent_message.h"

#include <doctest/doctest.h>

#include "headrace/base/random.h"

namespace headrace::run {

TEST_CASE("messages of agents come back as they went") {
  AgentStart start;
  start.job = "j";
  start.argv = {"python", "a b\xff"};
  start.folder = "/x\n";
  start.environment = {{"A", ""}, {"B", "\xc3\xa9\x01"}};
  start.cores_per_rank = 2;
  start.ranks = {{3, {{"RANK", "3"}}}, {4, {}}};
  const auto back = parse_start(json_of(start).dump());
  REQUIRE_MESSAGE(back.ok(), back.error().message());
  CHECK(back->argv == start.argv);
  CHECK(back->folder == start.folder);
  CHECK(back->environment == start.environment);
  CHECK(back->cores_per_rank == 2);
  REQUIRE(back->ranks.size() == 2);
  CHECK(back->ranks[0].variables == start.ranks[0].variables);

  const RankEnd end = {.rank = 5,
                       .pid = 6,
                       .code = -1,
                       .signal = 9,
                       .ok = false,
                       .text = "SIGKILL",
                       .wall_ms = 7,
                       .metrics = "{\"a\": 1}"};
  const auto end_back = parse_end(json_of(end).dump());
  REQUIRE(end_back.ok());
  CHECK(end_back->rank == 5);
  CHECK(end_back->signal == 9);
  CHECK(end_back->text == "SIGKILL");
  CHECK(end_back->metrics == end.metrics);

  const auto welcome =
      parse_welcome(json_of({.version = "1", .host = "h", .free_port = 20000}).dump());
  REQUIRE(welcome.ok());
  CHECK(welcome->free_port == 20000);

  const Error error = parse_error(json_of(Error{Errc::busy, "no room"}).dump());
  CHECK(error.code() == Errc::busy);
  CHECK(error.message() == "no room");

  const std::string payload = encode_output({.rank = 300, .stream = Stream::err, .bytes = "x\0y"});
  const auto piece = parse_output(payload);
  REQUIRE(piece.ok());
  CHECK(piece->rank == 300);
  CHECK(piece->stream == Stream::err);
  CHECK(piece->bytes == "x");
}

TEST_CASE("what no agent says is an error") {
  for (const char* text : {"", "[]", "{}", "{\"argv\":[]}", "{\"argv\":[\"zz\"]}", "nonsense"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_start(text).ok());
    CHECK_FALSE(parse_end(text).ok());
    CHECK_FALSE(parse_welcome(text).ok());
    CHECK(parse_error(text).code() == Errc::corrupt);
    CHECK_FALSE(parse_output(std::string_view(text).substr(0, 4)).ok());
  }
  AgentStart nobody;
  nobody.argv = {"a"};
  CHECK_FALSE(parse_start(json_of(nobody).dump()).ok());
  CHECK_FALSE(parse_output(std::string("\0\0\0\x80\0x", 6)).ok());
  CHECK_FALSE(parse_output(std::string("\0\0\0\0\2x", 6)).ok());
}

TEST_CASE("orders with bytes changed are read or refused, never more") {
  AgentStart start;
  start.job = "j";
  start.argv = {"a"};
  start.ranks = {{0, {{"RANK", "0"}}}};
  const std::string good = json_of(start).dump();
  const uint64_t seed = 11;
  base::Rng rng(seed);
  CAPTURE(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    text[rng.below(text.size())] = static_cast<char>(rng.below(256));
    const auto order = parse_start(text);
    CHECK((order.ok() || !order.error().message().empty()));
  }
}

}  // namespace headrace::run
