// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/settings.h"

#include <doctest/doctest.h>

#include <vector>

namespace headrace::comm {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

std::string error_of(const Variables& variables) {
  Config config;
  const auto read = read_settings(variables, &config);
  return read.ok() ? "" : read.error().message();
}

TEST_CASE("settings are taken from their variables") {
  Config config;
  const Variables variables = {{"HEADRACE_COMM_TRANSPORT", "tcp"},
                               {"HEADRACE_COMM_TIMEOUT_MS", "1500"},
                               {"HEADRACE_COMM_HB_MS", "100"},
                               {"HEADRACE_COMM_HB_MISS", "3"},
                               {"HEADRACE_COMM_FLIGHT_DIR", "flights"},
                               {"HEADRACE_IFACE", "eth0"},
                               {"PATH", "/bin"},
                               {"HOROVOD_GLOO_IFACE", "eth1"}};
  REQUIRE(read_settings(variables, &config).ok());
  CHECK(config.transport == Transport::tcp);
  CHECK(config.timeout.count() == 1500);
  CHECK(config.hb_ms.count() == 100);
  CHECK(config.hb_miss == 3);
  CHECK(config.flight_folder == "flights");
  CHECK(config.iface == "eth0");
  REQUIRE(
      read_settings(Variables{{"HEADRACE_COMM_IFACE", "ib*"}, {"HEADRACE_IFACE", "eth0"}}, &config)
          .ok());
  CHECK(config.iface == "ib*");
  const Variables empty = {{"HEADRACE_COMM_TRANSPORT", ""}};
  Config untouched;
  REQUIRE(read_settings(empty, &untouched).ok());
  CHECK(untouched.transport == Transport::automatic);
}

TEST_CASE("values and names that are none are refused with their name") {
  CHECK(error_of({{"HEADRACE_COMM_HB_MS", "0"}}) ==
        "comm: HEADRACE_COMM_HB_MS is \"0\"; it takes a whole number from 1 on");
  CHECK(error_of({{"HEADRACE_COMM_HB_MISS", "3x"}}).find("HEADRACE_COMM_HB_MISS is \"3x\"") !=
        std::string::npos);
  CHECK(error_of({{"HEADRACE_COMM_TRANSPORT", "udp"}}).find("HEADRACE_COMM_TRANSPORT") == 0);
  CHECK(error_of({{"HEADRACE_COMM_TRANSPROT", "tcp"}}) ==
        "comm: no setting is called HEADRACE_COMM_TRANSPROT; after HEADRACE_COMM_ there may be "
        "TIMEOUT_MS, HB_MS, HB_MISS, IFACE, TRANSPORT and FLIGHT_DIR");
}

}  // namespace
}  // namespace headrace::comm
