// SPDX-License-Identifier: Apache-2.0
// What is counted while a run goes on, what stays of it, and that it never stands in the way.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>

#include "headrace/base/board_folder.h"
#include "headrace/base/clock.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"
#include "headrace/flow/metrics.h"
#include "headrace/flow/run.h"
#include "headrace/proc/child.h"

namespace headrace::flow {

namespace {

constexpr const char* kProgram = HEADRACE_FLOW_TEST_PROGRAM;

struct MetricsRun {
  base::TestFolder folder;
  RunRequest request;
  RunOptions options;

  MetricsRun(const std::string& items, const std::string& activity) {
    const std::string text =
        R"json({"name": "p", "properties": {"activities": [{"name": "each", "type": "ForEach",
          "typeProperties": {"items": ")json" +
        items + R"json(", "batchCount": 4, "activities": [{"name": "do", )json" + activity +
        "}]}}]}}";
    REQUIRE(base::replace_file(folder / "pl.json", text).ok());
    auto factory = load_factory(folder / "pl.json");
    REQUIRE(factory.ok());
    request.pipeline = factory->pipelines.at(0);
    request.pipeline_path = folder / "pl.json";
    request.run_id = new_run_id();
    options.folder = folder / "run";
    options.slots = 2;
    options.worker_command = {kProgram, "worker", "{fd}"};
  }
  Status start() {
    const auto result = start_run(request, options);
    REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message()));
    return result->status;
  }
  Json metrics() const { return run_metrics(options.folder, request.run_id); }
};

double value(const Json& metrics, const std::string& name, const char* part = nullptr) {
  const Json* found = metrics.is_object() ? metrics.at("values").find(name) : nullptr;
  if (found != nullptr && part != nullptr) {
    found = found->find(part);
  }
  return found == nullptr ? -1.0 : found->number();
}

bool comes_true(const std::function<bool()>& condition) {
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(20));
  while (!condition() && !deadline.passed()) {
    base::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

const char* kNoOp = R"json("type": "NoOp", "typeProperties": {})json";
/// Waits for RUN/go.
const char* kHeld = R"json("type": "Custom", "typeProperties": {"command":
    "while ! test -e $HEADRACE_RUN_FOLDER/go; do sleep 0.02; done"})json";

}  // namespace

TEST_CASE("the last numbers of a run lie in its folder, and nothing else is left of its board") {
  MetricsRun run("@range(0, 5)", kNoOp);

  CHECK(run.start() == Status::succeeded);

  const Json kept = run.metrics();
  CHECK(!kept.at("live").boolean());
  CHECK(value(kept, R"(flow.items{status="succeeded"})") == 5.0);
  CHECK(value(kept, R"(flow.items{status="failed"})") == 0.0);
  CHECK(value(kept, R"(flow.attempts{reason="first"})") == 5.0);
  CHECK(value(kept, R"(flow.items_state{state="running"})") == 0.0);
  CHECK(value(kept, "flow.item_seconds", "count") == 5.0);
  CHECK(value(kept, "flow.queue_seconds", "count") == 5.0);
  const double started = value(kept, "flow.pool_start_seconds", "count");
  CHECK((started == 1.0 || started == 2.0));
  CHECK(value(kept, "flow.pool_start_seconds", "p95") > 0.0);
  CHECK(value(kept, "flow.journal_sync_seconds", "count") >= 1.0);
  CHECK(value(kept, R"(flow.pool_instances{pool="local",state="busy"})") == 0.0);
  CHECK(value(kept, R"(flow.worker_seconds{use="starting"})") > 0.0);
  CHECK(value(kept, R"(flow.worker_seconds{use="busy"})") > 0.0);
  CHECK(value(kept, "flow.progress_ratio") == 1.0);
  CHECK(value(kept, "flow.eta_seconds") == 0.0);
  CHECK(value(kept, "process.cpu_seconds") > 0.0);
  CHECK(value(kept, "process.resident_bytes") > 1e6);
  CHECK(!std::filesystem::exists(base::board_folder(run.request.run_id)));
}

TEST_CASE("how items ended and why attempts began is counted") {
  MetricsRun run("@createArray('exit', 'fail', 'ok')",
                 R"json("type": "Misbehave", "typeProperties": {"how": "@item()"})json");

  CHECK(run.start() == Status::failed);

  const Json kept = run.metrics();
  CHECK(value(kept, R"(flow.items{status="succeeded"})") == 1.0);
  CHECK(value(kept, R"(flow.items{status="failed"})") == 2.0);
  CHECK(value(kept, R"(flow.attempts{reason="first"})") == 3.0);
  CHECK(value(kept, R"(flow.attempts{reason="lost"})") == 3.0);
}

TEST_CASE("a run that goes on tells its numbers to other processes") {
  MetricsRun run("@range(0, 6)", kHeld);
  base::Thread other("reader", [&] {
    CHECK(comes_true([&] {
      return value(run.metrics(), R"(flow.pool_instances{pool="local",state="busy"})") == 2.0;
    }));
    const Json live = run.metrics();
    CHECK(live.at("live").boolean());
    CHECK(value(live, R"(flow.items_state{state="running"})") == 2.0);
    CHECK(value(live, R"(flow.items_state{state="queued"})") == 4.0);
    CHECK(value(live, "flow.progress_ratio") == 0.0);
    CHECK(base::replace_file(run.options.folder / "go", "").ok());
  });

  CHECK(run.start() == Status::succeeded);

  other.join();
  CHECK(value(run.metrics(), R"(flow.worker_seconds{use="busy"})") > 0.0);
}

TEST_CASE("a board that cannot be made costs the run nothing but its numbers") {
  MetricsRun run("@range(0, 5)", kNoOp);
  const base::Path place = base::board_folder(run.request.run_id);
  REQUIRE(base::make_folders(place.parent_path()).ok());
  REQUIRE(base::replace_file(place, "in the way").ok());

  CHECK(run.start() == Status::succeeded);

  std::filesystem::remove(place);
  CHECK(run.metrics().is_null());
  CHECK(!std::filesystem::exists(run.options.folder / "metrics.json"));
}

TEST_CASE(
    "the board of a killed engine goes with the next one, which counts the whole run's items") {
  MetricsRun run("@range(0, 4)", kHeld);
  proc::ChildOptions options;
  options.argv = {kProgram, "run", (run.folder / "pl.json").string(), run.options.folder.string(),
                  "2"};
  auto engine = proc::Child::spawn(std::move(options));
  REQUIRE(engine.ok());
  REQUIRE(comes_true([&] { return load_run(run.options.folder).ok(); }));
  run.request.run_id = load_run(run.options.folder)->run_id;
  REQUIRE(comes_true(
      [&] { return value(run.metrics(), R"(flow.items_state{state="running"})") == 2.0; }));
  ::kill(static_cast<pid_t>(engine->pid()), SIGKILL);
  REQUIRE(engine->wait(std::chrono::seconds(10)).ok());
  const base::Path place = base::board_folder(run.request.run_id);
  CHECK(base::boards_in(place).size() == 1);
  REQUIRE(base::replace_file(run.options.folder / "go", "").ok());

  const auto resumed = resume_run({}, run.options);

  REQUIRE(resumed.ok());
  CHECK(resumed->status == Status::succeeded);
  CHECK(!std::filesystem::exists(place));
  const Json kept = run.metrics();
  CHECK(value(kept, R"(flow.items{status="succeeded"})") == 4.0);
  CHECK(value(kept, R"(flow.attempts{reason="resumed"})") == 2.0);
  CHECK(value(kept, R"(flow.attempts{reason="first"})") == 2.0);
}

}  // namespace headrace::flow
