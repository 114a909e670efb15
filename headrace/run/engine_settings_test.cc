// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/engine_settings.h"

#include <doctest/doctest.h>

namespace headrace::run {

TEST_CASE("flags become variables with their units") {
  const auto variables = engine_variables({{"fusion-threshold-mb", "32"},
                                           {"cycle-time-ms", "20"},
                                           {"cache-capacity", "0"},
                                           {"hierarchical-allreduce", "1"},
                                           {"hierarchical-allgather", "0"},
                                           {"stall-check", "0"},
                                           {"log-level", "DEBUG"},
                                           {"thread-affinity", "0,8"}});
  REQUIRE(variables.ok());
  CHECK(*variables == Variables{{"HOROVOD_FUSION_THRESHOLD", "33554432"},
                                {"HOROVOD_CYCLE_TIME", "20.0"},
                                {"HOROVOD_CACHE_CAPACITY", "0"},
                                {"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
                                {"HOROVOD_HIERARCHICAL_ALLGATHER", "0"},
                                {"HOROVOD_STALL_CHECK_DISABLE", "1"},
                                {"HOROVOD_THREAD_AFFINITY", "0,8"},
                                {"HOROVOD_LOG_LEVEL", "DEBUG"}});
}

TEST_CASE("what needs another flag counts with that one only") {
  CHECK(engine_variables({{"autotune-warmup-samples", "5"}})->empty());
  CHECK(*engine_variables({{"autotune", "0"}, {"autotune-warmup-samples", "5"}}) ==
        Variables{{"HOROVOD_AUTOTUNE", "0"}});
  CHECK(engine_variables({{"autotune", "1"}, {"autotune-gaussian-process-noise", "0.5"}})->size() ==
        2);
  CHECK(engine_variables({{"timeline-mark-cycles", "1"}})->empty());
  CHECK(
      engine_variables({{"timeline-filename", "t.json"}, {"timeline-mark-cycles", "1"}})->size() ==
      2);
}

TEST_CASE("values out of range are refused with the flag's name") {
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"fusion-threshold-mb", "-1"},
           {"fusion-threshold-mb", "many"},
           {"cycle-time-ms", "-0.5"},
           {"cycle-time-ms", "inf"},
           {"cache-capacity", "1.5"},
           {"autotune-gaussian-process-noise", "1.1"},
           {"autotune-steps-per-sample", "-1"},
           {"log-level", "LOUD"},
           {"thread-affinity", "1,,2"},
       }) {
    const auto variables = engine_variables({{name, value}});
    CAPTURE(name);
    REQUIRE_FALSE(variables.ok());
    CHECK(variables.error().message().starts_with("--" + std::string(name) + " takes "));
  }
}

TEST_CASE("a configuration file has sections") {
  const auto given = parse_config(R"(---
# all of it
verbose: True
params:
    fusion_threshold_mb: 32   # MiB
    cycle-time-ms: 10.5
    hierarchical_allreduce: False
autotune:
    enabled: yes
    log_file: 'a # b.txt'
stall_check:
    enabled: false
    warning_time_seconds: 120
logging:
    level: "INFO"
    hide_timestamp: True
library_options:
    mpi_args: null
)",
                                  "c.yaml");
  REQUIRE_MESSAGE(given.ok(), given.error().message());
  CHECK(given->at("fusion-threshold-mb") == "32");
  CHECK(given->at("cycle-time-ms") == "10.5");
  CHECK(given->at("autotune-log-file") == "a # b.txt");
  CHECK(given->count("mpi-args") == 0);
  const auto variables = *engine_variables(*given);
  const auto has = [&](const char* name, const char* value) {
    return std::find(variables.begin(), variables.end(),
                     std::pair<std::string, std::string>(name, value)) != variables.end();
  };
  CHECK(has("HOROVOD_STALL_CHECK_DISABLE", "1"));
  CHECK(has("HOROVOD_LOG_HIDE_TIME", "1"));
  CHECK(has("HOROVOD_AUTOTUNE", "1"));
}

TEST_CASE("what a configuration file cannot hold is named with its line") {
  for (const auto& [text, part] : std::vector<std::pair<const char*, const char*>>{
           {"params:\n\tx: 1\n", "line 2: a tab"},
           {"parms:\n", "line 1: there is no section \"parms\""},
           {"params:\n  fusion: 1\n", "line 2: section params has no setting \"fusion\""},
           {"params:\n  cycle_time_ms: fast\n", "cycle_time_ms is a number"},
           {"params:\n  cycle_time_ms: [1, 2]\n", "lists and other structures"},
           {"nothing\n", "neither"},
           {"a:b\n", "neither"},
       }) {
    const auto given = parse_config(text, "c.yaml");
    REQUIRE_FALSE(given.ok());
    CHECK_MESSAGE(given.error().message().find(part) != std::string::npos, given.error().message());
    CHECK(given.error().message().starts_with("c.yaml, line "));
  }
}

}  // namespace headrace::run
