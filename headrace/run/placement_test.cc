// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/placement.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace headrace::run {

TEST_CASE("hosts are names with slots") {
  CHECK(*parse_hosts("a") == std::vector<Host>{{"a", 1}});
  CHECK(*parse_hosts("a:2, b:3") == std::vector<Host>{{"a", 2}, {"b", 3}});
  CHECK(*parse_hosts("[fe80::1]:4,10.0.0.1:2") ==
        std::vector<Host>{{"fe80::1", 4}, {"10.0.0.1", 2}});
}

TEST_CASE("what is wrong with hosts is said") {
  for (const auto& [text, part] : std::vector<std::pair<const char*, const char*>>{
           {"", "names no host"},
           {"a:2,", "names no host"},
           {"a:0", "\"0\" is no number of slots"},
           {"a:two", "\"two\" is no number"},
           {"a:2,a:3", "the host a is given twice"},
           {"fe80::1:4", "stands in brackets"},
       }) {
    const auto hosts = parse_hosts(text);
    REQUIRE_FALSE(hosts.ok());
    CHECK(hosts.error().code() == Errc::invalid_argument);
    CHECK_MESSAGE(hosts.error().message().find(part) != std::string::npos, hosts.error().message());
  }
}

TEST_CASE("a file of hosts has comments, and errors name its lines") {
  CHECK(*parse_hostfile("# ours\n a slots=2 \n\nb:3 # big\r\nc\n", "hosts") ==
        std::vector<Host>{{"a", 2}, {"b", 3}, {"c", 1}});
  CHECK(parse_hostfile("a slots=2\nb slot=1\n", "hosts")
            .error()
            .message()
            .starts_with("hosts, line 2"));
  CHECK(parse_hostfile("a\na\n", "hosts").error().message().starts_with("hosts, line 2"));
  CHECK(parse_hostfile("# none\n", "hosts").error().message().find("names no host") !=
        std::string::npos);
}

TEST_CASE("slots are filled host by host") {
  const auto places = *place_ranks({{"a", 2}, {"b", 1}, {"c", 3}}, 5);
  REQUIRE(places.size() == 5);
  const Place last = {.rank = 4,
                      .size = 5,
                      .local_rank = 1,
                      .local_size = 2,
                      .cross_rank = 1,
                      .cross_size = 2,
                      .host = 2,
                      .host_name = "c"};
  CHECK(places[4] == last);
  CHECK(places[2].host_name == "b");
  CHECK(places[2].cross_rank == 1);
  CHECK(places[2].cross_size == 3);
  const auto few = place_ranks({{"a", 2}}, 3);
  CHECK(few.error().message().find("3 ranks are asked for, and the hosts have 2 slots") !=
        std::string::npos);
}

TEST_CASE("every rank has a cross rank of its own among those with its local rank") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const auto places = *place_ranks({{"a", 4}, {"b", 2}, {"c", 3}}, ranks);
    for (const Place& place : places) {
      std::vector<int> cross;
      for (const Place& other : places) {
        if (other.local_rank == place.local_rank) {
          cross.push_back(other.cross_rank);
        }
      }
      std::sort(cross.begin(), cross.end());
      REQUIRE(static_cast<int>(cross.size()) == place.cross_size);
      for (size_t i = 0; i < cross.size(); ++i) {
        CHECK(cross[i] == static_cast<int>(i));
      }
    }
  }
}

}  // namespace headrace::run
