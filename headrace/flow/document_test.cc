// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/clock.h"
#include "headrace/base/test_folder.h"
#include "headrace/flow/activity.h"
#include "headrace/flow/custom.h"
#include "headrace/flow/pipeline.h"

namespace headrace::flow {

namespace {

/// All findings as lines, sorted as they came.
std::string findings(const std::string& text) {
  auto factory = load_factory_text("f.json", text);
  if (!factory.ok()) {
    return factory.error().message();
  }
  std::string all;
  for (const Diagnostic& one : factory->diagnostics) {
    all += diagnostic_text(one) + "\n";
  }
  return all;
}

std::string with(const std::string& activities, const std::string& more = "") {
  return "{\"name\": \"p\", \"properties\": {\"activities\": [\n" + activities + "\n]" + more +
         "}}";
}

bool says(const std::string& text, const std::string& part) {
  const std::string all = findings(text);
  const bool found = all.find(part) != std::string::npos;
  CHECK_MESSAGE(found, all);
  return found;
}

std::shared_ptr<const Pipeline> good(const std::string& text) {
  auto factory = load_factory_text("f.json", text);
  REQUIRE(factory.ok());
  for (const Diagnostic& one : factory->diagnostics) {
    REQUIRE_MESSAGE(one.severity == Severity::warning, diagnostic_text(one));
  }
  return factory->pipelines.at(0);
}

constexpr const char* kSet = R"json({"name": "s", "type": "SetVariable",
  "typeProperties": {"variableName": "v", "value": "x"}})json";

}  // namespace

TEST_CASE("the forms in which people keep pipelines give the same pipeline") {
  const std::string activity = R"json({"name": "a", "type": "X"})json";
  for (const std::string& text :
       {"{\"name\": \"p\", \"properties\": {\"activities\": [" + activity + "]}}",
        "{\"name\": \"p\", \"activities\": [" + activity + "]}",
        "{\"name\": \"p\", \"activity\": " + activity + "}"}) {
    const auto pipeline = good(text);
    CHECK(pipeline->name == "p");
    REQUIRE(pipeline->body.activities.size() == 1);
    CHECK(pipeline->body.activities[0].name == "a");
  }
  CHECK(good("{\"properties\": {\"activities\": []}}")->name == "f");  // the file's name

  base::TestFolder folder;
  REQUIRE(base::make_folders(folder / "pipeline").ok());
  for (const char* name : {"one", "two"}) {
    REQUIRE(base::replace_file(folder / "pipeline" / (std::string(name) + ".json"),
                               "{\"properties\": {\"activities\": []}}")
                .ok());
  }
  const auto factory = load_factory(folder.path());
  REQUIRE(factory.ok());
  CHECK((*factory->find("two"))->name == "two");
  CHECK(factory->find("").error().message().find("choose one with") != std::string::npos);
  CHECK(factory->find("twoo").error().message().find("did you mean 'two'?") != std::string::npos);
}

TEST_CASE("what is no pipeline says what it is") {
  CHECK(says(R"json({"$schema": "x", "resources": []})json", "E-FORM: this is an ARM template"));
  CHECK(says(R"json({"name": "j", "tasks": []})json", "E-FORM: this is a Databricks job"));
  CHECK(says("[1]", "E-FORM: a pipeline is an object; this is array [1]"));
  CHECK(says(R"json({"foo": 1})json", "its keys are 'foo'"));
  CHECK(findings("{\"name\": \"x\",\n \"a\" 1}") ==
        "f.json:2:6: E-SYNTAX: unexpected '1'; expected ':' after the key \"a\"");
}

TEST_CASE("a wrong quote at line 41 is reported at line 41") {
  std::string text = "{\"name\": \"p\", \"properties\": {\"activities\": [";
  for (int line = 1; line < 40; ++line) {
    text += fmt::format("\n{{\"name\": \"a{}\", \"type\": \"X\"}},", line);
  }
  text += "\n{\"name\": 'a', \"type\": \"X\"}]}}";

  CHECK(findings(text).starts_with("f.json:41:10: E-SYNTAX: unexpected '''"));
}

TEST_CASE("relaxations of JSON pass with a warning and their place") {
  const std::string all = findings(
      "{\"name\": \"p\", // a comment\n \"properties\": "
      "{\"activities\": [{\"name\": \"a\", \"type\": \"X\",},]}}");
  CHECK(all.find("f.json:1:15: W-JSON") != std::string::npos);
  CHECK(all.find("f.json:2:") != std::string::npos);
}

TEST_CASE("dependencies are resolved beside, never across, and circles are named") {
  CHECK(says(with(R"json({"name": "a", "type": "X", "dependsOn": [{"activity": "bb",
      "dependencyConditions": ["Succeeded"]}]}, {"name": "b", "type": "X"})json"),
             "E-DEPENDENCY: 'a' depends on 'bb', which is not an activity beside it; did you mean "
             "'b'?"));
  CHECK(says(with(R"json({"name": "a", "type": "X", "dependsOn": [{"activity": "A",
      "dependencyConditions": ["Succeeded"]}]})json"),
             "E-DEPENDENCY: 'a' depends on itself"));
  CHECK(says(with(R"json({"name": "a", "type": "X", "dependsOn": [{"activity": "c",
      "dependencyConditions": ["Succeeded"]}]},
      {"name": "b", "type": "X", "dependsOn": [{"activity": "a",
      "dependencyConditions": ["Succeeded"]}]},
      {"name": "c", "type": "X", "dependsOn": [{"activity": "b",
      "dependencyConditions": ["Failed"]}]})json"),
             "E-CYCLE: activities depend on one another in a circle: 'a' -> 'c' -> 'b' -> 'a'"));
  CHECK(says(with(R"json({"name": "a", "type": "X"}, {"name": "b", "type": "X", "dependsOn":
      [{"activity": "a", "dependencyConditions": []}]})json"),
             "W-DEPENDENCY: 'b' depends on 'a' without dependencyConditions"));
  CHECK(says(with(R"json({"name": "a", "type": "X"}, {"name": "b", "type": "X", "dependsOn":
      [{"activity": "a", "dependencyConditions": ["Suceeded"]}]})json"),
             "E-PROPERTY: dependency condition 'Suceeded' is not one of 'Succeeded', 'Failed', "
             "'Skipped', 'Completed'; did you mean 'Succeeded'?"));
}

TEST_CASE("names are there, and each once whatever its case and depth") {
  CHECK(says(with(R"json({"type": "X"})json"), "E-NAME: an activity needs a 'name'"));
  CHECK(says(with(R"json({"name": "a"})json"), "E-ACTIVITY-TYPE: activity 'a' needs a 'type'"));
  CHECK(says(with(R"json({"name": "a", "type": "X"}, {"name": "i", "type": "IfCondition",
      "typeProperties": {"expression": "@true", "ifTrueActivities": [{"name": "A",
      "type": "X"}]}})json"),
             "E-NAME: a second activity is called 'A'"));
}

TEST_CASE("control activities must have what they need") {
  CHECK(says(with(R"json({"name": "f", "type": "ForEach", "typeProperties": {"itmes": "@range(0,1)",
      "activities": [{"name": "a", "type": "X"}]
}
})json"),
             "E-PROPERTY: ForEach 'f' needs the property 'items'; did you mean 'itmes'?"));
  CHECK(says(with(R"json({"name": "f", "type": "ForEach", "typeProperties": {"items": "@range(0,1)",
      "activities": []
  }
  })json"),
             "E-PROPERTY: ForEach 'f' needs at least one activity"));
  CHECK(says(with(R"json({"name": "f", "type": "ForEach", "typeProperties": {"items": "@range(0,1)",
      "batchCount": 0, "activities": [{"name": "a", "type": "X"}]
  }
  })json"),
             "E-PROPERTY: batchCount must be an integer of at least 1, not integer 0"));
  CHECK(says(with(R"json({"name": "f", "type": "ForEach", "typeProperties": {"items": "@range(0,1)",
      "isSequential": "maybe", "activities": [{"name": "a", "type": "X"}]
  }
  })json"),
             "E-PROPERTY: expected true or false, not string 'maybe'"));
  CHECK(says(with(R"json({"name": "w", "type": "Wait", "typeProperties": {}})json"),
             "needs the property 'waitTimeInSeconds'"));
  CHECK(says(with(R"json({"name": "x", "type": "Fail", "typeProperties": {"message": "m"}})json"),
             "needs the property 'errorCode'"));
  CHECK(says(with(R"json({"name": "a", "type": "X", "policy": {"timeout": "1 day"}})json"),
             "E-POLICY: policy.timeout must look like '0.12:00:00'"));
  CHECK(says(with(R"json({"name": "a", "type": "X", "policy": {"retry": -1}})json"),
             "E-POLICY: policy.retry must be an integer of at least 0"));
}

TEST_CASE("expressions are parsed at load, with file, line, column and offset") {
  const std::string text = with(R"json({"name": "a", "type": "X", "typeProperties": {
    "deep": [{"x": "@concatt('y')"}]}})json");
  CHECK(says(text,
             "f.json:3:20: E-EXPRESSION: (+1): unknown function 'concatt'; did you mean "
             "'concat'?"));
}

TEST_CASE("references are checked against what is declared and what can be seen") {
  const std::string more =
      R"json(, "parameters": {"horizon": {"type": "int"}}, "variables": {"v": {"type": "String"}})json";
  const auto use = [&](const std::string& expression) {
    return with(R"json({"name": "a", "type": "X"},
      {"name": "each", "type": "ForEach", "typeProperties": {"items": "@range(0, 2)",
       "activities": [{"name": "in", "type": "X"}]}},
      {"name": "b", "type": "X", "dependsOn": [{"activity": "a", "dependencyConditions":
       ["Succeeded"]}], "typeProperties": {"x": ")json" +
                    expression + R"json("}})json",
                more);
  };
  CHECK(findings(use("@activity('a').output")).empty());
  CHECK(says(use("@pipeline().parameters.horizno"),
             "there is no parameter 'horizno'; did you mean 'horizon'?; there are: 'horizon'"));
  CHECK(says(use("@variables('w')"), "there is no variable 'w'"));
  CHECK(says(use("@activity('A2').output"), "there is no activity 'A2'"));
  CHECK(says(use("@activity('b').output"), "'b' is this activity or contains it"));
  CHECK(says(use("@activity('in').output"), "'in' is inside the ForEach 'each'"));
  CHECK(says(use("@activity('each').output"), "W-ORDER: (+1): 'b' does not wait for 'each'"));
  CHECK(says(use("@item()"), "item() is only known inside a ForEach"));
  CHECK(says(use("@dataset().x"), "dataset() is only known inside datasets"));
  CHECK(says(with(R"({"name": "a", "type": "X", "typeProperties": {"x": "@activity('b').output"}},
      {"name": "b", "type": "X", "dependsOn": [{"activity": "a", "dependencyConditions":
      ["Succeeded"]}]})"),
             "E-REFERENCE: (+1): 'b' only starts after 'a'"));
}

TEST_CASE("variables are declared, of a fitting type, and races are told") {
  const std::string declared = R"(, "variables": {"v": {"type": "String"}})";
  CHECK(says(with(kSet), "sets the variable 'v', which is not declared"));
  CHECK(findings(with(kSet, declared)).empty());
  CHECK(says(with(R"({"name": "s", "type": "AppendVariable", "typeProperties":
      {"variableName": "v", "value": 1}})",
                  declared),
             "appends to 'v', which is a String and no Array"));
  const std::string loop = R"({"name": "each", "type": "ForEach", "typeProperties": {)";
  const std::string tail =
      R"json("items": "@range(0, 2)", "activities": [)json" + std::string(kSet) + "]}}";
  CHECK(says(with(loop + tail, declared), "W-RACE: 's' sets 'v' in the parallel ForEach 'each'"));
  CHECK(findings(with(loop + "\"isSequential\": true, " + tail, declared)).empty());
  CHECK(says(with(R"json({"name": "s", "type": "SetVariable", "typeProperties":
      {"variableName": "v", "value": "@concat(variables('v'), 'x')"}})json",
                  declared),
             "W-SELF"));
}

TEST_CASE("types that run, that will run, and that nobody knows") {
  ActivityTable types;
  types.add(custom_type());
  ActivityType train;
  train.type = "Train";
  train.required = {"table"};
  train.optional = {"horizon"};
  train.check = [](const Json& properties, std::span<const std::string>) -> Result<void> {
    if (properties.get_integer("horizon", 1) < 1) {
      return Error{Errc::invalid_argument, "horizon must be at least 1"};
    }
    return {};
  };
  types.add(train);
  const auto check = [&](const std::string& activity) {
    std::string all;
    for (const Diagnostic& one : validate(*good(with(activity)), types)) {
      all += diagnostic_text(one) + "\n";
    }
    return all;
  };

  CHECK(
      check(R"json({"name": "a", "type": "Train", "typeProperties": {"table": "t"}})json").empty());
  CHECK(
      check(
          R"json({"name": "a", "type": "Train", "typeProperties": {"tabel": "t", "horizon": 0}})json") ==
      "f.json:2:1: E-PROPERTY: Train 'a' needs the property 'table'; did you mean 'tabel'?\n"
      "f.json:2:1: E-PROPERTY: 'a': horizon must be at least 1\n");
  CHECK(check(R"json({"name": "a", "type": "DatabricksNotebook"})json") ==
        "f.json:2:1: E-NOT-EXECUTABLE: activity 'a': DatabricksNotebook is not executable yet\n");
  CHECK(check(R"json({"name": "a", "type": "Copy", "state": "Inactive"})json").empty());
  CHECK(check(R"json({"name": "a", "type": "Costum"})json").find("did you mean 'Custom'?") !=
        std::string::npos);
}

TEST_CASE("arguments are converted to the declared types, or refused by name") {
  const auto pipeline = good(with("", R"json(, "parameters": {"i": {"type": "int"},
      "f": {"type": "Float", "defaultValue": "1.5"}, "b": {"type": "bool", "defaultValue": "True"},
      "a": {"type": "Array", "defaultValue": []}, "o": {"type": "object", "defaultValue": {"k": 1}},
      "s": {"type": "string", "defaultValue": {"P": "9"}}})json"));
  const auto bind = [&](const std::string& text) {
    const auto arguments = parse_json(text);
    REQUIRE(arguments.ok());
    const auto bound = bind_parameters(*pipeline, *arguments);
    return bound.ok() ? bound->dump() : "error: " + bound.error().message();
  };

  CHECK(bind(R"json({"i": "7", "a": "[1, 2]"})json") ==
        R"json({"i":7,"f":1.5,"b":true,"a":[1,2],"o":{"k":1},"s":{"P":"9"}})json");
  CHECK(bind(R"json({"I": 7.0, "s": 5, "o": "{\"x\":null}"})json") ==
        R"json({"i":7,"f":1.5,"b":true,"a":[],"o":{"x":null},"s":"5"})json");
  CHECK(
      bind("{}").find("needs the parameter 'i' (Int), which has no default; give it with -p i=") !=
      std::string::npos);
  CHECK(bind(R"json({"i": 1.5})json").find("parameter 'i' is of type Int; got number 1.5") !=
        std::string::npos);
  CHECK(bind(R"json({"i": 1, "a": "{}"})json").find("parameter 'a' is of type Array") !=
        std::string::npos);
  CHECK(bind(R"json({"i": 1, "b": "yes"})json").find("parameter 'b' is of type Bool") !=
        std::string::npos);
  CHECK(bind(R"json({"i": 1, "zz": 1})json").find("has no parameter 'zz'") != std::string::npos);
}

TEST_CASE("parameters may be an array of one-key objects") {
  const auto pipeline = good(with("", R"json(, "parameters": [{"x": {"type": "String"}}])json"));
  CHECK(pipeline->find_parameter("X") != nullptr);
}

TEST_CASE("timeouts are days, hours, minutes and seconds") {
  CHECK(parse_timeout("0.12:00:00") == 43'200.0);
  CHECK(parse_timeout("7.00:00:00") == 604'800.0);
  CHECK(parse_timeout("00:10:00") == 600.0);
  CHECK(parse_timeout("1:00:00") == 3600.0);
  CHECK(parse_timeout("0.00:00:60") == 60.0);
  for (const char* wrong : {"", "10", "1.2", "00:00", "0.24:00:00", "0.00:61:00", "a:b:c", "-1:0:0",
                            "00:00:00:00", "1.00:00:00x"}) {
    CAPTURE(wrong);
    CHECK(!parse_timeout(wrong));
  }
}

TEST_CASE("a pipeline of 1,000 activities is validated without findings; its CPU time is told") {
  std::string activities;
  for (int i = 0; i < 1000; ++i) {
    activities += fmt::format(
        R"json({}{{"name": "a{}", "type": "Custom", "dependsOn": [{}], "typeProperties":
            {{"command": "@concat('x', string(activity('a0').output.exitcode))"}}}})json",
        i > 0 ? "," : "", i,
        i == 0
            ? ""
            : fmt::format(R"json({{"activity": "a{}", "dependencyConditions": ["Succeeded"]}})json",
                          i - 1));
  }
  activities.replace(activities.find("activity('a0')"), 14,
                     "json('{\\\"output\\\":{\\\"exitcode\\\":0}}')");
  const std::string text = with(activities);
  ActivityTable types;
  types.add(custom_type());
  const base::Micros before = base::thread_cpu_time();

  const auto pipeline = good(text);
  const auto found = validate(*pipeline, types);

  CHECK(found.empty());
  const base::Micros spent = base::thread_cpu_time() - before;
  MESSAGE("a thousand activities took ", spent.count(), " us of CPU time");
}

TEST_CASE("the default of a variable must be of its type; null is an empty array") {
  const std::string activity = R"json({"name": "a", "type": "X"})json";
  const auto variable = [&](const std::string& text) {
    return with(activity, R"json(, "variables": {"v": )json" + text + "}");
  };

  CHECK(good(variable(R"json({"type": "Array", "defaultValue": null})json"))
            ->variables[0]
            .default_value.dump() == "[]");
  CHECK(says(variable(R"json({"type": "Array", "defaultValue": "a,b"})json"),
             "E-PROPERTY: defaultValue of variable 'v' must be of its type Array, not string"));
  CHECK(says(variable(R"json({"type": "Integer", "defaultValue": true})json"),
             "E-PROPERTY: defaultValue of variable 'v' must be of its type Integer"));
}

}  // namespace headrace::flow
