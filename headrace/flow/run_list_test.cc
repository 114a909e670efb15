// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/run_list.h"

#include <doctest/doctest.h>

#include "headrace/base/test_folder.h"
#include "headrace/flow/journal.h"

namespace headrace::flow {

namespace {

using base::Micros;
using base::TestFolder;

/// A journal of a run of one Wait that has begun, and nothing more.
void begin_run(const base::Path& folder) {
  REQUIRE(base::make_folders(folder).ok());
  RunHeader header;
  header.run_id = "r1";
  header.pipeline_path = "/p.json";
  header.pipeline_name = "p";
  header.document =
      R"json({"name": "p", "properties": {"activities": [{"name": "w", "type": "Wait",
          "typeProperties": {"waitTimeInSeconds": 60}}]}})json";
  header.parameters = Json::object();
  header.started = Micros(5);
  auto journal = Journal::create(folder, header);
  REQUIRE_MESSAGE(journal.ok(), (journal.ok() ? "" : journal.error().message()));
  REQUIRE(journal->append({Micros(9), Started{2}}).ok());
  REQUIRE(journal->wait_committed().ok());
}

}  // namespace

TEST_CASE("a run without a summary is replayed, or told by its first record when it is long") {
  const TestFolder runs;
  begin_run(runs / "a");

  const RunSummary replayed = summarise_run(runs / "a");
  CHECK(replayed.standing == RunStanding::stopped);
  CHECK(replayed.counted);
  CHECK(replayed.last_event == Micros(9));

  const RunSummary header = summarise_run(runs / "a", 10);
  CHECK(header.standing == RunStanding::unknown);
  CHECK(standing_name(header.standing) == "unknown");
  CHECK(header.run_id == "r1");
  CHECK(header.pipeline == "p");
  CHECK(header.started == Micros(5));
  CHECK_FALSE(header.counted);
}

TEST_CASE("a summary counts as long as the journal has the length it speaks of") {
  const TestFolder runs;
  begin_run(runs / "a");
  const auto bytes = std::filesystem::file_size(runs / "a/journal");
  const auto keep = [&](uint64_t journal_bytes) {
    const Json kept = Json::object({{"journal_bytes", static_cast<int64_t>(journal_bytes)},
                                    {"run_id", "r1"},
                                    {"state", "succeeded"},
                                    {"idle_us", 0},
                                    {"items_total", 7}});
    REQUIRE(base::replace_file(runs / "a/summary.json", kept.dump()).ok());
  };

  keep(bytes);
  CHECK(summarise_run(runs / "a").standing == RunStanding::succeeded);
  CHECK(summarise_run(runs / "a").items_total == 7);
  keep(bytes - 1);
  CHECK(summarise_run(runs / "a").standing == RunStanding::stopped);
  for (const char* bad : {"", "{", "[]", "{\"journal_bytes\": \"x\"}"}) {
    CAPTURE(bad);
    REQUIRE(base::replace_file(runs / "a/summary.json", bad).ok());
    CHECK(summarise_run(runs / "a").standing == RunStanding::stopped);
  }
}

TEST_CASE("a summary with a state that no engine leaves is passed over for the journal") {
  const TestFolder runs;
  begin_run(runs / "a");
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(runs / "a/journal"));
  for (const char* state : {"paused", "", "running", "unreadable", "unknown"}) {
    CAPTURE(state);
    const Json kept =
        Json::object({{"journal_bytes", bytes}, {"state", state}, {"items_total", 7}});
    REQUIRE(base::replace_file(runs / "a/summary.json", kept.dump()).ok());
    const RunSummary replayed = summarise_run(runs / "a");
    CHECK(replayed.standing == RunStanding::stopped);
    CHECK(replayed.run_id == "r1");
    CHECK(replayed.last_event == Micros(9));
    CHECK(summarise_run(runs / "a", 10).standing == RunStanding::unknown);
  }
}

TEST_CASE("a run elsewhere is named by its absolute folder, as a shell reads it") {
  CHECK(run_reference("/data/runs/r1") == "/data/runs/r1");
  CHECK(run_reference("/data/runs/r1/") == "/data/runs/r1");
  CHECK(run_reference("/data/x/../runs/r1") == "/data/runs/r1");
  CHECK(run_reference("/my runs/r$1") == "'/my runs/r$1'");
  CHECK(run_reference("/it's/r") == "'/it'\\''s/r'");
  CHECK(run_reference("there") == (std::filesystem::current_path() / "there").string());
}

TEST_CASE("a run in ./runs is named by its id, unless commands take that for something else") {
  const TestFolder folder;
  const base::WorkingFolder in(folder.path());
  const base::Path runs = std::filesystem::current_path() / "runs";
  for (const char* name : {"r1", "latest", "-x", "--items"}) {
    REQUIRE(base::make_folders(runs / name).ok());
  }

  CHECK(run_reference("runs/r1") == "r1");
  CHECK(run_reference(runs / "r1") == "r1");
  for (const char* name : {"latest", "-x", "--items"}) {
    CHECK(run_reference(base::Path("runs") / name) == (runs / name).string());
  }
}

}  // namespace headrace::flow
