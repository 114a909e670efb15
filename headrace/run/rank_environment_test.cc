// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/rank_environment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "headrace/run/port.h"

namespace headrace::run {

namespace {

std::map<std::string, std::string> map_of(const Variables& variables) {
  return {variables.begin(), variables.end()};
}

}  // namespace

TEST_CASE("a rank's variables are Horovod's, torch's and ours") {
  JobFacts facts;
  facts.job = "j";
  facts.store = "127.0.0.1:5";
  facts.master_address = "127.0.0.1";
  facts.master_port = 6;
  facts.host_sizes = {2, 1};
  facts.settings = {{"HOROVOD_CYCLE_TIME", "2.0"}};
  auto all = map_of(rank_variables({.rank = 2,
                                    .size = 3,
                                    .local_rank = 0,
                                    .local_size = 1,
                                    .cross_rank = 1,
                                    .cross_size = 2,
                                    .host = 1,
                                    .host_name = "b"},
                                   facts));
  CHECK(all["HOROVOD_RANK"] == "2");
  CHECK(all["HEADRACE_CROSS_SIZE"] == "2");
  CHECK(all["LOCAL_WORLD_SIZE"] == "1");
  CHECK(all["MASTER_PORT"] == "6");
  CHECK(all["HEADRACE_HOST_SIZES"] == "2,1");
  CHECK(all["HOROVOD_CYCLE_TIME"] == "2.0");
  CHECK(all["HOROVOD_HOSTNAME"] == "b");
}

TEST_CASE("cores are divided in blocks, and shared when there are too few") {
  const std::vector<int> cores = {0, 1, 2, 3, 8, 9, 10};
  const auto equal = *divide_cores(cores, 7, 2, 0);
  CHECK(equal[0].cores == std::vector<int>{0, 1, 2});
  CHECK(equal[1].cores == std::vector<int>{3, 8, 9});
  CHECK(equal[0].threads == 3);
  const auto many = *divide_cores(cores, 7, 8, 0);
  CHECK(many[7].cores.empty());
  CHECK(many[7].threads == 1);
  const auto wanted = *divide_cores(cores, 7, 3, 1);
  CHECK(wanted[2].cores == std::vector<int>{2});
  CHECK(divide_cores(cores, 7, 2, 4).error().code() == Errc::invalid_argument);
  // The control group pays for two of them.
  const auto paid = *divide_cores(cores, 2, 2, 0);
  CHECK(paid[0].cores.size() == 3);
  CHECK(paid[0].threads == 1);
}

TEST_CASE("threads that the user has set stay") {
  auto all = map_of(thread_variables(
      3, [](const char* name) { return std::string_view(name) == "OMP_NUM_THREADS"; }));
  CHECK(all.count("OMP_NUM_THREADS") == 0);
  CHECK(all["MKL_NUM_THREADS"] == "3");
}

TEST_CASE("reserved ports are free, and different ones") {
  std::vector<ReservedPort> held;
  std::vector<uint16_t> numbers;
  for (int i = 0; i < 20; ++i) {
    auto port = ReservedPort::take();
    REQUIRE(port.ok());
    numbers.push_back(port->number());
    held.push_back(*std::move(port));
    CHECK(wire::Listener::bind(wire::Endpoint::tcp("127.0.0.1", numbers.back())).ok());
  }
  std::sort(numbers.begin(), numbers.end());
  CHECK(std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
}

}  // namespace headrace::run
