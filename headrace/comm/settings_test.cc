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
                               {"HEADRACE_COMM_STREAMS", "4"},
                               {"HEADRACE_COMM_WIRE16", "bf16"},
                               {"HEADRACE_COMM_FLIGHT_DIR", "flights"},
                               {"HEADRACE_COMM_PORT_RANGE", "4000-4003"},
                               {"HEADRACE_COMM_CRC", "1"},
                               {"HEADRACE_COMM_CHUNK_BYTES", "65536"},
                               {"HEADRACE_COMM_SMALL_BYTES", "1000"},
                               {"HEADRACE_COMM_SPIN_US", "0"},
                               {"HEADRACE_COMM_STALL_WARN_S", "2.5"},
                               {"HEADRACE_IFACE", "eth0"},
                               {"PATH", "/bin"},
                               {"HOROVOD_GLOO_IFACE", "eth1"}};
  REQUIRE(read_settings(variables, &config).ok());
  CHECK(config.transport == Transport::tcp);
  CHECK(config.timeout.count() == 1500);
  CHECK(config.hb_ms.count() == 100);
  CHECK(config.hb_miss == 3);
  CHECK(config.crc);
  CHECK(config.chunk_bytes == 65'536);
  CHECK(config.small_bytes == 1000);
  CHECK(config.spin == std::chrono::microseconds(0));
  CHECK(config.streams == 4);
  CHECK(config.ports.first == 4000);
  CHECK(config.ports.last == 4003);
  CHECK(config.wire16 == Wire16::bf16);
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

TEST_CASE("settings of GPUs are taken from their variables") {
  Config config;
  const Variables variables = {{"HEADRACE_COMM_GPU_STAGING", "1"},
                               {"HEADRACE_GPU_LIBRARIES", "/a::/b/lib:"}};
  REQUIRE(read_settings(variables, &config).ok());
  CHECK(config.gpu_staging);
  CHECK(config.gpu_folders == std::vector<std::string>{"/a", "/b/lib"});
  REQUIRE(read_settings(Variables{{"HEADRACE_COMM_GPU_STAGING", "0"}}, &config).ok());
  CHECK_FALSE(config.gpu_staging);
}

TEST_CASE("values and names that are none are refused with their name") {
  CHECK(error_of({{"HEADRACE_COMM_HB_MS", "0"}}) ==
        "comm: HEADRACE_COMM_HB_MS is \"0\"; it takes a whole number from 1 on");
  CHECK(error_of({{"HEADRACE_COMM_HB_MISS", "3x"}}).find("HEADRACE_COMM_HB_MISS is \"3x\"") !=
        std::string::npos);
  CHECK(error_of({{"HEADRACE_COMM_TRANSPORT", "udp"}}).find("HEADRACE_COMM_TRANSPORT") == 0);
  CHECK(error_of({{"HEADRACE_COMM_STREAMS", "9"}}) ==
        "comm: HEADRACE_COMM_STREAMS is \"9\"; it takes a whole number from 1 to 8");
  CHECK(error_of({{"HEADRACE_COMM_CRC", "yes"}}) ==
        "comm: HEADRACE_COMM_CRC is \"yes\"; it takes 0 or 1");
  CHECK(error_of({{"HEADRACE_COMM_CYCLE_MS", "-1"}}) ==
        "comm: HEADRACE_COMM_CYCLE_MS is \"-1\"; it takes a number from 0 on");
  for (const std::string range : {"4000", "4003-4000", "0-5", "1-65536", "a-b", "1-2x"}) {
    CHECK(error_of({{"HEADRACE_COMM_PORT_RANGE", range}}) ==
          "comm: HEADRACE_COMM_PORT_RANGE is \"" + range +
              "\"; it takes two ports, the lower one first: 40000-40063");
  }
  CHECK(error_of({{"HEADRACE_COMM_WIRE16", "fp16"}}) ==
        "comm: HEADRACE_COMM_WIRE16 is \"fp16\"; it takes none, f16 or bf16");
  CHECK(error_of({{"HEADRACE_COMM_GPU_STAGING", "yes"}}) ==
        "comm: HEADRACE_COMM_GPU_STAGING is \"yes\"; it takes 0 or 1");
}

TEST_CASE("a name that is not known is refused with the nearest one that is") {
  const std::string typo = error_of({{"HEADRACE_COMM_TRANSPROT", "tcp"}});
  CHECK(typo.find("no setting is called HEADRACE_COMM_TRANSPROT; did you mean "
                  "HEADRACE_COMM_TRANSPORT? after HEADRACE_COMM_ there may be TIMEOUT_MS, ") !=
        std::string::npos);
  const std::string other = error_of({{"HEADRACE_COMM_PONIES", "3"}});
  CHECK(other.find("HEADRACE_COMM_PONIES; after HEADRACE_COMM_ there may be ") !=
        std::string::npos);
}

}  // namespace
}  // namespace headrace::comm
