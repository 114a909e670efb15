// SPDX-License-Identifier: Apache-2.0
// Whole runs with real workers, and what is left of them when somebody is killed.
#include "headrace/flow/run.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <map>
#include <set>

#include "headrace/base/clock.h"
#include "headrace/base/file_lock.h"
#include "headrace/base/log.h"
#include "headrace/base/random.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"
#include "headrace/flow/journal.h"
#include "headrace/proc/child.h"

namespace {

std::atomic<int> sync_delay_ms{0};  // a slow disk

}  // namespace

/// In the place of the C library's, for all of this program.
extern "C" int fdatasync(int fd) {
  if (const int delay = sync_delay_ms; delay > 0) {
    headrace::base::sleep_for(std::chrono::milliseconds(delay));
  }
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace headrace::flow {

namespace {

using base::TestFolder;
using std::chrono::milliseconds;

constexpr const char* kProgram = HEADRACE_FLOW_TEST_PROGRAM;

std::shared_ptr<const Pipeline> parsed(const std::string& text) {
  auto factory = load_factory_text("pl.json", text);
  REQUIRE_MESSAGE(factory.ok(), (factory.ok() ? "" : factory.error().message()));
  for (const Diagnostic& diagnostic : factory->diagnostics) {
    REQUIRE_MESSAGE(diagnostic.severity == Severity::warning, diagnostic_text(diagnostic));
  }
  return factory->pipelines[0];
}

/// A pipeline with these activities (JSON, without the brackets).
std::string pipeline_text(const std::string& activities, const std::string& more = "") {
  return R"json({"name": "p", "properties": {"activities": [)json" + activities + "]" + more + "}}";
}

std::string loop_of(const std::string& items, const std::string& body,
                    const std::string& more = "") {
  return fmt::format(
      R"json({{"name": "each", "type": "ForEach", "typeProperties": {{"items": "{}", {}
          "activities": [{}]}}}})json",
      items, more, body);
}

std::string work(const std::string& type, const std::string& properties,
                 const std::string& more = "") {
  return fmt::format(R"json({{"name": "do", "type": "{}", {} "typeProperties": {{{}}}}})json", type,
                     more, properties);
}

struct TestRun {
  TestFolder folder;
  RunRequest request;
  RunOptions options;

  explicit TestRun(const std::string& text, int slots = 2) {
    REQUIRE(base::replace_file(folder / "pl.json", text).ok());
    request.pipeline = parsed(text);
    request.pipeline_path = folder / "pl.json";
    options.folder = folder / "run";
    options.slots = slots;
    options.grace = milliseconds(500);
    options.worker_command = {kProgram, "worker", "{fd}"};
  }

  RunResult start() {
    auto result = start_run(request, options);
    REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message()));
    return *std::move(result);
  }
  RunResult resume(const ResumeRequest& how = {}) {
    auto result = resume_run(how, options);
    REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message()));
    return *std::move(result);
  }
  RunState state() const {
    auto loaded = load_run(options.folder);
    REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message()));
    return *std::move(loaded);
  }
  std::string file(const std::string& name) const {
    return base::read_file(options.folder / name).value_or("(none)");
  }
  bool exists(const std::string& name) const {
    return std::filesystem::exists(options.folder / name);
  }
};

const ItemState& item(const RunState& state, const std::string& key) {
  for (const ItemState& one : state.find("each")->items) {
    if (one.key == key) {
      return one;
    }
  }
  FAIL("no item ", key);
  return state.find("each")->items[0];
}

/// The shell command that counts its runs: one line per run in RUN/side/KEY.
std::string counting(const std::string& more = "") {
  return R"json("command": "mkdir -p \"$HEADRACE_RUN_FOLDER/side\"; )json"
         R"json(echo x >> \"$HEADRACE_RUN_FOLDER/side/$HEADRACE_ITEM\"; )json" +
         more + "\"";
}

std::map<std::string, int> side_effects(const base::Path& run_folder) {
  std::map<std::string, int> counts;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder / "side", code)) {
    const std::string text = base::read_file(entry.path()).value_or("");
    counts[entry.path().filename().string()] = static_cast<int>(text.size() / 2);
  }
  return counts;
}

/// A descriptor that interrupts a run, and what makes it readable.
struct Interrupt {
  base::Fd read_end;
  base::Fd write_end;

  Interrupt() {
    int ends[2] = {-1, -1};
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    read_end = base::Fd(ends[0]);
    write_end = base::Fd(ends[1]);
  }
  void raise() const { CHECK(::write(write_end.get(), "x", 1) == 1); }
};

/// Wait for something that another thread or process does.
bool comes_true(const std::function<bool()>& condition,
                std::chrono::seconds limit = std::chrono::seconds(20)) {
  const base::Deadline deadline = base::Deadline::in(limit);
  while (!condition()) {
    if (deadline.passed()) {
      return false;
    }
    base::sleep_for(milliseconds(5));
  }
  return true;
}

/// Does a process of this group still run? Zombies do not.
bool group_runs(const std::string& group) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", code)) {
    const std::string stat = base::read_file(entry.path() / "stat", 4096).value_or("");
    const size_t end = stat.rfind(") ");
    if (end == std::string::npos || stat[end + 2] == 'Z') {
      continue;
    }
    const size_t parent_end = stat.find(' ', end + 4);  // state, parent, group
    if (stat.substr(parent_end + 1).starts_with(group + " ")) {
      return true;
    }
  }
  return false;
}

/// An engine in a process of its own.
proc::Child engine_process(std::vector<std::string> arguments) {
  proc::ChildOptions options;
  options.argv = {kProgram};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  auto child = proc::Child::spawn(std::move(options));
  REQUIRE(child.ok());
  return *std::move(child);
}

}  // namespace

TEST_CASE("items run in workers, their outputs, times and places come back") {
  TestRun run(pipeline_text(loop_of("@createArray('a', 'b', 'c')", work("Where", ""))));
  std::vector<std::string> told;
  run.options.on_report = [&](const Report& report) {
    if (report.kind == Report::Kind::item) {
      told.push_back(report.key);
    }
  };

  const RunResult result = run.start();

  CHECK(result.status == Status::succeeded);
  CHECK(std::set<std::string>(told.begin(), told.end()) == std::set<std::string>{"a", "b", "c"});
  const RunState state = run.state();
  CHECK(state.run_id == result.run_id);
  CHECK(state.status == Status::succeeded);
  CHECK(state.pipeline == "p");
  CHECK(state.slots == 2);
  CHECK(!state.driven_by);
  const ItemState& b = item(state, "b");
  CHECK(b.status == Status::succeeded);
  CHECK(b.index == 1);
  CHECK(b.attempts == 1);
  CHECK(b.peak_rss_bytes > 0);
  CHECK(b.started.has_value());
  const Json& where = b.outputs.at("do");
  CHECK(where.at("item_key").string() == "b");
  CHECK(where.at("attempt").integer() == 1);
  CHECK(where.at("run_id").string() == result.run_id);
  CHECK(where.at("item_folder").string() == (run.options.folder / "items/b").string());
  CHECK(where.at("pipeline_folder").string() == run.folder.path().string());
  CHECK(!run.exists("items"));  // nothing was printed: no file was made
}

TEST_CASE("what an attempt prints is in its log, and only there") {
  TestRun run(pipeline_text(
      loop_of("@createArray('a', 'b', 'c', 'd')", work("Misbehave", R"json("how": "print")json"))));

  CHECK(run.start().status == Status::succeeded);

  CHECK(run.file("items/a/do.1.log") == "and errors\nhello from a\n");
  CHECK(run.file("items/d/do.1.log") == "and errors\nhello from d\n");
  CHECK(item(run.state(), "d").log == "items/d/do.1.log");
  CHECK(!run.exists("items/a/do.1.meta.json"));
}

TEST_CASE("a log of more than 16 MiB keeps its head and its tail") {
  TestRun run(pipeline_text(work("Misbehave", R"json("how": "flood")json")));

  CHECK(run.start().status == Status::succeeded);

  const std::string log = run.file("activities/do.1.log");
  CHECK(log.size() > size_t{16} << 20);
  CHECK(log.size() < (size_t{16} << 20) + 100);
  CHECK(log.find("bytes left out") != std::string::npos);
}

TEST_CASE("workers that end badly cost only their item, and the messages tell how they ended") {
  TestRun run(pipeline_text(
      loop_of(R"json(@json('[\"exit\",\"segv\",\"print and die\",\"fail\",\"ok\"]'))json",
              work("Misbehave", R"json("how": "@item()")json"))));

  const RunResult result = run.start();

  CHECK(result.status == Status::failed);
  const RunState state = run.state();
  CHECK(item(state, "ok").status == Status::succeeded);
  const auto message = [&](const std::string& key) { return item(state, key).error->message; };
  CHECK(message("exit").find("ended with exit code 3") != std::string::npos);
  CHECK(message("segv").find("ended with SIGSEGV") != std::string::npos);
  CHECK(message("print and die").find("ended with SIGKILL; its last line: last words") !=
        std::string::npos);
  CHECK(message("fail") == "told to fail");
  CHECK(item(state, "fail").error->code == "invalid_argument");
  CHECK(item(state, "exit").attempts == 4);
  CHECK(item(state, "fail").attempts == 1);
  CHECK(run.file("items/print and die/do.4.log") == "last words\n");
  const auto meta = parse_json(run.file("items/fail/do.1.meta.json"));
  REQUIRE(meta.ok());
  CHECK(meta->at("error").at("message").string() == "told to fail");
}

TEST_CASE("a native activity that hangs is killed at its timeout, and the slot goes on") {
  TestRun run(pipeline_text(loop_of(R"json(@json('[\"hang\",\"ok\",\"print\"]'))json",
                                    work("Misbehave", R"json("how": "@item()")json",
                                         R"json("policy": {"timeout": "0.00:00:01"},)json"))),
              1);

  CHECK(run.start().status == Status::failed);
  const RunState state = run.state();
  CHECK(item(state, "hang").error->code == "Timeout");
  CHECK(item(state, "print").status == Status::succeeded);
}

TEST_CASE("a command's output line, exit code, log, parameters and folder") {
  TestRun run(pipeline_text(work(
      "Custom",
      R"json("command": "pwd; echo $HR_PARAM_n; ls; echo err >&2; echo '##headrace-output {\"loss\": 0.5}'",
                  "folderPath": "code", "extendedProperties": {"n": "@add(1, 2)"})json")));
  std::filesystem::create_directories(run.folder / "code");
  REQUIRE(base::replace_file(run.folder / "code/fit.sh", "true\n").ok());

  CHECK(run.start().status == Status::succeeded);

  const RunState state = run.state();
  CHECK(state.find("do")->output.dump() ==
        R"json({"exitcode":0,"outputs":["activities/do.1.log"],"customOutput":{"loss":0.5}})json");
  const std::string log = run.file("activities/do.1.log");
  CHECK(log.find("activities/do.1\n3\nactivity.json\ndatasets.json\nfit.sh\n") !=
        std::string::npos);
  CHECK(log.find("err\n") != std::string::npos);
  CHECK(run.exists("activities/do.1/fit.sh"));

  TestRun bad(pipeline_text(work("Custom", R"json("command": "echo oops; exit 7")json")));
  CHECK(bad.start().status == Status::failed);
  CHECK(bad.state().error->code == "2500");
  CHECK(bad.state().error->message == "the command ended with exit code 7; its last line: oops");
  CHECK(!bad.exists("activities/do.1"));  // nothing of it was left there
}

TEST_CASE("a command that does not end is stopped with its whole group") {
  TestRun run(pipeline_text(work(
      "Custom", R"json("command": "sleep 600 & echo $! > \"$HEADRACE_RUN_FOLDER/pid\"; wait")json",
      R"json("policy": {"timeout": "0.00:00:01"},)json")));

  CHECK(run.start().status == Status::failed);

  CHECK(run.state().error->code == "Timeout");
  const int pid = std::stoi(run.file("pid"));
  const std::string stat = base::read_file(fmt::format("/proc/{}/stat", pid)).value_or("");
  CHECK((stat.empty() || stat.find(") Z ") != std::string::npos));  // gone, or about to be reaped
}

TEST_CASE("an unknown and a later activity type fail clearly") {
  TestRun unknown(pipeline_text(work("NoOpp", "")));
  CHECK(unknown.start().status == Status::failed);
  CHECK(unknown.state().error->message ==
        "there is no activity type 'NoOpp'; did you mean 'NoOp'?");

  TestRun later(pipeline_text(work("Copy", "")));
  CHECK(later.start().status == Status::failed);
  CHECK(later.state().error->message == "activities of type Copy are not executable yet");
}

TEST_CASE("large properties and outputs go through") {
  TestRun run(pipeline_text(
      loop_of("@range(0, 3)", work("Misbehave", R"json("how": "large", "bytes": 3000000)json"))));

  CHECK(run.start().status == Status::succeeded);
  CHECK(item(run.state(), "2").outputs.at("do").string().size() == 3'000'000);

  std::string large(2'000'000, 'y');
  TestRun in(pipeline_text(work("NoOp", R"json("x": ")json" + large + "\"")));
  CHECK(in.start().status == Status::succeeded);
  CHECK(in.state().find("do")->output.at("x").string() == large);
}

TEST_CASE("a number of slots that no machine has is refused before anything is written") {
  TestRun run(R"({"name": "p", "properties": {"activities": []}})");
  for (const int slots : {-1, kSlotsMax + 1}) {
    run.options.slots = slots;
    const auto refused = start_run(run.request, run.options);
    CHECK(refused.error().code() == Errc::invalid_argument);
    CHECK(refused.error().message().find("expected 1 to 4096") != std::string::npos);
    CHECK(!run.exists(""));
  }
}

TEST_CASE("a run folder belongs to one run, and to one engine at a time") {
  TestRun run(pipeline_text(work("Custom", R"json("command": "sleep 1")json")));
  proc::Child engine =
      engine_process({"run", (run.folder / "pl.json").string(), run.options.folder.string(), "1"});
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(20));
  while (!run.exists("workers") && !deadline.passed()) {
    base::sleep_for(milliseconds(5));
  }
  REQUIRE(!deadline.passed());

  const auto second = resume_run({}, run.options);
  REQUIRE(!second.ok());
  CHECK(second.error().code() == Errc::busy);
  CHECK(second.error().message().find(fmt::format("pid {} on ", engine.pid())) !=
        std::string::npos);
  CHECK(run.state().driven_by->find("headrace flow run") != std::string::npos);
  CHECK(run.state().status == Status::in_progress);

  REQUIRE(engine.wait(milliseconds(20'000)).ok());
  const auto third = start_run(run.request, run.options);
  REQUIRE(!third.ok());
  CHECK(third.error().code() == Errc::already_exists);
}

TEST_CASE("a cancelled run stops within its grace time and says Cancelled") {
  TestRun run(
      pipeline_text(loop_of("@range(0, 10)", work("Custom", R"json("command": "sleep 600")json"))));
  base::Thread other("canceller", [&] {
    const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(20));
    while (!run.exists("workers/1.log") && !deadline.passed()) {
      base::sleep_for(milliseconds(5));
    }
    const auto cancelled = cancel_run(run.options.folder, "", std::chrono::seconds(20));
    CHECK_MESSAGE(cancelled.ok(), (cancelled.ok() ? "" : cancelled.error().message()));
  });

  const RunResult result = run.start();

  CHECK(result.status == Status::cancelled);
  CHECK(item(run.state(), "0").status == Status::cancelled);
  CHECK(item(run.state(), "9").status == Status::cancelled);
  other.join();
  CHECK(cancel_run(run.options.folder, "", milliseconds(1)).error().code() == Errc::not_found);
}

TEST_CASE("an interrupted run stops within a second and goes on later") {
  TestRun run(pipeline_text(
      loop_of("@range(0, 6)", work("Custom", counting("test $HEADRACE_ITEM != 3 || sleep 600")))));
  int pipe_ends[2] = {-1, -1};
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);
  const base::Fd read_end(pipe_ends[0]);
  const base::Fd write_end(pipe_ends[1]);
  run.options.interrupt_fd = read_end.get();
  base::Micros asked{0};
  run.options.on_report = [&](const Report& report) {
    if (report.kind == Report::Kind::item && report.key == "5") {
      asked = base::system_clock().monotonic();
      CHECK(::write(write_end.get(), "x", 1) == 1);
    }
  };

  const RunResult stopped = run.start();

  CHECK(stopped.interrupted);
  CHECK(base::system_clock().monotonic() - asked < std::chrono::seconds(1));
  CHECK(run.state().status == Status::in_progress);
  CHECK(item(run.state(), "3").status == Status::in_progress);
  run.options.interrupt_fd = -1;
  // Item 3 now ends at once, as its command finds another world.
  REQUIRE(base::replace_file(run.options.folder / "side/3", "x\n").ok());
  base::Thread killer("killer", [&] {
    const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(20));
    while (side_effects(run.options.folder)["3"] < 2 && !deadline.passed()) {
      base::sleep_for(milliseconds(5));
    }
    static_cast<void>(cancel_run(run.options.folder, "3", std::chrono::seconds(20)));
  });
  const RunResult resumed = run.resume();
  CHECK(resumed.status == Status::failed);
  CHECK(item(run.state(), "3").status == Status::cancelled);
  for (const auto& [key, count] : side_effects(run.options.folder)) {
    CAPTURE(key);
    CHECK(count == (key == "3" ? 2 : 1));
  }
}

TEST_CASE("retry-failed runs again what failed, and only that") {
  TestRun run(pipeline_text(loop_of(
      "@range(0, 20)",
      work("Custom", counting("test $HEADRACE_ITEM != 7 || test -e $HEADRACE_RUN_FOLDER/good")))));
  CHECK(run.start().status == Status::failed);
  CHECK(run.resume().status == Status::failed);  // as it ended
  REQUIRE(base::replace_file(run.options.folder / "good", "").ok());

  CHECK(run.resume({.retry_failed = true, .accept_changes = false}).status == Status::succeeded);

  for (const auto& [key, count] : side_effects(run.options.folder)) {
    CAPTURE(key);
    CHECK(count == (key == "7" ? 2 : 1));
  }
  const RunState state = run.state();
  CHECK(state.status == Status::succeeded);
  CHECK(item(state, "7").status == Status::succeeded);
  CHECK(item(state, "8").outputs.at("do").at("exitcode").integer() == 0);
}

TEST_CASE(
    "retry-failed counts attempts on, keeps the first's log and the times of what had ended") {
  TestRun run(pipeline_text(loop_of(
      "@range(0, 3)",
      work("Custom", R"("command": "sleep 0.05; echo tried; )"
                     R"(test $HEADRACE_ITEM != 1 || test -e $HEADRACE_RUN_FOLDER/good")"))));
  CHECK(run.start().status == Status::failed);
  const ItemState before = item(run.state(), "2");
  REQUIRE(before.ended.has_value());

  CHECK(run.resume({.retry_failed = true}).status == Status::failed);
  REQUIRE(base::replace_file(run.options.folder / "good", "").ok());
  CHECK(run.resume({.retry_failed = true}).status == Status::succeeded);

  const RunState state = run.state();
  CHECK(state.resumes == 2);
  CHECK(item(state, "1").attempts == 3);
  CHECK(item(state, "2").attempts == 1);
  CHECK(item(state, "2").started == before.started);
  CHECK(item(state, "2").ended == before.ended);
  for (const char* log : {"do.1.log", "do.2.log", "do.3.log"}) {
    CHECK(std::filesystem::exists(run.options.folder / "items/1" / log));
  }
  CHECK(item(state, "1").log == "items/1/do.3.log");
  CHECK(item(state, "2").log == "items/2/do.1.log");
}

TEST_CASE(
    "retry-failed also mends a run that succeeded in spite of failed items, and judges anew") {
  const std::string judge =
      R"json(, {"name": "judge", "type": "Custom", "dependsOn": [
        {"activity": "each", "dependencyConditions": ["Completed"]}], "typeProperties":
        {"command": "mkdir -p $HEADRACE_RUN_FOLDER/side; echo x >> $HEADRACE_RUN_FOLDER/side/judge"}})json";
  const std::string first =
      R"json(, {"name": "aside", "type": "Custom", "typeProperties":
        {"command": "mkdir -p $HEADRACE_RUN_FOLDER/side; echo x >> $HEADRACE_RUN_FOLDER/side/aside"}})json";
  TestRun run(pipeline_text(
      loop_of("@range(0, 4)", work("Custom", counting("test $HEADRACE_ITEM != 2 || test -e "
                                                      "$HEADRACE_RUN_FOLDER/good"))) +
      judge + first));
  CHECK(run.start().status == Status::succeeded);
  CHECK(item(run.state(), "2").status == Status::failed);
  REQUIRE(base::replace_file(run.options.folder / "good", "").ok());

  CHECK(run.resume({.retry_failed = true, .accept_changes = false}).status == Status::succeeded);
  CHECK(item(run.state(), "2").status == Status::succeeded);
  CHECK(run.resume({.retry_failed = true, .accept_changes = false}).status == Status::succeeded);

  CHECK(side_effects(run.options.folder) ==
        std::map<std::string, int>{
            {"0", 1}, {"1", 1}, {"2", 2}, {"3", 1}, {"aside", 1}, {"judge", 2}});
}

TEST_CASE("a loop that the circuit breaker stopped is read back so, and goes on when told to") {
  const std::string failing = counting("test -e $HEADRACE_RUN_FOLDER/good");
  TestRun run(pipeline_text(loop_of("@range(0, 40)", work("Custom", failing))));

  CHECK(run.start().status == Status::failed);

  const auto begun = static_cast<int>(side_effects(run.options.folder).size());
  CHECK((begun == 5 || begun == 6));  // one more may have been at work
  const RunState state = run.state();
  CHECK(state.error->message.find("the first 5 items to end all failed") != std::string::npos);
  CHECK(item(state, "39").status == Status::skipped);
  CHECK(run.resume().error->message == state.error->message);  // as it ended

  ResumeRequest all;
  all.retry_failed = true;
  all.circuit_breaker = false;
  CHECK(run.resume(all).status == Status::failed);
  CHECK(side_effects(run.options.folder).size() == 40);
  CHECK(item(run.state(), "39").status == Status::failed);
  REQUIRE(base::replace_file(run.options.folder / "good", "").ok());
  CHECK(run.resume({.retry_failed = true}).status == Status::succeeded);
}

TEST_CASE("items that wait for a retry do not count as running, and their error is told once") {
  TestRun run(pipeline_text(
      loop_of("@range(0, 2)", work("Custom", R"("command": "echo the disk is full; exit 3")",
                                   R"("policy": {"retry": 1, "retryIntervalInSeconds": 4},)"))));
  EngineProgress seen;
  run.options.on_progress = [&](const EngineProgress& progress) {
    seen = progress.items_waiting_retry > seen.items_waiting_retry ? progress : seen;
  };
  std::vector<std::string> told;
  base::set_log_sink([&](base::LogLevel, std::string_view text) {
    if (text.find("tried again") != std::string_view::npos) {
      told.emplace_back(text);
    }
  });
  CHECK(run.start().status == Status::failed);
  base::set_log_sink({});
  CHECK(seen.items_waiting_retry == 2);
  CHECK(seen.items_running == 0);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("tried again in 4 s: the command ended with exit code 3; its last line: the "
                     "disk is full") != std::string::npos);
}

TEST_CASE("loops in loops have a bound on the items they begin, and can be interrupted") {
  std::string body = R"json({"name": "last", "type": "Wait",
      "typeProperties": {"waitTimeInSeconds": 0}})json";
  for (int depth = 0; depth < 20; ++depth) {
    body = fmt::format(R"json({{"name": "l{}", "type": "ForEach", "typeProperties":
        {{"items": "@range(0, 2)", "activities": [{}]}}}})json",
                       depth, body);
  }
  TestRun run(pipeline_text(body));
  const Interrupt interrupt;
  run.options.interrupt_fd = interrupt.read_end.get();
  int64_t most = 0;
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(2));
  bool raised = false;
  run.options.on_progress = [&](const EngineProgress& progress) {
    most = std::max(most, progress.items_running);
    if (!raised && deadline.passed()) {
      raised = true;
      interrupt.raise();
    }
  };
  CHECK(run.start().interrupted);
  CHECK(most > 1000);
  CHECK(most < kLiveItemsMax * 20);
}

TEST_CASE("a run that goes on without circuit breaker stays so when it is read again") {
  TestRun run(pipeline_text(
      loop_of("@range(0, 30)", work("Custom", counting("test -e $HEADRACE_RUN_FOLDER/go || sleep "
                                                       "600; exit 1")))));
  const Interrupt interrupt;
  run.options.interrupt_fd = interrupt.read_end.get();
  base::Thread other("interrupter", [&] {
    CHECK(comes_true([&] { return side_effects(run.options.folder).size() == 2; }));
    interrupt.raise();
  });
  CHECK(run.start().interrupted);
  other.join();
  run.options.interrupt_fd = -1;
  REQUIRE(base::replace_file(run.options.folder / "go", "").ok());

  ResumeRequest without;
  without.circuit_breaker = false;
  CHECK(run.resume(without).status == Status::failed);

  CHECK(side_effects(run.options.folder).size() == 30);
  CHECK(item(run.state(), "29").status == Status::failed);
  CHECK(run.resume({.retry_failed = true}).status == Status::failed);  // and when it begins anew
  CHECK(item(run.state(), "29").status == Status::failed);
}

TEST_CASE("what succeeded before is not thrown away because the first to run again fail") {
  TestRun run(pipeline_text(
                  loop_of("@range(0, 40)", work("Custom", counting("test $HEADRACE_ITEM -gt 5")))),
              8);
  CHECK(run.start().progress.items_succeeded == 34);
  run.options.slots = 2;

  const RunResult again = run.resume({.retry_failed = true});

  CHECK(again.progress.items_succeeded == 34);
  CHECK(again.progress.items_failed == 6);
  CHECK(again.progress.items_skipped == 0);
  CHECK(side_effects(run.options.folder).at("39") == 1);
}

TEST_CASE("a folder whose journal was left without a record takes a run") {
  TestRun run(pipeline_text(work("NoOp", "")));
  REQUIRE(base::make_folders(run.options.folder).ok());
  for (const char* torn : {"", "HRLOG", "HRLOG001", "HRLOG001\x40\x01\x00"}) {
    CAPTURE(torn);
    std::filesystem::remove(run.options.folder / "journal");
    REQUIRE(base::replace_file(run.options.folder / "journal", torn).ok());
    CHECK(run.start().status == Status::succeeded);
  }
  const auto taken = start_run(run.request, run.options);
  REQUIRE(!taken.ok());
  CHECK(taken.error().code() == Errc::already_exists);
}

TEST_CASE("a changed pipeline is refused, or taken with the work that stays the same") {
  const std::string before =
      pipeline_text(loop_of("@range(0, 4)", work("Custom", counting("test $HEADRACE_ITEM != 2"))));
  TestRun run(before);
  CHECK(run.start().status == Status::failed);
  const std::string after =
      pipeline_text(loop_of("@range(0, 6)", work("Custom", counting("test $HEADRACE_ITEM != 2"))));
  REQUIRE(base::replace_file(run.folder / "pl.json", after).ok());

  const auto refused = resume_run({}, run.options);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code() == Errc::mismatch);
  CHECK(refused.error().message().find("--accept-changes") != std::string::npos);

  CHECK(run.resume({.retry_failed = false, .accept_changes = true}).status == Status::failed);
  CHECK(side_effects(run.options.folder) ==
        std::map<std::string, int>{{"0", 1}, {"1", 1}, {"2", 2}, {"3", 1}, {"4", 1}, {"5", 1}});
  CHECK(run.state().find("each")->items.size() == 6);
}

TEST_CASE("secure values are in no journal, and a resumed run still has its parameters") {
  TestRun run(pipeline_text(work("NoOp", R"json("s": "@pipeline().parameters.token")json",
                                 R"json("policy": {"secureOutput": true},)json"),
                            R"json(, "parameters": {"token": {"type": "SecureString"}})json"));
  run.request.arguments.set("token", "hunter2");

  CHECK(run.start().status == Status::succeeded);

  CHECK(run.file("journal").find("hunter2") == std::string::npos);
  CHECK(run.state().parameters.at("token").string() == "***");
  struct stat info = {};
  REQUIRE(::stat((run.options.folder / "secrets.json").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777U) == 0600U);
}

TEST_CASE("a full disk ends the run with a clear error, and it goes on when there is room") {
  TestRun run(pipeline_text(
      loop_of("@range(0, 3000)", work("Misbehave", R"json("how": "large", "bytes": 2000)json"))));
  TestFolder disk;
  if (!disk.mount_tiny(1 << 20)) {
    MESSAGE("skipped: mounting a small file system needs root");
    return;
  }
  run.options.folder = disk / "run";

  const auto full = start_run(run.request, run.options);

  REQUIRE(!full.ok());
  CHECK(full.error().code() == Errc::out_of_space);
  CHECK(full.error().message().find("headrace flow resume ") != std::string::npos);
  const RunState state = run.state();
  CHECK(state.status == Status::in_progress);
  std::set<std::string> done;
  for (const ItemState& one : state.find("each")->items) {
    if (one.status == Status::succeeded) {
      done.insert(one.key);
    }
  }
  CHECK(done.size() > 50);

  // More room: move the run to the big disk and go on there.
  const base::Path roomy = run.folder / "roomy";
  std::filesystem::copy(run.options.folder, roomy, std::filesystem::copy_options::recursive);
  run.options.folder = roomy;
  int again = 0;
  run.options.on_report = [&](const Report& report) {
    again += report.kind == Report::Kind::item && done.contains(report.key) ? 1 : 0;
  };
  CHECK(run.resume().status == Status::succeeded);
  CHECK(again == 0);
}

TEST_CASE("a disk that is full when a run is interrupted takes nothing from it") {
  TestFolder disk;
  if (!disk.mount_tiny(1 << 20)) {
    MESSAGE("skipped: mounting a small file system needs root");
    return;
  }
  // The journal's last page is to be full: at first it is seen how long the journal is without
  // more.
  constexpr size_t kPage = 4096;
  size_t padding = 0;
  for (const std::string& name : {std::string("one"), std::string("two")}) {
    CAPTURE(name);
    TestRun run(pipeline_text(work("Wait", R"json("waitTimeInSeconds": 600)json"),
                              R"(, "description": ")" + std::string(padding, 'x') + '"'));
    run.options.folder = disk / name;
    const Interrupt interrupt;
    run.options.interrupt_fd = interrupt.read_end.get();
    bool raised = false;
    run.options.on_report = [&](const Report&) {
      if (!std::exchange(raised, true)) {
        const size_t bytes = std::filesystem::file_size(run.options.folder / "journal");
        padding = 2 * kPage - 4 - bytes % kPage;
        if (name == "two") {
          CHECK(bytes % kPage == kPage - 4);
          std::string rest(size_t{1} << 20, 'x');
          while (rest.size() > 1 && !base::replace_file(disk / "rest", rest).ok()) {
            rest.resize(rest.size() - std::min(kPage, rest.size() - 1));
          }
        }
        interrupt.raise();
      }
    };

    const RunResult stopped = run.start();

    CHECK(stopped.interrupted);
    CHECK(run.state().status == Status::in_progress);
  }
}

TEST_CASE("an engine killed at any moment loses no finished item and runs none twice") {
  // Enough work for every kill below, also on an idle machine (300 items ended after 12 to 16).
  constexpr int kItems = 1200;
  constexpr int kSlots = 2;
  TestRun run(pipeline_text(loop_of(fmt::format("@range(0, {})", kItems),
                                    work("Custom", counting()), "\"batchCount\": 8,")));
  base::Rng rng(20261130);
  int kills = 0;
  int lives = 0;
  std::set<std::string> finished;
  bool began = false;
  for (bool ended = false; !ended; ++lives) {
    REQUIRE(lives < 200);
    proc::Child engine =
        !began ? engine_process({"run", (run.folder / "pl.json").string(),
                                 run.options.folder.string(), std::to_string(kSlots)})
               : engine_process({"resume", run.options.folder.string(), std::to_string(kSlots)});
    const auto life = milliseconds(lives < 25 ? 20 + rng.below(60) : 60'000);
    const auto exit = engine.wait(life);
    ended = exit.ok() && exit->code == 0;
    if (!exit.ok()) {
      ::kill(static_cast<pid_t>(engine.pid()), SIGKILL);  // the engine alone, not its group
      REQUIRE(engine.wait(milliseconds(10'000)).ok());
      ++kills;
    } else {
      REQUIRE_MESSAGE(ended, exit->to_error("the engine").message());
    }
    const auto state = load_run(run.options.folder);
    began = began || state.ok();
    if (!state.ok() || state->find("each") == nullptr) {
      continue;
    }
    std::set<std::string> now_finished;
    for (const ItemState& one : state->find("each")->items) {
      if (one.status == Status::succeeded) {
        now_finished.insert(one.key);
      }
    }
    for (const std::string& key : finished) {
      CHECK(now_finished.contains(key));  // nothing that was finished is lost
    }
    finished = std::move(now_finished);
  }

  CHECK(kills >= 20);
  CHECK(finished.size() == kItems);
  int runs = 0;
  for (const auto& [key, count] : side_effects(run.options.folder)) {
    CHECK(count >= 1);
    runs += count;
  }
  CHECK(side_effects(run.options.folder).size() == kItems);
  CHECK_MESSAGE(runs - kItems <= kSlots * kills, runs);  // only what was in flight ran again
  MESSAGE(kills, " kills, ", runs - kItems, " items ran again");
}

TEST_CASE("workers killed at random cost time and nothing else") {
  TestRun run(pipeline_text(loop_of("@range(0, 60)", work("Custom", counting("sleep 0.02")))));
  base::Rng rng(5);
  std::atomic<bool> over = false;
  int kills = 0;
  base::Thread killer("killer", [&] {
    while (!over) {
      base::sleep_for(milliseconds(100 + static_cast<int64_t>(rng.below(100))));
      std::vector<int> pids;  // our children that are workers
      std::error_code code;
      for (const auto& entry : std::filesystem::directory_iterator("/proc", code)) {
        const std::string name = entry.path().filename().string();
        const std::string stat = base::read_file(entry.path() / "stat", 4096).value_or("");
        const size_t end = stat.rfind(") ");
        if (end != std::string::npos &&
            stat.substr(end + 4).starts_with(std::to_string(::getpid()) + " ")) {
          pids.push_back(std::stoi(name));
        }
      }
      if (!pids.empty() && !over) {
        ::kill(pids[rng.below(pids.size())], SIGKILL);
        ++kills;
      }
    }
  });

  const RunResult result = run.start();
  over = true;
  killer.join();

  CHECK(result.status == Status::succeeded);
  CHECK(kills > 0);
  CHECK(side_effects(run.options.folder).size() == 60);
}

TEST_CASE("the journal may tear at any byte of its last record") {
  TestRun run(pipeline_text(loop_of("@range(0, 5)", work("NoOp", R"json("n": "@item()")json"))));
  CHECK(run.start().status == Status::succeeded);
  const std::string whole = run.file("journal");
  std::vector<size_t> starts;
  size_t at = 8;
  while (at < whole.size()) {
    starts.push_back(at);
    uint32_t length = 0;
    std::memcpy(&length, whole.data() + at, 4);
    at += 16 + length;
  }
  const base::Path journal = journal_path(run.options.folder);

  for (size_t cut = starts.back(); cut < whole.size(); ++cut) {
    CAPTURE(cut);
    REQUIRE(base::replace_file(journal, whole.substr(0, cut)).ok());
    const RunState torn = run.state();
    CHECK(torn.status == Status::in_progress);
    if (cut % 16 == 0) {
      CHECK(run.resume().status == Status::succeeded);
      CHECK(run.state().find("each")->items.size() == 5);
    }
  }
  // A journal cut behind any record is a run that goes on from there.
  for (size_t i = 1; i < starts.size(); ++i) {
    REQUIRE(base::replace_file(journal, whole.substr(0, starts[i])).ok());
    CHECK(run.resume().status == Status::succeeded);
    CHECK(item(run.state(), "4").outputs.at("do").at("n").integer() == 4);
  }
}

TEST_CASE("a journal of another kind is told from a damaged one") {
  TestRun run(pipeline_text(work("NoOp", "")));
  CHECK(run.start().status == Status::succeeded);
  std::string text = run.file("journal");

  const size_t version = text.find(fmt::format("\"engine_version\":{}", kEngineVersion));
  REQUIRE(version != std::string::npos);
  text[40] = static_cast<char>(text[40] + 1);
  REQUIRE(base::replace_file(journal_path(run.options.folder), text).ok());
  CHECK(load_run(run.options.folder).error().code() == Errc::corrupt);
  CHECK(resume_run({}, run.options).error().code() == Errc::corrupt);

  CHECK(load_run(run.folder.path()).error().code() == Errc::not_found);
}

TEST_CASE("runs are found by id, by the beginning of it, by folder and as latest") {
  const TestFolder runs;
  const auto make = [&](const std::string& id) {
    TestRun run(pipeline_text(work("NoOp", "")));
    run.request.run_id = id;
    run.options.folder = runs / id;
    CHECK(run.start().status == Status::succeeded);
  };
  make("aa11");
  make("aa22");
  make("bb33");

  CHECK(*find_run("aa11", runs.path()) == runs / "aa11");
  CHECK(*find_run("bb", runs.path()) == runs / "bb33");
  CHECK(*find_run((runs / "aa22").string(), runs.path()) == runs / "aa22");
  CHECK(*find_run("latest", runs.path()) == runs / "bb33");
  CHECK(find_run("aa", runs.path()).error().code() == Errc::invalid_argument);
  CHECK(find_run("zz", runs.path()).error().message().find("there are: ") != std::string::npos);
}

TEST_CASE("what an interrupted retry had not come to is still not run again by a plain resume") {
  TestRun run(pipeline_text(loop_of(
      "@range(0, 12)",
      work("Custom", counting("test $HEADRACE_ITEM -gt 1 || { test -e $HEADRACE_RUN_FOLDER/good && "
                              "sleep $(cat $HEADRACE_RUN_FOLDER/good); }")))));
  CHECK(run.start().status == Status::failed);  // 0 and 1, which come first and take both slots
  REQUIRE(base::replace_file(run.options.folder / "good", "600").ok());
  const Interrupt interrupt;
  run.options.interrupt_fd = interrupt.read_end.get();
  base::Thread other("interrupter", [&] {
    CHECK(comes_true([&] {
      auto counts = side_effects(run.options.folder);
      return counts["0"] == 2 && counts["1"] == 2;
    }));
    interrupt.raise();
  });
  CHECK(run.resume({.retry_failed = true, .accept_changes = false}).interrupted);
  other.join();
  run.options.interrupt_fd = -1;
  REQUIRE(base::replace_file(run.options.folder / "good", "0").ok());

  CHECK(run.resume().status == Status::succeeded);

  for (const auto& [key, count] : side_effects(run.options.folder)) {
    CAPTURE(key);
    CHECK(count == (key == "0" || key == "1" ? 3 : 1));
  }
}

TEST_CASE("nothing of a command outlives an engine that is killed") {
  TestRun run(pipeline_text(work(
      "Custom", R"json("command": "echo $$ > $HEADRACE_RUN_FOLDER/group; sleep 600; true")json")));
  proc::Child engine =
      engine_process({"run", (run.folder / "pl.json").string(), run.options.folder.string(), "1"});
  REQUIRE(comes_true([&] { return run.file("group").ends_with('\n'); }));
  std::string group = run.file("group");
  group.pop_back();
  REQUIRE(comes_true([&] { return group_runs(group); }));

  ::kill(static_cast<pid_t>(engine.pid()), SIGKILL);  // the engine alone
  REQUIRE(engine.wait(milliseconds(10'000)).ok());

  CHECK(comes_true([&] { return !group_runs(group); }, std::chrono::seconds(5)));
  if (group_runs(group)) {
    ::kill(-std::stoi(group), SIGKILL);
  }
}

namespace {

/// The first time it starts a process that outlives its shell, named by RUN/inner, and waits for
/// it. The second time it notes in RUN/together when that one still runs.
const char* kLeavesInner =
    R"json("command": "cd $HEADRACE_RUN_FOLDER; if test -e inner; then ! grep -q 'State:.[RSD]' /proc/$(cat inner)/status || touch together; else sleep 600 & echo $! > inner.new; mv inner.new inner; wait; fi")json";

/// Does the process run whose number is in this file of the run? Zombies do not.
bool process_runs(const TestRun& run, const std::string& name) {
  const std::string pid = run.file(name);
  const std::string stat =
      base::read_file(base::Path("/proc") / pid.substr(0, pid.find('\n')) / "stat", 4096)
          .value_or("");
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}
bool inner_runs(const TestRun& run) { return process_runs(run, "inner"); }

void end_inner(const TestRun& run) {
  if (inner_runs(run)) {
    ::kill(std::stoi(run.file("inner")), SIGKILL);
  }
}

}  // namespace

TEST_CASE("an engine that is killed before it hears of a command leaves nothing of it running") {
  TestRun run(pipeline_text(work("Custom", kLeavesInner)), 1);
  proc::Child engine = engine_process(
      {"run", (run.folder / "pl.json").string(), run.options.folder.string(), "1", "kill-engine"});

  const auto exit = engine.wait(milliseconds(20'000));

  REQUIRE(exit.ok());
  CHECK(exit->signal == SIGKILL);
  REQUIRE(run.exists("inner"));
  CHECK(comes_true([&] { return !inner_runs(run); }));
  end_inner(run);
}

TEST_CASE("a command whose engine and worker were killed is ended before its item runs again") {
  for (const char* item : {"", "a/b c"}) {
    CAPTURE(item);
    const std::string activity = work("Custom", kLeavesInner);
    TestRun run(
        pipeline_text(*item == '\0' ? activity : loop_of("@createArray('a/b c')", activity)), 1);
    proc::Child engine = engine_process({"run", (run.folder / "pl.json").string(),
                                         run.options.folder.string(), "1", "freeze-engine"});
    REQUIRE(comes_true([&] { return run.exists("fault") && !process_runs(run, "fault"); }));
    ::kill(static_cast<pid_t>(engine.pid()), SIGKILL);
    REQUIRE(engine.wait(milliseconds(20'000)).ok());
    REQUIRE(inner_runs(run));  // the shell goes with its worker, what it started does not

    run.options.folder = run.folder / "." / "run";  // the same folder by another name
    CHECK(run.resume().status == Status::succeeded);

    CHECK(!run.exists("together"));
    CHECK(!inner_runs(run));
    end_inner(run);
  }
}

TEST_CASE("a command whose worker was killed before the engine heard of it is ended") {
  TestRun run(pipeline_text(work("Custom", kLeavesInner)), 1);
  run.options.worker_command.insert(run.options.worker_command.end(),
                                    {"kill-worker", run.options.folder.string()});

  CHECK(run.start().status == Status::succeeded);

  CHECK(run.state().find("do")->attempts == 2);
  CHECK(!run.exists("together"));
  CHECK(!inner_runs(run));
  end_inner(run);
}

TEST_CASE("parameters keep their kind of number when a run is resumed") {
  TestRun run(pipeline_text(
      loop_of("@range(0, 4)",
              work("Custom", R"json("command": "test ! -e $HEADRACE_RUN_FOLDER/wait || sleep 600",
                  "extendedProperties": {"x": "@div(pipeline().parameters.x, 4)",
                                         "y": "@div(pipeline().parameters.o.y[0], 4)"})json")) +
          R"json(, {"name": "after", "type": "NoOp",
                  "dependsOn": [{"activity": "each", "dependencyConditions": ["Succeeded"]}],
                  "typeProperties": {"x": "@div(pipeline().parameters.x, 4)",
                                     "y": "@div(pipeline().parameters.o.y[0], 4)",
                                     "i": "@div(pipeline().parameters.i, 4)"}})json",
      R"json(, "parameters": {"x": {"type": "Float"}, "i": {"type": "Int"},
                                  "o": {"type": "Object"}})json"));
  run.request.arguments.set("x", "2.0");
  run.request.arguments.set("i", "2");
  run.request.arguments.set("o", R"json({"y": [2.0]})json");
  const Interrupt interrupt;
  run.options.interrupt_fd = interrupt.read_end.get();
  interrupt.raise();
  CHECK(run.start().interrupted);
  run.options.interrupt_fd = -1;

  CHECK(run.resume().status == Status::succeeded);

  CHECK(run.state().find("after")->output.dump() == R"json({"x":0.5,"y":0.5,"i":0})json");
}

TEST_CASE("a slot that cannot start its worker costs no item, and takes part again when it can") {
  TestRun run(pipeline_text(loop_of("@range(0, 8)", work("Custom", counting("sleep 0.02")))));
  const base::Path blocked = run.options.folder / "workers/1.log";
  REQUIRE(base::make_folders(blocked).ok());
  base::Thread other("helper", [&] {
    CHECK(comes_true([&] { return side_effects(run.options.folder).size() >= 7; }));
    std::filesystem::remove(blocked);
  });

  CHECK(run.start().status == Status::succeeded);

  other.join();
  const RunState state = run.state();
  for (const ItemState& one : state.find("each")->items) {
    CAPTURE(one.key);
    CHECK(one.attempts == 1);
  }
}

TEST_CASE("a slot that cannot start its worker for long ends the run, which goes on later") {
  TestRun run(pipeline_text(loop_of("@range(0, 8)", work("Custom", counting()))));
  const base::Path blocked = run.options.folder / "workers/1.log";
  REQUIRE(base::make_folders(blocked).ok());
  run.options.worker_patience = milliseconds(500);

  const auto ended = start_run(run.request, run.options);

  REQUIRE(!ended.ok());
  CHECK(ended.error().message().find("workers/1.log") != std::string::npos);
  CHECK(ended.error().message().find("headrace flow resume " + run.options.folder.string()) !=
        std::string::npos);
  CHECK(run.state().status == Status::in_progress);
  std::filesystem::remove(blocked);
  CHECK(run.resume().status == Status::succeeded);
  for (const auto& [key, count] : side_effects(run.options.folder)) {
    CHECK(count == 1);
  }
}

TEST_CASE("a run that ends by an error while its journal is being written ends in order") {
  sync_delay_ms = 20;
  for (int round = 0; round < 20; ++round) {
    TestRun run(pipeline_text(loop_of("@range(0, 300)", work("NoOp", ""))), 1);
    REQUIRE(base::make_folders(run.options.folder / "workers/0.log").ok());
    run.options.worker_patience = milliseconds(0);
    CHECK(!start_run(run.request, run.options).ok());
  }
  sync_delay_ms = 0;
}

TEST_CASE("an attempt whose worker cannot be started can be cancelled") {
  TestRun run(pipeline_text(work("NoOp", "")), 1);
  REQUIRE(base::make_folders(run.options.folder / "workers/0.log").ok());
  base::Thread other("canceller", [&] {
    CHECK(comes_true([&] { return run.exists("lock") && run.exists("journal"); }));
    const auto cancelled = cancel_run(run.options.folder, "", std::chrono::seconds(20));
    CHECK_MESSAGE(cancelled.ok(), (cancelled.ok() ? "" : cancelled.error().message()));
  });

  CHECK(run.start().status == Status::cancelled);
  other.join();
}

TEST_CASE("an output line after 17 MB of others counts, and the log keeps its end") {
  TestRun run(pipeline_text(work(
      "Custom",
      R"json("command": "yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx | head -c 17000000; echo '##headrace-output {\"n\": 1}'; echo the end")json")));

  CHECK(run.start().status == Status::succeeded);

  CHECK(run.state().find("do")->output.at("customOutput").at("n").integer() == 1);
  const std::string log = run.file("activities/do.1.log");
  CHECK(log.ends_with("the end\n"));
  CHECK(log.find("bytes left out") != std::string::npos);
}

TEST_CASE("an output line may be long") {
  TestRun run(pipeline_text(work(
      "Custom",
      R"json("command": "printf '##headrace-output \"'; head -c 70000 /dev/zero | tr '\\0' x; echo '\"'")json")));

  CHECK(run.start().status == Status::succeeded);

  CHECK(run.state().find("do")->output.at("customOutput").string() == std::string(70'000, 'x'));
}

TEST_CASE("a last line that is no UTF-8 reaches handlers and JSON as text") {
  TestRun run(
      pipeline_text(work("Custom", R"json("command": "printf 'Gr\\366sse' >&2; exit 3")json") +
                    R"json(, {"name": "handler", "type": "NoOp",
         "dependsOn": [{"activity": "do", "dependencyConditions": ["Failed"]}],
         "typeProperties": {"why": "@activity('do').error.message"}})json"));

  CHECK(run.start().status == Status::succeeded);

  CHECK(run.state().find("handler")->output.at("why").string() ==
        "the command ended with exit code 3; its last line: Gr\xEF\xBF\xBDsse");
}

TEST_CASE("a worker's last words that are no UTF-8 are text in its item's message") {
  TestRun run(pipeline_text(work("Misbehave", R"json("how": "print bytes and die")json")), 1);

  CHECK(run.start().status == Status::failed);

  const std::string message = run.state().error->message;
  CHECK(message == utf8_text(message));
  CHECK(message.find("Gr\xEF\xBF\xBDsse") != std::string::npos);
}

TEST_CASE("cancelling a queued item keeps it from running") {
  TestRun run(pipeline_text(loop_of(
      "@range(0, 6)",
      work("Custom", counting("while ! test -e $HEADRACE_RUN_FOLDER/go; do sleep 0.02; done")))));
  base::Thread other("canceller", [&] {
    CHECK(comes_true([&] { return side_effects(run.options.folder).size() == 2; }));
    const auto cancelled = cancel_run(run.options.folder, "5", std::chrono::seconds(20));
    CHECK_MESSAGE(cancelled.ok(), (cancelled.ok() ? "" : cancelled.error().message()));
    CHECK(item(run.state(), "5").status == Status::cancelled);
    const auto again = cancel_run(run.options.folder, "5", std::chrono::seconds(20));
    CHECK(again.error().code() == Errc::not_found);
    const auto unknown = cancel_run(run.options.folder, "55", std::chrono::seconds(20));
    CHECK(unknown.error().code() == Errc::not_found);
    CHECK(unknown.error().message().find("'55'") != std::string::npos);
    CHECK(base::replace_file(run.options.folder / "go", "").ok());
  });

  CHECK(run.start().status == Status::failed);

  other.join();
  CHECK(side_effects(run.options.folder).size() == 5);
  CHECK(item(run.state(), "5").status == Status::cancelled);
  CHECK(item(run.state(), "4").status == Status::succeeded);
}

TEST_CASE("a request to cancel that nobody took does not cancel a later resume") {
  TestRun run(pipeline_text(work("NoOp", "")));
  const Interrupt interrupt;
  run.options.interrupt_fd = interrupt.read_end.get();
  interrupt.raise();
  CHECK(run.start().interrupted);
  run.options.interrupt_fd = -1;
  REQUIRE(base::replace_file(run.options.folder / "cancel", "\n").ok());

  CHECK(run.resume().status == Status::succeeded);
  CHECK(!run.exists("cancel"));
}

TEST_CASE("cancelling an engine that takes no request is a timeout and leaves no request") {
  TestRun run(pipeline_text(work("NoOp", "")));
  CHECK(run.start().status == Status::succeeded);
  const auto lock = base::FileLock::acquire(run.options.folder / "lock", 1000, "a test");
  REQUIRE(lock.ok());

  const auto cancelled = cancel_run(run.options.folder, "", milliseconds(200));

  CHECK(cancelled.error().code() == Errc::timeout);
  CHECK(!run.exists("cancel"));
}

TEST_CASE("a run that ends or is killed before it takes the request is not said to be cancelled") {
  TestRun run(pipeline_text(work("NoOp", "")));
  CHECK(run.start().status == Status::succeeded);
  std::optional<base::FileLock> lock =
      *base::FileLock::acquire(run.options.folder / "lock", 1000, "a test");
  base::Thread other("engine", [&] {
    CHECK(comes_true([&] { return run.exists("cancel"); }));
    lock.reset();
  });

  const auto cancelled = cancel_run(run.options.folder, "", std::chrono::seconds(20));

  other.join();
  REQUIRE(!cancelled.ok());
  CHECK(cancelled.error().code() == Errc::not_found);
  CHECK(cancelled.error().message().find("Succeeded") != std::string::npos);
  CHECK(!run.exists("cancel"));
}

TEST_CASE("a run that is refused its folder leaves the secrets of the run that has it") {
  TestRun run(pipeline_text(work("NoOp", R"json("s": "@pipeline().parameters.token")json"),
                            R"json(, "parameters": {"token": {"type": "SecureString"}})json"));
  run.request.arguments.set("token", "hunter2");
  CHECK(run.start().status == Status::succeeded);
  const std::string before = run.file("secrets.json");
  run.request.arguments.set("token", "other");

  CHECK(start_run(run.request, run.options).error().code() == Errc::already_exists);

  CHECK(run.file("secrets.json") == before);
}

TEST_CASE("evaluated properties are for their owner alone, and in no file when they are secure") {
  const std::string command =
      R"json("command": "stat -c %a activity.json; cat activity.json; echo $HR_PARAM_k",
             "extendedProperties": {"k": "hunter2"})json";
  TestRun run(pipeline_text(work("Custom", command)));
  CHECK(run.start().status == Status::succeeded);
  CHECK(run.file("activities/do.1.log").starts_with("600\n"));
  CHECK(run.file("activities/do.1.log").find("\"k\": \"hunter2\"") != std::string::npos);

  TestRun secure(
      pipeline_text(work("Custom", command, R"json("policy": {"secureInput": true},)json")));
  CHECK(secure.start().status == Status::succeeded);
  const std::string log = secure.file("activities/do.1.log");
  CHECK(log.find("\"typeProperties\": \"***\"") != std::string::npos);
  CHECK(log.ends_with("}***\n"));
}

TEST_CASE("a native activity that its inputs let fail does not wait for its retries") {
  TestRun run(pipeline_text(loop_of(
      "@range(0, 4)", work("Misbehave", R"json("how": "fail")json",
                           R"json("policy": {"retry": 3, "retryIntervalInSeconds": 30},)json"))));
  const base::Micros began = base::system_clock().monotonic();

  CHECK(run.start().status == Status::failed);

  CHECK(base::system_clock().monotonic() - began < std::chrono::seconds(25));
  const RunState state = run.state();
  const ItemState& failed = item(state, "3");
  CHECK(failed.attempts == 1);
  CHECK(failed.error->message ==
        "told to fail (not tried again: the same inputs fail the same way)");
}

}  // namespace headrace::flow
