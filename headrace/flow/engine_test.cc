// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/engine.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <set>

#include "headrace/base/random.h"
#include "headrace/flow/engine_simulator_internal.h"

namespace headrace::flow {

namespace {

/// "A: X" or "B(A Failed,C Succeeded): X" -> a work activity of type Work.
std::string work(const std::string& name, const std::string& depends = "",
                 const std::string& more = "") {
  return fmt::format(R"json({{"name": "{}", "type": "Work", "dependsOn": [{}]{}}})json", name,
                     depends, more);
}

std::string on(const std::string& name, const std::string& conditions) {
  return fmt::format(R"json({{"activity": "{}", "dependencyConditions": [{}]}})json", name,
                     conditions);
}

std::string pipeline_text(const std::vector<std::string>& activities,
                          const std::string& more = "") {
  std::string all;
  for (const std::string& activity : activities) {
    all += (all.empty() ? "" : ",\n") + activity;
  }
  return R"json({"name": "p", "properties": {"activities": [)json" + all + "]" + more + "}}";
}

/// Activities named in `failing` fail, all others succeed.
Simulator::Worker failing(std::set<std::string> names) {
  return [names = std::move(names)](const CallSpec& call) {
    return names.contains(call.activity->name) ? breaks() : works();
  };
}

std::string status_of(const Simulator& run, const std::string& path) {
  const std::string text = run.result(path);
  return text.substr(0, text.find(':'));
}

std::string loop_of(const std::string& items, const std::string& body, const std::string& more = "",
                    const std::string& name = "each") {
  return fmt::format(
      R"json({{"name": "{}", "type": "ForEach", "typeProperties": {{"items": "{}", {} "activities": [{}]}}}})json",
      name, items, more, body);
}

}  // namespace

TEST_CASE("the verdict of a pipeline follows its leaves, and the parents of skipped leaves") {
  const std::string s = "\"Succeeded\"";
  const std::string f = "\"Failed\"";
  struct Row {
    const char* shape;
    std::vector<std::string> activities;
    Status when_a_succeeds;
    Status when_a_fails;
  };
  const std::vector<Row> rows = {
      {"A alone", {work("A")}, Status::succeeded, Status::failed},
      {"try-catch", {work("A"), work("F", on("A", f))}, Status::succeeded, Status::succeeded},
      {"do-if-else",
       {work("A"), work("F", on("A", f)), work("S", on("A", s))},
       Status::succeeded,
       Status::failed},
      {"do-if-skip-else",
       {work("A"), work("F", on("A", f)), work("S", on("A", s)), work("D", on("S", "\"Skipped\""))},
       Status::succeeded,
       Status::succeeded},
      {"try-catch-proceed",
       {work("A"), work("F", on("A", f)), work("N", on("F", "\"Succeeded\", \"Skipped\""))},
       Status::succeeded,
       Status::succeeded},
      {"completed",
       {work("A"), work("C", on("A", "\"Completed\""))},
       Status::succeeded,
       Status::succeeded},
  };
  for (const Row& row : rows) {
    CAPTURE(row.shape);
    Simulator good(pipeline_of(pipeline_text(row.activities)), failing({}));
    Simulator bad(pipeline_of(pipeline_text(row.activities)), failing({"A"}));
    CHECK(good.run() == row.when_a_succeeds);
    CHECK(bad.run() == row.when_a_fails);
  }
}

TEST_CASE("a handler at the end of a chain runs when any link failed, and only then") {
  const std::vector<std::string> chain = {work("A"), work("B", on("A", "\"Succeeded\"")),
                                          work("C", on("B", "\"Succeeded\"")),
                                          work("H", on("C", "\"Failed\", \"Skipped\""))};

  Simulator good(pipeline_of(pipeline_text(chain)), failing({}));
  CHECK(good.run() == Status::succeeded);
  CHECK(status_of(good, "H") == "Skipped");

  for (const char* broken : {"A", "B", "C"}) {
    CAPTURE(broken);
    Simulator bad(pipeline_of(pipeline_text(chain)), failing({broken}));
    CHECK(bad.run() == Status::succeeded);
    CHECK(status_of(bad, "H") == "Succeeded");
  }
}

TEST_CASE("Completed means succeeded or failed and never skipped; its status is the leaf's") {
  const std::vector<std::string> shape = {work("Z"), work("A", on("Z", "\"Succeeded\"")),
                                          work("C", on("A", "\"Completed\""))};

  Simulator skipped(pipeline_of(pipeline_text(shape)), failing({"Z"}));
  CHECK(skipped.run() == Status::failed);
  CHECK(status_of(skipped, "C") == "Skipped");

  Simulator leaf(pipeline_of(pipeline_text(shape)), failing({"A", "C"}));
  CHECK(leaf.run() == Status::failed);
  CHECK(leaf.result("run") == "Failed: no luck");
}

TEST_CASE("an activity waits for all it depends on; inactive ones take the status they are given") {
  const std::string both = on("A", "\"Succeeded\"") + "," + on("B", "\"Failed\", \"Succeeded\"");
  Simulator run(
      pipeline_of(pipeline_text({work("A"), work("B"), work("C", both)})),
      [](const CallSpec& call) { return works("{}", call.path == "A" ? 5.0 : 2.0); }, 8);

  CHECK(run.run() == Status::succeeded);
  CHECK(run.seconds() == doctest::Approx(1.0 + 5.0 + 2.0));

  Simulator off(
      pipeline_of(pipeline_text(
          {work("A", "", R"json(, "state": "Inactive", "onInactiveMarkAs": "Failed")json"),
           work("B", on("A", "\"Failed\""))})),
      failing({}));
  CHECK(off.run() == Status::succeeded);
  CHECK(off.calls().size() == 1);
}

TEST_CASE("a failed attempt is repeated as often as the policy says, after its interval") {
  int attempts = 0;
  const auto pipeline = pipeline_of(pipeline_text(
      {work("A", "", R"json(, "policy": {"retry": 2, "retryIntervalInSeconds": 40})json")}));
  Simulator run(pipeline, [&](const CallSpec&) { return ++attempts < 3 ? breaks() : works(); });

  CHECK(run.run() == Status::succeeded);
  CHECK(attempts == 3);
  CHECK(run.seconds() == doctest::Approx(1.0 + 3 * 1.0 + 2 * 40.0));
  CHECK(run.calls().back().starts_with("A#3 "));

  attempts = -10;
  Simulator hopeless(pipeline, [&](const CallSpec&) { return breaks(); });
  CHECK(hopeless.run() == Status::failed);
  CHECK(hopeless.calls().size() == 3);
}

TEST_CASE("an error of the input is not tried again, one of the machine is") {
  const auto pipeline = pipeline_of(pipeline_text(
      {work("A", "", R"json(, "policy": {"retry": 2, "retryIntervalInSeconds": 40})json")}));
  for (const auto& [code, attempts] :
       {std::pair("invalid_argument", 1), std::pair("not_found", 1), std::pair("corrupt", 1),
        std::pair("io", 3), std::pair("out_of_space", 3), std::pair("2500", 3)}) {
    CAPTURE(code);
    Simulator run(pipeline, [name = code](const CallSpec&) {
      SimulatedWork work = breaks();
      work.outcome.error.code = name;
      return work;
    });
    CHECK(run.run() == Status::failed);
    CHECK(static_cast<int>(run.calls().size()) == attempts);
  }
}

TEST_CASE("an attempt that runs into its timeout is stopped and may be retried") {
  const auto pipeline = pipeline_of(pipeline_text({work(
      "A", "",
      R"json(, "policy": {"timeout": "0.00:00:10", "retry": "1", "retryIntervalInSeconds": 0})json")}));
  Simulator run(pipeline,
                [](const CallSpec& call) { return works("{}", call.attempt == 1 ? 99 : 1); });

  CHECK(run.run() == Status::succeeded);
  CHECK(run.seconds() == doctest::Approx(1.0 + 10.0 + 1.0));

  Simulator slow(pipeline, [](const CallSpec&) { return works("{}", 99); });
  CHECK(slow.run() == Status::failed);
  CHECK(slow.result("A") == "Failed: 'A' did not end within its policy.timeout of 10 s");
}

TEST_CASE("a lost worker does not use up a retry, but not more than three times") {
  const auto pipeline = pipeline_of(pipeline_text({work("A")}));
  Simulator run(pipeline, [](const CallSpec&) { return works("{}", 10); });
  const auto kill = [](Simulator* simulator, int times) {
    return [simulator, left = times]() mutable {
      for (; left > 0 && !simulator->engine().running().empty(); --left) {
        simulator->kill_worker(simulator->engine().running()[0].attempt);
      }
    };
  };

  CHECK(run.run(kill(&run, 3)) == Status::succeeded);
  CHECK(run.calls().size() == 4);

  Simulator doomed(pipeline, [](const CallSpec&) { return works("{}", 10); });
  CHECK(doomed.run(kill(&doomed, 4)) == Status::failed);
  CHECK(doomed.result("A") == "Failed: the worker died 4 times under it, at last: SIGKILL");
}

TEST_CASE("what cannot be evaluated fails at once and is not retried") {
  const auto pipeline = pipeline_of(pipeline_text({work(
      "A", "", R"json(, "policy": {"retry": 5}, "typeProperties": {"x": "@div(1, 0)"})json")}));
  Simulator run(pipeline, failing({}));

  CHECK(run.run() == Status::failed);
  CHECK(run.calls().empty());
  CHECK(run.result("A").find("function 'div', argument 2 (divisor)") != std::string::npos);
  CHECK(run.result("A").find("in the expression \"@div(1, 0)\" of activity 'A'") !=
        std::string::npos);
}

TEST_CASE("a ForEach runs at most batchCount items at once from one shared queue") {
  const std::string body = work("fit", "", R"json(, "typeProperties": {"n": "@item()"})json");
  // 12 items, 4 at once; item 0 takes 30 s, the others 1 s: nothing waits behind the slow one.
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 12)", body, "\"batchCount\": 4,")})),
      [](const CallSpec& call) {
        return works(call.properties, call.item_key == "0" ? 30.0 : 1.0);
      },
      64);

  CHECK(run.run() == Status::succeeded);
  CHECK(run.running_max() == 4);
  CHECK(run.seconds() == doctest::Approx(1.0 + 30.0));
  CHECK(run.output("each[7]") == R"json({"fit":{"n":7}})json");
}

TEST_CASE("a sequential ForEach goes in order and goes on after a failure") {
  const std::string body = work("fit", "", R"json(, "typeProperties": {"n": "@item()"})json");
  Simulator run(
      pipeline_of(pipeline_text(
          {loop_of("@createArray('a','b','c')", body, "\"isSequential\": \"True\",")})),
      [](const CallSpec& call) { return call.item_key == "b" ? breaks() : works(); }, 8);

  CHECK(run.run() == Status::failed);
  CHECK(run.calls() == std::vector<std::string>{R"json(each[a]/fit#1 {"n":"a"})json",
                                                R"json(each[b]/fit#1 {"n":"b"})json",
                                                R"json(each[c]/fit#1 {"n":"c"})json"});
  CHECK(run.result("each[b]") == "Failed: no luck");
}

TEST_CASE("the error of a ForEach counts its distinct errors with keys, activity and log") {
  const std::string body = work("fit");
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 500)", body)})),
      [](const CallSpec& call) {
        const int key = std::stoi(call.item_key);
        return key == 400        ? breaks("exit 137")
               : key % 100 == 17 ? breaks("ValueError: series too short")
                                 : works();
      },
      8);

  CHECK(run.run() == Status::failed);
  CHECK(run.result("each") ==
        "Failed: ForEach 'each' failed: 6 of 500 items. 5\xC3\x97 ValueError: series too short "
        "(17, 117, 217, \xE2\x80\xA6) in 'fit' [items/17/fit.1.log]; 1\xC3\x97 exit 137 (400) in "
        "'fit' [items/400/fit.1.log]");
}

TEST_CASE("items are keyed by key, id, name, series_id or themselves when that is unique") {
  struct Row {
    std::string items;
    std::string key;
  };
  const std::vector<Row> rows = {
      {R"json(@json('[{\"key\":\"a\",\"id\":\"b\"}]'))json", "a"},
      {R"json(@json('[{\"id\":\"b\"},{\"id\":\"c\"}]'))json", "b"},
      {R"json(@json('[{\"id\":\"b\",\"name\":\"x\"},{\"id\":\"b\",\"name\":\"y\"}]'))json", "x"},
      {R"json(@json('[{\"series_id\":\"s\"}]'))json", "s"},
      {R"json(@json('[{\"id\":1},{\"id\":2}]'))json", "0"},
      {"@createArray('H1', 'H2')", "H1"},
      {"@createArray('H1', 'H1')", "0"},
      {"@range(5, 2)", "0"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.items);
    Simulator run(pipeline_of(pipeline_text({loop_of(row.items, work("w"))})), failing({}));
    CHECK(run.run() == Status::succeeded);
    CHECK(status_of(run, "each[" + row.key + "]") == "Succeeded");
  }

  Simulator own(pipeline_of(pipeline_text({loop_of("@range(5, 2)", work("w"),
                                                   "\"itemKey\": \"@concat('n', item())\",")})),
                failing({}));
  CHECK(own.run() == Status::succeeded);
  CHECK(status_of(own, "each[n6]") == "Succeeded");

  Simulator twice(
      pipeline_of(pipeline_text({loop_of("@range(5, 2)", work("w"), "\"itemKey\": \"same\",")})),
      failing({}));
  CHECK(twice.run() == Status::failed);
  CHECK(twice.result("each").find("gives 'same' twice") != std::string::npos);
}

TEST_CASE("items that are no array fail the ForEach; an empty array succeeds at once") {
  Simulator wrong(pipeline_of(pipeline_text({loop_of("@createObject('a', 1)", work("w"))})),
                  failing({}));
  CHECK(wrong.run() == Status::failed);
  CHECK(wrong.result("each").find("must be an array, not object {\"a\":1}") != std::string::npos);

  Simulator empty(pipeline_of(pipeline_text({loop_of("@createArray()", work("w"))})), failing({}));
  CHECK(empty.run() == Status::succeeded);
  CHECK(empty.output("each") == R"json({"itemsCount":0,"succeeded":0,"failed":0,"skipped":0})json");

  Simulator text(pipeline_of(pipeline_text({loop_of("@string('[1,2]')", work("w"))})), failing({}));
  CHECK(text.run() == Status::succeeded);
  CHECK(text.calls().size() == 2);
}

TEST_CASE("the outputs of items can be used after the ForEach") {
  const std::string gather = R"json({"name": "sum", "type": "SetVariable", "dependsOn": [)json" +
                             on("each", "\"Completed\"") +
                             R"json(], "typeProperties": {"variableName": "v",
      "value": "@string(activity('each').output.items)"}
})json";
  Simulator run(pipeline_of(pipeline_text({loop_of("@createArray('a','b')", work("fit")), gather},
                                          R"json(, "variables": {"v": {"type": "String"}})json")),
                [](const CallSpec& call) {
                  return call.item_key == "a" ? works(R"json({"loss":1})json") : breaks();
                });

  CHECK(run.run() == Status::succeeded);
  CHECK(run.engine().variables().at("v").string() ==
        R"json([{"key":"a","status":"Succeeded","outputs":{"fit":{"loss":1}}},)json"
        R"json({"key":"b","status":"Failed","outputs":{}}])json");
}

TEST_CASE("a failure budget stops the start of items, or cancels those that run") {
  const std::string body = work("fit");
  EngineOptions options;
  options.budget.count = 1;
  Simulator fast(
      pipeline_of(pipeline_text({loop_of("@range(0, 100)", body)})),
      [](const CallSpec& call) { return call.item_key == "3" ? breaks("boom") : works("{}", 2.0); },
      8, options);
  CHECK(fast.run() == Status::failed);
  CHECK(fast.calls().size() == 20);  // the 20 of the batch had been taken up
  CHECK(fast.result("each").ends_with("stopped by the failure budget, 80 items not started"));

  Simulator part(pipeline_of(pipeline_text(
                     {loop_of("@range(0, 100)", body,
                              R"json("batchCount": 1, "failureBudget": {"percent": 5},)json")})),
                 failing({"fit"}), 8);
  CHECK(part.run() == Status::failed);
  CHECK(part.calls().size() == 5);

  Simulator cancel(
      pipeline_of(pipeline_text(
          {loop_of("@range(0, 100)", body,
                   R"json("failureBudget": {"count": 1, "onExceeded": "cancel"},)json")})),
      [](const CallSpec& call) {
        return call.item_key == "3" ? breaks("boom") : works("{}", 99.0);
      },
      8);
  CHECK(cancel.run() == Status::failed);
  CHECK(cancel.seconds() == doctest::Approx(2.0));
  CHECK(status_of(cancel, "each[0]") == "Cancelled");
}

TEST_CASE("a ForEach whose first items all fail alike is stopped, and what waited is Skipped") {
  const std::string body = work("fit");
  const auto pipeline = pipeline_of(pipeline_text({loop_of("@range(0, 414)", body)}));
  const auto broken = [](const CallSpec&) { return breaks("no column y; it has item_id, value"); };
  Simulator run(pipeline, broken, 2);

  CHECK(run.run() == Status::failed);

  // Two slots: when the fifth failure comes, the sixth item runs. Of the batch of 20 that was taken
  // up, 14 had no slot yet.
  CHECK(run.calls().size() == 6);
  const std::string message = run.result("each");
  CHECK(
      message.starts_with("Failed: ForEach 'each' failed: 6 of 414 items. 6\xC3\x97 no column y; "
                          "it has item_id, value (0, 1, 2, \xE2\x80\xA6) in 'fit'"));
  CHECK(message.find("the first 5 items to end all failed with this error and none succeeded, 408 "
                     "items not started") != std::string::npos);
  CHECK(message.find("headrace flow resume RUN --retry-failed") != std::string::npos);
  CHECK(message.find("--no-circuit-breaker") != std::string::npos);
  CHECK(status_of(run, "each[5]") == "Failed");
  CHECK(run.result("each[6]") == "Skipped");
  CHECK(run.result("each[413]") == "Skipped");
  CHECK(run.output("each") ==
        R"json({"itemsCount":414,"succeeded":0,"failed":6,"skipped":408})json");
  CHECK(run.engine().progress().items_ended == 414);
  CHECK(run.engine().progress().items_failed == 6);
  CHECK(run.engine().progress().items_running == 0);
  CHECK(run.replayed()->error()->message == run.engine().error()->message);

  EngineOptions off;
  off.circuit_breaker = false;
  Simulator all(pipeline, broken, 2, off);
  CHECK(all.run() == Status::failed);
  CHECK(all.calls().size() == 414);

  Simulator wide(pipeline, broken, 8);
  CHECK(wide.run() == Status::failed);
  CHECK(wide.calls().size() == 15);  // 8 failed at 8 slots, 7 more ran
}

TEST_CASE("the circuit breaker needs five failures that are alike, of items, and no success") {
  const std::string body = work("fit");
  const auto calls = [](const std::string& text, const Simulator::Worker& worker, int slots = 1) {
    Simulator run(pipeline_of(text), worker, slots);
    run.run();
    return run.calls().size();
  };
  const std::string twenty = pipeline_text({loop_of("@range(0, 20)", body)});
  CHECK(calls(twenty, [](const CallSpec& call) {
          return call.item_key == "4" ? breaks("another") : breaks();
        }) == 20);
  CHECK(calls(twenty, [](const CallSpec& call) {
          return call.item_key == "0" ? works() : breaks();
        }) == 20);
  CHECK(calls(twenty, [](const CallSpec& call) {
          return breaks("items/" + call.item_key + "/x: item " + call.item_key + " has 1 row");
        }) == 5);
  CHECK(calls(twenty, [](const CallSpec& call) {
          return breaks("row " + std::to_string(std::stoi(call.item_key) + 100));
        }) == 20);

  // As many as there are or fewer: nothing to stop, nothing said.
  for (const int items : {4, 5}) {
    Simulator few(pipeline_of(pipeline_text(
                      {loop_of(fmt::format("@range(0, {})", items), body, "\"batchCount\": 1,")})),
                  failing({"fit"}), 1);
    CHECK(few.run() == Status::failed);
    CHECK(static_cast<int>(few.calls().size()) == items);
    CHECK(few.result("each").find("stopped") == std::string::npos);
  }
  Simulator six(pipeline_of(pipeline_text({loop_of("@range(0, 6)", body)})), failing({"fit"}), 1);
  six.run();
  CHECK(six.calls().size() == 5);
  CHECK(six.result("each").find(", 1 item not started") != std::string::npos);
}

TEST_CASE("attempts that fail and are tried again do not move the circuit breaker") {
  const std::string patient =
      work("fit", "", R"json(, "policy": {"retry": 1, "retryIntervalInSeconds": 30})json");
  // All first attempts fail alike, all second ones succeed.
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 60)", patient)})),
      [](const CallSpec& call) { return call.attempt == 1 ? breaks() : works(); }, 2);
  CHECK(run.run() == Status::succeeded);
  CHECK(run.calls().size() == 120);

  // All of them fail for good: the batch of 20 has begun when the first item ends, and one more is
  // taken up for each of the four that end before the fifth; two of these get a slot.
  Simulator bad(pipeline_of(pipeline_text({loop_of("@range(0, 60)", patient)})), failing({"fit"}),
                2);
  CHECK(bad.run() == Status::failed);
  CHECK(bad.calls().size() == 44);
  CHECK(bad.result("each").find("the first 5 items") != std::string::npos);
  CHECK(bad.result("each[22]") == "Skipped");
}

TEST_CASE("what is cancelled or runs on does not count for the circuit breaker, or against it") {
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 30)", work("fit"))})),
      [](const CallSpec& call) { return call.item_key == "1" ? works("{}", 100.0) : breaks(); });
  bool done = false;
  CHECK(run.run([&] {
    if (!std::exchange(done, true)) {
      run.cancel("0");
    }
  }) == Status::failed);
  CHECK(run.calls().size() == 7);  // 0 was stopped, 1 goes on, 2 to 6 fail
  CHECK(status_of(run, "each[0]") == "Cancelled");
  CHECK(status_of(run, "each[1]") == "Succeeded");
  CHECK(status_of(run, "each[7]") == "Skipped");
  CHECK(run.engine().progress().items_ended == 30);
}

TEST_CASE("the circuit breaker takes back branches and loops inside of items that did not begin") {
  const std::string inner =
      loop_of("@createArray('x','y')", work("fit"), "\"batchCount\": 2,", "inner");
  const std::string gate =
      R"json({"name": "gate", "type": "IfCondition", "typeProperties": {"expression": "@true",
          "ifTrueActivities": [)json" +
      work("fit2") + "]}}";
  for (const std::string& body : {inner, gate}) {
    CAPTURE(body);
    Simulator run(pipeline_of(pipeline_text({loop_of("@range(0, 100)", body)})),
                  failing({"fit", "fit2"}), 1);
    CHECK(run.run() == Status::failed);
    CHECK(run.calls().size() == (body == inner ? 10 : 5));
    CHECK(run.result("each[50]") == "Skipped");
    CHECK(run.result("each[7]") == "Skipped");
    const EngineProgress progress = run.engine().progress();
    CHECK(progress.items_failed == (body == inner ? 15 : 5));  // with the inner ones
    CHECK(progress.items_ended == progress.items_total);
    CHECK(progress.items_running == 0);
    CHECK(run.replayed()->status() == Status::failed);
  }
}

TEST_CASE("an engine killed on the way counts on, and stops where a quiet run stops") {
  const auto pipeline = pipeline_of(pipeline_text({loop_of("@range(0, 100)", work("fit"))}));
  Simulator run(pipeline, failing({"fit"}), 1);
  int steps = 0;
  CHECK(run.run([&] {
    if (++steps == 4) {
      run.kill_engine(1);
    }
  }) == Status::failed);
  CHECK(run.result("each").find("the first 5 items") != std::string::npos);
  CHECK(status_of(run, "each[5]") == "Skipped");

  Simulator off(pipeline, failing({"fit"}), 1);
  steps = 0;
  CHECK(off.run([&] {
    if (++steps == 4) {
      off.kill_engine(1, false);
    }
  }) == Status::failed);
  CHECK(status_of(off, "each[99]") == "Failed");
  CHECK(off.replayed()->progress().items_failed == 100);
}

TEST_CASE("items are counted by what they do now, and by how they ended") {
  // 2 slots, 4 taken up: at 2.5 s items 0 and 1 wait for their retry, 2 and 3 run.
  const std::string patient =
      work("fit", "", R"json(, "policy": {"retry": 1, "retryIntervalInSeconds": 30})json");
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 10)", patient, "\"batchCount\": 4,")})),
      [](const CallSpec& call) {
        return call.attempt == 1 && call.item_key <= "1" ? breaks("no", 2.0) : works("{}", 5.0);
      },
      2);
  bool seen = false;
  CHECK(run.run([&] {
    const ItemStates states = run.engine().item_states();
    if (states.waiting_retry == 2 && !seen) {
      seen = true;
      CHECK(states.running == 2);
      CHECK(states.queued == 6);
      run.cancel("9");
      CHECK(run.engine().item_states().queued == 5);
    }
  }) == Status::failed);

  CHECK(seen);
  CHECK(run.engine().progress().items_succeeded == 9);
  CHECK(run.engine().progress().items_cancelled == 1);
  CHECK(run.engine().item_states().running == 0);
  CHECK(run.engine().item_states().queued == 0);

  Simulator stopped(pipeline_of(pipeline_text({loop_of("@range(0, 9)", work("fit"))})),
                    failing({"fit"}), 1);
  stopped.run();
  const EngineProgress progress = stopped.engine().progress();
  CHECK(progress.items_skipped == 4);
  CHECK(progress.items_failed == 5);
}

TEST_CASE("items of a run that was cancelled are cancelled, begun or not, and none has failed") {
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 6)", work("fit"), "\"batchCount\": 2,")})),
      [](const CallSpec&) { return works("{}", 5.0); }, 2);
  bool asked = false;
  CHECK(run.run([&] {
    if (!asked && run.engine().progress().items_running == 2) {
      asked = true;
      run.cancel();
    }
  }) == Status::cancelled);

  REQUIRE(asked);
  for (const EngineProgress& progress : {run.engine().progress(), run.replayed()->progress()}) {
    CHECK(progress.items_cancelled == 6);
    CHECK(progress.items_failed == 0);
    CHECK(progress.items_ended == 6);
  }
}

TEST_CASE("an attempt knows why it begins and how long it waited for its slot") {
  using Reason = StartAttempt::Reason;
  const auto pipeline = pipeline_of(pipeline_text(
      {work("A", "", R"json(, "policy": {"retry": 1, "retryIntervalInSeconds": 0})json"),
       work("B")}));
  Engine engine(pipeline, {.run_id = "r"});
  Actions actions;
  const auto step = [&](int64_t second, auto body) {
    actions.clear();
    REQUIRE(engine.step({base::Micros(second * 1'000'000), body}, &actions).ok());
    return actions.start.empty() ? StartAttempt{} : actions.start[0];
  };
  const auto ends = [](const StartAttempt& start, Outcome::Kind kind) {
    AttemptEnded event{start.attempt, {}};
    event.outcome.kind = kind;
    return event;
  };
  const StartAttempt first = step(1, Started{1});
  CHECK(first.reason == Reason::first);
  CHECK(first.waited == base::Micros(0));
  const StartAttempt again = step(5, ends(first, Outcome::Kind::lost));
  CHECK(again.reason == Reason::lost);
  const StartAttempt resumed = step(7, Resumed{1});
  CHECK(resumed.reason == Reason::resumed);
  const StartAttempt other = step(8, ends(resumed, Outcome::Kind::failed));
  CHECK(other.reason == Reason::first);  // B, while A waits for its interval
  CHECK(other.waited == std::chrono::seconds(7));
  step(10, Tick{});
  const StartAttempt retry = step(14, ends(other, Outcome::Kind::succeeded));
  CHECK(retry.reason == Reason::retry);
  CHECK(retry.waited == std::chrono::seconds(4));
}

TEST_CASE("every parallel item sees the value it set itself; the last one by index stays") {
  const std::string body =
      R"json({"name": "set", "type": "SetVariable", "typeProperties": {"variableName": "v",
          "value": "@string(item())"}
},)json" +
      work("use", on("set", "\"Succeeded\""), R"json(, "typeProperties": {"v": "@variables('v')"
})json");
  const std::string variables = R"json(, "variables": {"v": {"type": "String"}})json";
  base::Rng rng(7);
  Simulator run(
      pipeline_of(
          pipeline_text({loop_of("@range(0, 200)", body, "\"batchCount\": 50,")}, variables)),
      [&](const CallSpec& call) {
        CHECK(call.properties == R"json({"v":")json" + call.item_key + R"json("})json");
        return works("{}", rng.uniform() * 10.0);
      },
      50);

  CHECK(run.run() == Status::succeeded);
  CHECK(run.calls().size() == 200);
  CHECK(run.engine().variables().at("v").string() == "199");

  EngineOptions options;
  options.shared_variables = true;
  bool mixed = false;
  Simulator shared(
      pipeline_of(
          pipeline_text({loop_of("@range(0, 200)", body, "\"batchCount\": 50,")}, variables)),
      [&](const CallSpec& call) {
        mixed = mixed || call.properties != R"json({"v":")json" + call.item_key + R"json("})json";
        return works("{}", rng.uniform() * 10.0);
      },
      4, options);
  CHECK(shared.run() == Status::succeeded);
  CHECK(mixed);  // what Data Factory does
}

TEST_CASE("a thousand parallel appends are all kept, in the order of the items") {
  const std::string body =
      work("fit") + R"json(, {"name": "keep", "type": "AppendVariable",
      "dependsOn": [)json" +
      on("fit", "\"Completed\"") +
      R"json(], "typeProperties": {"variableName": "all", "value": "@item()"}})json";
  base::Rng rng(3);
  Simulator run(
      pipeline_of(pipeline_text(
          {loop_of("@range(0, 1000)", body, "\"batchCount\": 50,")},
          R"json(, "variables": {"all": {"type": "Array", "defaultValue": ["first"]}})json")),
      [&](const CallSpec&) {
        return rng.below(10) == 0 ? breaks("x", rng.uniform()) : works("{}", rng.uniform());
      },
      16);

  CHECK(run.run() == Status::succeeded);
  const Json all = run.engine().variables().at("all");
  REQUIRE(all.items().size() == 1001);
  CHECK(all.items()[0].string() == "first");
  for (size_t i = 0; i < 1000; ++i) {
    CHECK(all.items()[i + 1].integer() == static_cast<int64_t>(i));
  }
}

TEST_CASE("loops nest; item() is the innermost and item('name') any other") {
  const std::string inner = loop_of(
      "@createArray('x','y')",
      work("w", "", R"json(, "typeProperties": {"at": "@concat(item('outer'), item())"})json"), "",
      "inner");
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@createArray('a','b')", inner, "", "outer")})),
      [](const CallSpec& call) {
        CHECK(call.item_key.size() == 3);
        return works(call.properties);
      },
      4);

  CHECK(run.run() == Status::succeeded);
  std::set<std::string> paths(run.calls().begin(), run.calls().end());
  CHECK(paths == std::set<std::string>{R"json(outer[a]/inner[x]/w#1 {"at":"ax"})json",
                                       R"json(outer[a]/inner[y]/w#1 {"at":"ay"})json",
                                       R"json(outer[b]/inner[x]/w#1 {"at":"bx"})json",
                                       R"json(outer[b]/inner[y]/w#1 {"at":"by"})json"});
}

TEST_CASE("If takes one branch, an absent branch succeeds, and no other value will do") {
  const auto pipeline = [](const std::string& expression) {
    return pipeline_of(pipeline_text({
        R"json({"name": "gate", "type": "IfCondition", "typeProperties":
        {"expression": {"value": ")json" +
        expression +
        R"json(", "type": "Expression"},
         "ifTrueActivities": [)json" +
        work("yes") + "]}}"}));
  };
  Simulator yes(pipeline("@equals(1, 1)"), failing({}));
  CHECK(yes.run() == Status::succeeded);
  CHECK(yes.calls().size() == 1);
  CHECK(status_of(yes, "gate/yes") == "Succeeded");

  Simulator no(pipeline("@string('False')"), failing({}));
  CHECK(no.run() == Status::succeeded);
  CHECK(no.calls().empty());

  Simulator wrong(pipeline("@add(1, 1)"), failing({}));
  CHECK(wrong.run() == Status::failed);
  CHECK(wrong.result("gate") ==
        "Failed: the expression of IfCondition 'gate' must give true or false, not integer 2");

  Simulator inner(pipeline("@true"), failing({"yes"}));
  CHECK(inner.run() == Status::failed);
  CHECK(inner.result("gate") == "Failed: inner activity 'yes' failed: no luck");
}

TEST_CASE("Switch compares texts and falls back to its default") {
  const auto pipeline = [](const std::string& on_value) {
    return pipeline_of(
        pipeline_text({R"json({"name": "sw", "type": "Switch", "typeProperties": {"on": ")json" +
                       on_value + R"json(", "cases": [{"value": "a", "activities": [)json" +
                       work("A") + R"json(]}, {"value": 2, "activities": [)json" + work("B") +
                       R"json(]}], "defaultActivities": [)json" + work("C") + "]}}"}));
  };
  for (const auto& [value, name] :
       {std::pair("a", "sw/A"), std::pair("@add(1,1)", "sw/B"), std::pair("A", "sw/C")}) {
    CAPTURE(value);
    Simulator run(pipeline(value), failing({}));
    CHECK(run.run() == Status::succeeded);
    CHECK(run.calls().size() == 1);
    CHECK(status_of(run, name) == "Succeeded");
  }
}

TEST_CASE("Until repeats its body until the condition holds, and sees what the last pass gave") {
  const std::string poll =
      R"json({"name": "poll", "type": "Until", "typeProperties": {
      "expression": "@greaterOrEquals(activity('get').output.n, 3)", "timeout": "0.00:10:00",
      "activities": [)json" +
      work("get") + R"json(, {"name": "pause", "type": "Wait", "dependsOn": [)json" +
      on("get", "\"Succeeded\"") + R"json(], "typeProperties": {"waitTimeInSeconds": 10}}]}})json";
  const std::string after =
      work("after", on("poll", "\"Succeeded\""),
           R"json(, "typeProperties": {"n": "@activity('get').output.n"})json");
  int n = 0;
  Simulator run(pipeline_of(pipeline_text({poll, after})), [&](const CallSpec& call) {
    return call.path == "after" ? works() : works(fmt::format(R"json({{"n":{}}})json", ++n));
  });

  CHECK(run.run() == Status::succeeded);
  CHECK(n == 3);
  CHECK(run.calls().back() == R"json(after#1 {"n":3})json");
  CHECK(status_of(run, "poll[3]/get") == "Succeeded");
  CHECK(run.seconds() == doctest::Approx(1.0 + 3 * 11.0 + 1.0).epsilon(0.001));

  n = -1000;
  Simulator slow(pipeline_of(pipeline_text({poll, after})),
                 [&](const CallSpec&) { return works(R"json({"n":0})json"); });
  CHECK(slow.run() == Status::failed);
  CHECK(slow.seconds() == doctest::Approx(601.0));
  CHECK(slow.result("poll").find("was not done after its timeout") != std::string::npos);
}

TEST_CASE("an Until without any waiting in it does not keep the engine in one step") {
  const std::string spin = R"json({"name": "spin", "type": "Until", "typeProperties": {
      "expression": "@false", "maxIterations": 50, "activities": [{"name": "s",
      "type": "SetVariable", "typeProperties": {"variableName": "v", "value": "x"}}]}})json";
  Simulator run(
      pipeline_of(pipeline_text({spin}, R"json(, "variables": {"v": {"type": "String"}})json")),
      failing({}));

  CHECK(run.run() == Status::failed);
  CHECK(run.result("spin") == "Failed: Until 'spin' was not done after 50 passes");
  CHECK(run.journal().size() == 50);  // the start and 49 ticks
}

TEST_CASE("Filter, Wait and Fail do what their names say") {
  const std::string filter = R"json({"name": "f", "type": "Filter", "typeProperties": {
      "items": "@range(0, 10)",
  "condition" : "@greater(item(), 7)"
}
})json";
  const std::string wait = R"json({"name": "w", "type": "Wait", "dependsOn": [)json" +
                           on("f", "\"Succeeded\"") +
                           R"json(], "typeProperties": {"waitTimeInSeconds":
      "@length(activity('f').output.value)"
}
})json";
  const std::string fail =
      R"json({"name": "x", "type": "Fail", "dependsOn": [)json" + on("w", "\"Succeeded\"") +
      R"json(], "typeProperties": {"message": "@concat('n=', activity('f').output.FilteredItemsCount)", "errorCode": "E7"
}
})json";
  Simulator run(pipeline_of(pipeline_text({filter, wait, fail})), failing({}));

  CHECK(run.run() == Status::failed);
  CHECK(run.output("f") == R"json({"ItemsCount":10,"FilteredItemsCount":2,"Value":[8,9]})json");
  CHECK(run.seconds() == doctest::Approx(3.0));
  CHECK(run.result("run") == "Failed: n=2");
  CHECK(run.engine().error()->code == "E7");
}

TEST_CASE("variables keep their declared type and pipelineReturnValue collects") {
  const std::string variables = R"json(, "variables": {"b": {"type": "Boolean"}})json";
  const std::string set = R"json({"name": "s", "type": "SetVariable", "typeProperties": {
      "variableName": "b", "value": "yes"}})json";
  Simulator wrong(pipeline_of(pipeline_text({set}, variables)), failing({}));
  CHECK(wrong.run() == Status::failed);
  CHECK(wrong.result("s") == "Failed: variable 'b' is of type Bool and cannot take string 'yes'");

  const std::string give = R"json({"name": "r", "type": "SetVariable", "typeProperties": {
      "variableName": "pipelineReturnValue", "setSystemVariable": true, "value": [
        {"key": "a", "value": {"type": "Expression", "content": "@add(1, 2)"
}
},
        {"key": "b", "value": {"type": "String", "content": "x"}},
        {"key": "c", "value": {"type": "Null"}},
        {"key": "d", "value": {"type": "Array", "content": [{"type": "Int", "content": 1}]}}]
}
})json";
  Simulator run(pipeline_of(pipeline_text({give})), failing({}));
  CHECK(run.run() == Status::succeeded);
  CHECK(run.engine().return_value().dump() == R"json({"a":3,"b":"x","c":null,"d":[1]})json");
}

TEST_CASE("a cancelled run stops what runs and starts nothing more, handlers included") {
  const std::string handler = work("H", on("each", "\"Failed\", \"Skipped\""));
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 50)", work("fit")), handler})),
      [](const CallSpec&) { return works("{}", 100); }, 3);
  int steps = 0;
  const Status status = run.run([&] {
    if (++steps == 2) {
      run.cancel();
    }
  });

  CHECK(status == Status::cancelled);
  CHECK(status_of(run, "each") == "Cancelled");
  CHECK(status_of(run, "H") == "Cancelled");
  CHECK(run.calls().size() == 4);
}

TEST_CASE("one item can be cancelled; the others go on") {
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 5)", work("fit"))})),
      [](const CallSpec&) { return works("{}", 10); }, 5);
  bool done = false;
  const Status status = run.run([&] {
    if (!std::exchange(done, true)) {
      run.cancel("3");
    }
  });

  CHECK(status == Status::failed);
  CHECK(status_of(run, "each[3]") == "Cancelled");
  CHECK(status_of(run, "each[4]") == "Succeeded");
}

TEST_CASE("a secure output that a crash lost is made again before anything else goes on") {
  const std::string secret = work("secret", "", R"json(, "policy": {"secureOutput": true})json");
  const std::string use =
      work("use", on("secret", "\"Succeeded\""),
           R"json(, "typeProperties": {"s": "@activity('secret').output.s"})json");
  Simulator run(pipeline_of(pipeline_text({secret, use})), [](const CallSpec& call) {
    SimulatedWork result = works(R"({"s":1})", 5);
    result.outcome.output_kept = call.path != "secret";
    return result;
  });
  bool killed = false;

  const Status status = run.run([&] {
    if (run.calls().size() == 2 && !std::exchange(killed, true)) {
      run.kill_engine(2);
    }
  });

  CHECK(status == Status::succeeded);
  CHECK(run.calls() == std::vector<std::string>{"secret#1 {}", R"(use#1 {"s":1})", "secret#2 {}",
                                                R"(use#2 {"s":1})"});
}

TEST_CASE("an event that does not fit the state is a mismatch") {
  const auto pipeline = pipeline_of(pipeline_text({work("A")}));
  Engine engine(pipeline, {.run_id = "r"});
  Actions actions;

  CHECK(engine.step({base::Micros(1), Tick{}}, &actions).error().code() == Errc::mismatch);
  REQUIRE(engine.step({base::Micros(1), Started{1}}, &actions).ok());
  CHECK(engine.step({base::Micros(2), AttemptEnded{99, {}}}, &actions).error().code() ==
        Errc::mismatch);
  CHECK(engine.step({base::Micros(2), Started{1}}, &actions).error().code() == Errc::mismatch);
}

TEST_CASE("names of folders are safe whatever the key") {
  CHECK(item_folder_name("s17") == "s17");
  CHECK(item_folder_name("..") == "%2E.");
  CHECK(item_folder_name("a/b%") == "a%2Fb%25");
  CHECK(item_folder_name("") == "%");
  const std::string a = item_folder_name(std::string(500, 'x') + "a");
  const std::string b = item_folder_name(std::string(500, 'x') + "b");
  CHECK(a.size() <= 200);
  CHECK(a != b);
  CHECK(log_path("s17", "fit", 2) == "items/s17/fit.2.log");
  CHECK(log_path("../x", "fit", 1) == "items/%2E.%2Fx/fit.1.log");
  CHECK(log_path("a/fit.1", "fit", 1) == "items/a%2Ffit.1/fit.1.log");  // not in a's attempt
  CHECK(log_path("", "load", 1) == "activities/load.1.log");
}

namespace {
/// A pipeline with everything that has state, over `items` items.
std::string rich_pipeline(int items) {
  const std::string body =
      work("fit", "", R"json(, "policy": {"retry": 1, "retryIntervalInSeconds": 1},
          "typeProperties": {"i": "@item()", "g": "@guid()"})json") +
      R"json(, {"name": "note", "type": "AppendVariable", "dependsOn": [)json" +
      on("fit", "\"Failed\"") +
      R"json(], "typeProperties": {"variableName": "failed", "value": "@item()"
}
},
         {"name": "mark", "type": "SetVariable", "dependsOn": [)json" +
      on("fit", "\"Completed\"") +
      R"json(], "typeProperties": {"variableName": "last", "value": "@string(item())"}
})json" +
      "," +
      work("check", on("mark", "\"Succeeded\""),
           R"json(, "typeProperties": {"v": "@variables('last')"
})json");
  const std::string poll =
      R"json({"name": "poll", "type": "Until", "dependsOn": [)json" + on("each", "\"Completed\"") +
      R"json(], "typeProperties": {"expression":
      "@greater(length(variables('failed')), 3)", "activities": [
        {"name": "more", "type": "AppendVariable", "typeProperties": {"variableName": "failed",
         "value": "@utcNow()"}},
        {"name": "pause", "type": "Wait", "dependsOn": [)json" +
      on("more", "\"Succeeded\"") + R"json(], "typeProperties": {"waitTimeInSeconds": 2}}]}})json";
  return pipeline_text(
      {loop_of(fmt::format("@range(0, {})", items), body, "\"batchCount\": 8,"), poll,
       work("end", on("poll", "\"Succeeded\""),
            R"json(, "typeProperties": {"all": "@activity('each').output"})json")},
      R"json(, "variables": {"failed": {"type": "Array"}, "last": {"type": "String"}})json");
}

/// What an item does depends on its key and attempt alone.
SimulatedWork by_key(const CallSpec& call, base::Rng* rng) {
  const int key = call.item_key.empty() ? 0 : std::stoi(call.item_key);
  const double seconds = rng->uniform() * 3.0;
  if (call.activity->name == "fit" && key % 50 == 7) {
    return breaks("short series", seconds);
  }
  return works(fmt::format(R"json({{"of":{}}})json", key), seconds);
}

/// Without the outputs that hold utcNow(), which depends on how long the run took.
std::map<std::string, std::string> without_times(std::map<std::string, std::string> outputs) {
  std::erase_if(outputs, [](const auto& entry) { return entry.first.starts_with("poll"); });
  return outputs;
}

}  // namespace

TEST_CASE("10,000 items under random kills of workers and engines give the result of a quiet run") {
  const int items = 10'000;
  const auto pipeline = pipeline_of(rich_pipeline(items));
  base::Rng quiet_rng(1);
  Simulator quiet(pipeline, [&](const CallSpec& call) { return by_key(call, &quiet_rng); }, 8);
  CHECK(quiet.run() == Status::succeeded);

  for (const uint64_t seed : {11U, 12U}) {
    CAPTURE(seed);
    base::Rng rng(seed);
    int kills = 0;
    Simulator wild(pipeline, [&](const CallSpec& call) { return by_key(call, &rng); }, 8);
    const Status status = wild.run([&] {
      const auto running = wild.engine().running();
      if (!running.empty() && rng.below(100) == 0) {
        wild.kill_worker(running[rng.below(running.size())].attempt);
      } else if (rng.below(1500) == 0) {
        ++kills;
        wild.kill_engine(static_cast<int>(1 + rng.below(12)));
      }
    });

    CHECK(status == Status::succeeded);
    CHECK(kills > 3);
    CHECK(wild.results() == quiet.results());
    CHECK(without_times(wild.outputs()) == without_times(quiet.outputs()));
    CHECK(wild.engine().variables().at("last") == quiet.engine().variables().at("last"));
    // utcNow() differs, the number of appended elements does not.
    CHECK(wild.engine().variables().at("failed").items().size() ==
          quiet.engine().variables().at("failed").items().size());

    const auto again = wild.replayed();
    CHECK(again->status() == Status::succeeded);
    CHECK(again->variables() == wild.engine().variables());
  }
}

TEST_CASE("100,000 queued items take well under 1 KiB each") {
  const auto pipeline = pipeline_of(pipeline_text({loop_of("@range(0, 100000)", work("fit"))}));
  Engine engine(pipeline, {.run_id = "r"});
  Actions actions;
  REQUIRE(engine.step({base::Micros(1), Started{2}}, &actions).ok());
  const size_t before = mallinfo2().uordblks;
  {
    auto items = engine.evaluate_items(actions.evaluate_items.at(0));
    REQUIRE(items.ok());
    CHECK(items->key(99'999) == "99999");
    CHECK(items->text(99'999) == "99999");
    ItemsKnown known;
    known.run = actions.evaluate_items.at(0);
    known.items = *std::move(items);
    REQUIRE(engine.step({base::Micros(2), std::move(known)}, &actions).ok());
  }

  const size_t bytes = mallinfo2().uordblks - before;

  CHECK(engine.progress().items_total == 100'000);
  CHECK_MESSAGE(bytes / 100'000 < 100, bytes);
}

TEST_CASE("computed items and keys leave guid() and rand() as a replay gives them") {
  const auto pipeline = pipeline_of(R"json({"name": "p", "properties": {"activities": [
    {"name": "each", "type": "ForEach", "typeProperties": {
       "items": "@range(0, add(3, mul(0, rand(0, 10))))", "itemKey": "@concat('k', item(), guid())",
       "activities": [{"name": "do", "type": "NoOp", "typeProperties": {"i": "@item()"}}]}},
    {"name": "id", "type": "SetVariable",
       "dependsOn": [{"activity": "each", "dependencyConditions": ["Succeeded"]}],
       "typeProperties": {"variableName": "v", "value": "@guid()"}},
    {"name": "hold", "type": "NoOp",
       "dependsOn": [{"activity": "id", "dependencyConditions": ["Succeeded"]}],
       "typeProperties": {}}],
    "variables": {"v": {"type": "String"}}}})json");
  Simulator simulator(pipeline, [](const CallSpec&) { return works(); });
  simulator.run({}, 3);
  const std::string live = simulator.engine().variables().dump();
  CHECK(live.size() > 36);

  simulator.kill_engine(2);

  CHECK(simulator.engine().variables().dump() == live);
  CHECK(simulator.run() == Status::succeeded);
}

TEST_CASE("a queued item can be cancelled and never starts; the others go on") {
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@range(0, 5)", work("fit"), "\"batchCount\": 2,")})),
      [](const CallSpec&) { return works("{}", 10); }, 5);
  bool done = false;
  const Status status = run.run([&] {
    if (!std::exchange(done, true)) {
      CHECK(run.engine().item_status("0") == Status::in_progress);
      CHECK(run.engine().item_status("4") == Status::queued);
      CHECK(!run.engine().item_status("5"));
      run.cancel("0");
      run.cancel("3");
      run.cancel("4");
      CHECK(run.engine().item_status("4") == Status::cancelled);
      run.kill_engine(5);
    }
  });

  CHECK(status == Status::failed);
  CHECK(status_of(run, "each[0]") == "Cancelled");
  CHECK(status_of(run, "each[3]") == "Cancelled");
  CHECK(status_of(run, "each[2]") == "Succeeded");
  CHECK(run.calls().size() == 5);  // 0, 1, 2, then 1 and 2 again for the new engine
  CHECK(run.output("each") == R"json({"itemsCount":5,"succeeded":2,"failed":3,"skipped":0})json");
  CHECK(run.engine().progress().items_ended == 5);
}

TEST_CASE("queued items that were cancelled are not counted again when a budget stops the rest") {
  Simulator run(pipeline_of(pipeline_text(
                    {loop_of("@range(0, 6)", work("fit"),
                             R"json("batchCount": 1, "failureBudget": {"count": 1},)json")})),
                failing({"fit"}));
  bool done = false;
  run.run([&] {
    if (!std::exchange(done, true)) {
      run.cancel("5");
    }
  });

  CHECK(status_of(run, "each[5]") == "Cancelled");
  CHECK(run.engine().progress().items_ended == 6);
}

TEST_CASE("queued items of a loop inside an item are found by their whole path") {
  const std::string inner =
      loop_of("@createArray('a', 'b', 'c')", work("fit"), "\"batchCount\": 1,", "inner");
  Simulator run(
      pipeline_of(pipeline_text({loop_of("@createArray('x', 'y')", inner)})),
      [](const CallSpec&) { return works("{}", 10); }, 5);
  bool done = false;
  run.run([&] {
    if (!std::exchange(done, true)) {
      CHECK(run.engine().item_status("x/c") == Status::queued);
      CHECK(!run.engine().item_status("c"));
      run.cancel("x/c");
    }
  });

  int calls = 0;
  for (const std::string& call : run.calls()) {
    CHECK(!call.starts_with("each[x]/inner[c]"));
    ++calls;
  }
  CHECK(calls == 5);
}

TEST_CASE("an attempt whose inputs are the reason is not tried again, and its error says so") {
  const std::string patient = work("fit", "", R"json(, "policy": {"retry": 3})json");
  int calls = 0;
  Simulator run(pipeline_of(pipeline_text({patient})), [&](const CallSpec&) {
    ++calls;
    SimulatedWork failed = breaks("no such column");
    failed.outcome.retry_useless = true;
    return failed;
  });

  CHECK(run.run() == Status::failed);

  CHECK(calls == 1);
  CHECK(run.seconds() < 10);
  CHECK(run.result("fit") ==
        "Failed: no such column (not tried again: the same inputs fail the same way)");
}

TEST_CASE("the error of a run names the first failure, not only what follows from it") {
  const std::string after =
      R"json({"name": "after", "type": "Fail",
          "dependsOn": [{"activity": "fit", "dependencyConditions": ["Completed"]}],
          "typeProperties": {"message": "there is no model", "errorCode": "9"}})json";
  Simulator run(pipeline_of(pipeline_text({work("fit"), after})), failing({"fit"}));

  CHECK(run.run() == Status::failed);

  CHECK(run.result("run") == "Failed: there is no model; 'fit' had failed before: no luck");
  CHECK(run.engine().error()->target == "fit");
  Simulator loop(pipeline_of(pipeline_text({loop_of("@range(0, 2)", work("fit") + "," + after)})),
                 failing({"fit"}));
  CHECK(loop.run() == Status::failed);
  CHECK(loop.result("each[1]") == "Failed: there is no model; 'fit' had failed before: no luck");
}

TEST_CASE("with too many items begun each loop takes one at a time, and none is left out") {
  const auto pipeline = pipeline_of(R"json({"name": "p", "properties": {"activities": [
      {"name": "outer", "type": "ForEach", "typeProperties": {"items": "@range(0, 6)",
       "batchCount": 3, "activities": [
        {"name": "inner", "type": "ForEach", "typeProperties": {"items": "@range(0, 5)",
         "batchCount": 5, "activities": [{"name": "w", "type": "NoOp"}]}}]}}]}})json");
  EngineOptions options;
  options.live_items_max = 4;
  int64_t most = 0;
  Simulator run(pipeline, [](const CallSpec&) { return works(); }, 50, options);
  CHECK(run.run([&] { most = std::max(most, run.engine().progress().items_running); }) ==
        Status::succeeded);
  CHECK(most == 6);  // three of the outer loop with one in each
  CHECK(run.calls().size() == 30);
  CHECK(run.replayed()->status() == Status::succeeded);
}

}  // namespace headrace::flow
