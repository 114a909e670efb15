// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fstream>

#include "headrace/registry/test_models.h"

namespace headrace::registry {

namespace {

Reference ref(std::string_view text) { return must(parse_reference(text)); }

}  // namespace

TEST_CASE(
    "an alias moves only when it stands where the caller believes, and every move is logged") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  must(registry.add(test_model("m", {2.0F}).version));

  const auto before = base::system_clock().wall();
  const AliasChange first = must(
      registry.set_alias(ref("m:1"), "champion", {.expect = 0, .by = "ann", .reason = "first"}));
  CHECK(first.at >= before);
  CHECK(first.at <= base::system_clock().wall());
  CHECK(code_of(registry.set_alias(ref("m:2"), "champion", {.expect = 2})) == Errc::mismatch);
  must(registry.set_alias(ref("m:2"), "champion", {.expect = 1}));
  must(registry.set_alias(ref("m:2"), "champion"));  // already there: no line
  CHECK(must(registry.find("m@champion")).version == 2);
  must(registry.set_alias(ref("m"), "champion", {.remove = true}));
  CHECK(code_of(registry.find("m@champion")) == Errc::not_found);

  const auto log = must(registry.history("m"));
  REQUIRE(log.size() == 3);
  CHECK(log[0].to_version == 1);
  CHECK(log[0].by == "ann");
  CHECK(log[0].reason == "first");
  CHECK(log[0].at == first.at);
  CHECK(log[1].from_version == 1);
  CHECK(log[1].to_version == 2);
  CHECK(log[2].to_version == 0);
}

TEST_CASE("a dry run of an alias answers and refuses as the real one, and changes nothing") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  must(registry.add(test_model("m", {2.0F}).version));
  must(registry.set_alias(ref("m:1"), "champion"));

  for (const char* wanted : {"m:2", "m:9", "absent:1"}) {
    for (const int64_t expect : {0, 1, 3}) {
      CAPTURE(wanted);
      CAPTURE(expect);
      const auto dry =
          registry.set_alias(ref(wanted), "champion", {.expect = expect, .dry_run = true});
      const auto real = registry.set_alias(ref(wanted), "champion", {.expect = expect});
      REQUIRE(dry.ok() == real.ok());
      if (dry.ok()) {
        CHECK(dry->from_version == real->from_version);
        CHECK(dry->to_version == real->to_version);
        must(registry.set_alias(ref("m:1"), "champion"));
      } else {
        CHECK(code_of(dry) == code_of(real));
        CHECK(dry.error().message() == real.error().message());
      }
    }
  }
  CHECK(must(registry.set_alias(ref("m"), "champion", {.remove = true, .dry_run = true}))
            .to_version == 0);
  CHECK(must(registry.find("m@champion")).version == 1);
  CHECK(must(registry.history("m")).size() == 3);  // to 1, to 2, and back
}

TEST_CASE(
    "a bare name never deletes, a version under an alias needs force, a number is never reused") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  must(registry.set_alias(ref("m:1"), "champion"));
  CHECK(code_of(registry.remove(ref("m"))) == Errc::invalid_argument);
  CHECK(code_of(registry.remove(ref("m:1"))) == Errc::invalid_argument);
  must(registry.remove(ref("m:1"), true));
  CHECK(code_of(registry.find("m")) == Errc::not_found);
  CHECK(code_of(registry.find("m:1")) == Errc::not_found);
  CHECK(must(registry.add(test_model("m", {2.0F}).version)).version == 2);
  must(registry.restore(ref("m:1")));
  CHECK(must(registry.find("m:1")).aliases.empty());
  CHECK(must(registry.history("m")).back().reason == "version deleted");
}

TEST_CASE("gc takes the files of deleted versions after their time and leaves their rows") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const Version kept = must(registry.add(test_model("m", {1.0F}).version));
  const Version gone = must(registry.add(test_model("m", {2.0F}).version));
  must(registry.remove(ref("m:2")));
  const auto now = base::Micros(0);

  CHECK(must(registry.gc({.grace = now, .keep = std::chrono::hours(1)})).objects == 0);
  const GcReport dry = must(registry.gc({.grace = now, .keep = now, .dry_run = true}));
  CHECK(dry.objects == 1);
  CHECK(std::filesystem::exists(registry.object_path(gone.artifacts[0].hash)));
  const GcReport report = must(registry.gc({.grace = now, .keep = now}));
  CHECK(report.objects == 1);
  CHECK(report.versions == 1);
  CHECK(!std::filesystem::exists(registry.object_path(gone.artifacts[0].hash)));
  CHECK(std::filesystem::exists(registry.object_path(kept.artifacts[0].hash)));
  CHECK(code_of(registry.restore(ref("m:2"))) == Errc::not_found);
  const Page page = must(registry.list({.include_deleted = true}));
  CHECK(page.versions.size() == 2);
  CHECK(must(registry.verify({.deep = true})).clean());
}

TEST_CASE("equal content is stored once and stays while one version needs it") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const Version a = must(registry.add(test_model("a", {1.0F}).version));
  const Version b = must(registry.add(test_model("b", {1.0F}).version));
  CHECK(a.artifacts[0].hash == b.artifacts[0].hash);
  must(registry.remove(ref("a:1")));
  must(registry.gc({.grace = base::Micros(0), .keep = base::Micros(0)}));
  must(registry.load(must(registry.find("b"))));
}

TEST_CASE(
    "verify finds a missing, a shortened and a changed object, and repair hides their versions") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const auto path = [&](const Version& version) {
    return registry.object_path(version.artifacts[0].hash);
  };
  const Version missing = must(registry.add(test_model("missing", {1.0F}).version));
  const Version shortened = must(registry.add(test_model("shortened", {2.0F}).version));
  const Version changed = must(registry.add(test_model("changed", {3.0F}).version));
  must(registry.add(test_model("good", {4.0F}).version));
  CHECK(must(registry.verify({.deep = true})).clean());

  std::filesystem::remove(path(missing));
  std::filesystem::permissions(path(shortened), std::filesystem::perms::owner_all);
  std::filesystem::resize_file(path(shortened), 100);
  std::filesystem::permissions(path(changed), std::filesystem::perms::owner_all);
  {
    std::fstream file(path(changed), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
  }
  CHECK(must(registry.verify()).findings.size() == 2);  // content is not read
  const VerifyReport report = must(registry.verify({.deep = true, .repair = true}));
  CHECK(report.findings.size() == 3);
  CHECK(report.repaired == 3);
  CHECK(must(registry.count({})) == 1);
  const Page page = must(registry.list({.pattern = "missing", .include_deleted = true}));
  REQUIRE(page.versions.size() == 1);
  REQUIRE(page.versions[0].tags.size() == 1);
  CHECK(page.versions[0].tags[0].name == "headrace.damaged");
  CHECK(page.versions[0].tags[0].value == "object_missing");
}

TEST_CASE("a backup opens, has everything and does not change when the source does") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  must(registry.backup(folder.path() / "copy"));
  CHECK(std::filesystem::status(folder.path() / "copy").permissions() ==
        std::filesystem::perms::owner_all);
  must(registry.add(test_model("m", {2.0F}).version));
  Registry copy = open_registry(folder.path() / "copy", {.create = false});
  CHECK(copy.uuid() == registry.uuid());
  CHECK(must(copy.count({})) == 1);
  must(copy.load(must(copy.find("m"))));
  CHECK(must(copy.verify({.deep = true})).clean());
  CHECK(code_of(registry.backup(folder.path() / "copy")) == Errc::already_exists);
}

TEST_CASE("tags are set and removed, on a version or on the model") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  const std::vector<Pair> set = {{"team", "energy"}, {"reviewed", "no"}};
  must(registry.set_tags(ref("m:1"), set, {}));
  const std::vector<Pair> change = {{"reviewed", "yes"}};
  const std::vector<std::string> removed = {"team"};
  must(registry.set_tags(ref("m:1"), change, removed));
  const Version version = must(registry.find("m:1"));
  REQUIRE(version.tags.size() == 1);
  CHECK(version.tags[0].value == "yes");
  must(registry.set_tags(ref("m"), set, {}));
  must(registry.set_description("m", "load of one house"));
  CHECK(must(registry.models("", 10))[0].description == "load of one house");
}

TEST_CASE("sql reads and does nothing else") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  int64_t rows = 0;
  const auto count = [&](std::span<const std::string> columns,
                         std::span<const Json> values) -> Result<void> {
    CHECK(columns[0] == "name");
    CHECK(values[0].string() == "m");
    ++rows;
    return {};
  };
  must(registry.sql("SELECT name FROM model;", count));
  CHECK(rows == 1);
  for (const char* statement :
       {"DELETE FROM model", "PRAGMA journal_mode=DELETE", "ATTACH 'x' AS y", "SELECT 1; SELECT 2",
        "CREATE TABLE t(a)", "", "SELECT load_extension('x')"}) {
    CAPTURE(statement);
    CHECK(code_of(registry.sql(statement, count)) == Errc::invalid_argument);
  }
}

TEST_CASE("an unfinished push is listed with its last error until it is done") {
  TestFolder folder;
  Registry registry =
      open_registry(folder.path() / "r", {.push_to = std::vector<std::string>{"mlflow"}});
  must(registry.add(test_model("m", {1.0F}).version));
  auto pushes = must(registry.pushes("mlflow", true, 10));
  REQUIRE(pushes.size() == 1);
  CHECK(pushes[0].state == "waiting");
  CHECK(pushes[0].reference == "m:1");
  pushes[0].tries = 1;
  pushes[0].error = "connection refused";
  must(registry.record_push(pushes[0]));
  CHECK(must(registry.pushes("mlflow", true, 10))[0].error == "connection refused");
  pushes[0].state = "done";
  pushes[0].remote = Json::object({{"run", "abc"}});
  must(registry.record_push(pushes[0]));
  CHECK(must(registry.pushes("mlflow", true, 10)).empty());
  CHECK(must(registry.pushes("", false, 10))[0].remote.get_string("run") == "abc");
  must(registry.add(test_model("n", {1.0F}).version));
  CHECK(must(registry.request_pushes({}, "other")) == 2);
  CHECK(must(registry.request_pushes({}, "other")) == 0);
}

TEST_CASE("a push that was given up waits again when somebody asks for it") {
  TestFolder folder;
  Registry registry =
      open_registry(folder.path() / "r", {.push_to = std::vector<std::string>{"mlflow"}});
  must(registry.add(test_model("m", {1.0F}).version));
  Push push = must(registry.pushes("mlflow", true, 10))[0];
  push.state = "failed";
  push.tries = 9;
  push.next = base::Micros(5);
  push.error = "no such host";
  must(registry.record_push(push));
  CHECK(must(registry.request_pushes({}, "mlflow")) == 1);
  push = must(registry.pushes("mlflow", true, 10))[0];
  CHECK(push.state == "waiting");
  CHECK(push.tries == 0);
  CHECK(push.next == base::Micros(0));
}

TEST_CASE("only a deleted version is restored") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  must(registry.remove(ref("m:1")));
  CHECK(code_of(registry.restore(ref("m"))) == Errc::invalid_argument);
  must(registry.restore(ref("m:1")));
  CHECK(code_of(registry.restore(ref("m:1"))) == Errc::invalid_argument);
  CHECK(must(registry.find("m")).version == 1);
}

TEST_CASE("a once key brings its deleted version back, and is free when gc took the files") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  TestModel model = test_model("m", {1.0F});
  model.version.once = "run/m";
  must(registry.add(model.version));
  must(registry.remove(ref("m:1")));

  CHECK(must(registry.add(model.version)).version == 1);
  must(registry.load(must(registry.find("m:1"))));

  must(registry.remove(ref("m:1")));
  must(registry.gc({.grace = base::Micros(0), .keep = base::Micros(0)}));
  CHECK(must(registry.add(model.version)).version == 2);
  must(registry.load(must(registry.find("m:2"))));
  CHECK(must(registry.verify({.deep = true})).clean());
}

TEST_CASE(
    "a change of an alias asks for the push of the versions that it left and that it reached") {
  TestFolder folder;
  Registry registry =
      open_registry(folder.path() / "r", {.push_to = std::vector<std::string>{"mlflow"}});
  for (int i = 0; i < 3; ++i) {
    must(registry.add(test_model("m", {static_cast<float>(i)}).version));
  }
  must(registry.add(test_model("other", {1.0F}).version));
  const auto settle = [&] {
    for (Push push : must(registry.pushes("mlflow", true, 10))) {
      push.state = "done";
      push.remote = Json::object({{"version", 1}});
      must(registry.record_push(push));
    }
  };
  const auto waiting = [&] {
    std::vector<std::string> references;
    for (const Push& push : must(registry.pushes("mlflow", true, 10))) {
      references.push_back(push.reference);
    }
    return references;
  };
  using References = std::vector<std::string>;

  settle();
  must(registry.set_alias(ref("m:1"), "champion"));
  CHECK(waiting() == References{"m:1"});
  settle();
  must(registry.set_alias(ref("m:1"), "champion"));
  CHECK(waiting().empty());  // nothing changed
  must(registry.set_alias(ref("m:2"), "champion"));
  CHECK(waiting() == References{"m:1", "m:2"});
  settle();
  must(registry.set_alias(ref("m"), "champion", {.remove = true}));
  CHECK(waiting() == References{"m:2"});

  settle();
  must(registry.set_alias(ref("m:3"), "champion"));
  settle();
  must(registry.remove(ref("m:3"), true));
  CHECK(waiting() == References{"m:3"});  // the alias must go there too
  CHECK(must(registry.pushes("mlflow", true, 10))[0].deleted);
}

TEST_CASE("a version that gets an alias is pushed where its model is, and nowhere else") {
  TestFolder folder;
  {
    Registry registry =
        open_registry(folder.path() / "r", {.push_to = std::vector<std::string>{"mlflow"}});
    must(registry.add(test_model("m", {1.0F}).version));
  }
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {2.0F}).version));
  must(registry.add(test_model("local", {1.0F}).version));
  must(registry.set_alias(ref("local:1"), "champion"));
  CHECK(must(registry.pushes("", true, 10)).size() == 1);
  must(registry.set_alias(ref("m:2"), "champion"));
  const auto pushes = must(registry.pushes("mlflow", true, 10));
  REQUIRE(pushes.size() == 2);
  CHECK(pushes[1].reference == "m:2");
}

TEST_CASE("a push that is recorded as done stays asked for when the alias changed meanwhile") {
  TestFolder folder;
  Registry registry =
      open_registry(folder.path() / "r", {.push_to = std::vector<std::string>{"mlflow"}});
  must(registry.add(test_model("m", {1.0F}).version));
  Push push = must(registry.pushes("mlflow", true, 10))[0];
  push.seen = push.next;
  must(registry.set_alias(ref("m:1"), "champion"));
  push.state = "done";
  must(registry.record_push(push));
  push = must(registry.pushes("mlflow", true, 10))[0];
  CHECK(push.state == "waiting");
  push.seen = push.next;
  push.state = "done";
  must(registry.record_push(push));
  CHECK(must(registry.pushes("mlflow", true, 10)).empty());
}

TEST_CASE("the end of a run stands in the lineage of its versions") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  TestModel model = test_model("m", {1.0F});
  model.version.lineage.run = "run-1";
  must(registry.add(model.version));
  CHECK(must(registry.find("m")).lineage.run_status.empty());
  const std::string digest(64, 'a');
  must(registry.end_run({.run = "run-1",
                         .status = "Failed",
                         .pipeline_digest = digest,
                         .started = base::Micros(1'000'000),
                         .ended = base::Micros(2'000'000)}));
  must(registry.end_run({.run = "run-1", .status = "Succeeded", .ended = base::Micros(3'000'000)}));
  must(registry.end_run({.run = "unknown", .status = "Failed", .ended = base::Micros(1)}));
  const Lineage lineage = must(registry.find("m")).lineage;
  CHECK(lineage.run_status == "Succeeded");
  CHECK(lineage.run_started == base::Micros(1'000'000));
  CHECK(lineage.run_ended == base::Micros(3'000'000));
  CHECK(lineage.pipeline_digest == digest);
}

}  // namespace headrace::registry
