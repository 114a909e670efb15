// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/registry.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "headrace/base/board.h"
#include "headrace/registry/test_models.h"

namespace headrace::registry {

namespace {

unsigned mode_of(const Path& path) {
  return static_cast<unsigned>(std::filesystem::status(path).permissions());
}

}  // namespace

namespace {

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

NewVersion deepar(const std::string& name, const std::vector<float>& weights) {
  NewVersion version;
  version.name = name;
  version.kind = "deepar";
  version.header.set("horizon", 48);
  version.tensors = {{"w", Dtype::f32, {static_cast<int64_t>(weights.size())}, bytes_of(weights)}};
  return version;
}

}  // namespace

TEST_CASE("a model that was added is found, listed and loaded with the same bytes") {
  TestFolder folder;
  auto registry = Registry::open(folder.path() / "r");
  REQUIRE_MESSAGE(registry.ok(), registry.error().message());
  const std::vector<float> weights = {1.5F, -2.0F, 0.25F};
  NewVersion version = deepar("m4_hourly/H1", weights);
  version.metrics = {{"mase", 0.9, 500},
                     {"nan", std::numeric_limits<double>::quiet_NaN(), {}},
                     {"inf", std::numeric_limits<double>::infinity(), {}}};
  version.params = {{"cells", "40"}};
  version.tags = {{"team", "energy"}};
  version.lineage.run = "run-1";
  version.lineage.item = "H1";
  version.lineage.attempt = 1;
  version.lineage.table = TableSnapshot{"examples/lake", "parquet", "", "abcd", 42};
  const auto added = registry->add(version);
  REQUIRE_MESSAGE(added.ok(), added.error().message());
  CHECK(added->version == 1);

  const auto found = registry->find("m4_hourly/H1");
  REQUIRE_MESSAGE(found.ok(), found.error().message());
  CHECK(found->uid == added->uid);
  CHECK(found->header.get_integer("horizon") == 48);
  CHECK(*found->metric("mase") == 0.9);
  CHECK(std::isnan(*found->metric("nan")));
  CHECK(std::isinf(*found->metric("inf")));
  CHECK(found->lineage.table->rows == 42);
  CHECK(registry->find("run:run-1/H1")->uid == added->uid);
  CHECK(registry->find("uid:" + added->uid)->reference() == "m4_hourly/H1:1");
  const auto page = registry->list({.pattern = "m4_hourly"});
  REQUIRE_MESSAGE(page.ok(), page.error().message());
  CHECK(page->versions.size() == 1);

  const auto file = registry->load(*found);
  REQUIRE_MESSAGE(file.ok(), file.error().message());
  CHECK(file->kind() == "deepar");
  const auto floats = file->tensor("w")->floats();
  CHECK(std::vector<float>(floats->begin(), floats->end()) == weights);
}

TEST_CASE("a registry that was written and read leaves its rows in one file when it is closed") {
  TestFolder folder;
  {
    auto registry = Registry::open(folder.path() / "r");
    REQUIRE(registry.ok());
    const std::vector<float> weights = {1.0F};
    REQUIRE(registry->add(deepar("a", weights)).ok());
    CHECK(registry->find("a").ok());
  }
  // The log's file stays, for readers on a full disk, but nothing is in it.
  CHECK(std::filesystem::file_size(folder.path() / "r/registry.db-wal") == 0);
}

TEST_CASE("what was added is counted on the board") {
  TestFolder folder;
  const auto board = must(base::Board::create({.folder = folder.path() / "boards"}));
  Registry registry = open_registry(folder.path() / "r", {.board = board.get()});
  const TestModel model = test_model("m", {1.0F});
  const Version version = must(registry.add(model.version));
  must(registry.add(model.version));
  const auto snapshot = must(base::read_board_file(board->path()));
  const auto metric = [&](const std::string& name) {
    for (const auto& one : snapshot.metrics) {
      if (one.name == name) {
        return one.count;
      }
    }
    return uint64_t{0};
  };
  CHECK(metric("registry.versions") == 2);
  CHECK(metric("registry.bytes") == 2 * static_cast<uint64_t>(version.artifacts[0].bytes));
  CHECK(metric("registry.commit_seconds") == 2);
  CHECK(metric("registry.lock_wait_seconds") == 2);
}

TEST_CASE("the same once key gives the version that exists, other content is a mismatch") {
  TestFolder folder;
  auto registry = Registry::open(folder.path() / "r");
  const std::vector<float> weights = {1.0F};
  NewVersion version = deepar("a", weights);
  version.once = "run/a";
  const auto first = registry->add(version);
  version.header.set("seconds", 2.5);  // a repeated attempt took another time
  const auto second = registry->add(version);
  REQUIRE_MESSAGE(second.ok(), second.error().message());
  CHECK(second->uid == first->uid);
  const std::vector<float> other = {2.0F};
  NewVersion changed = deepar("a", other);
  changed.once = "run/a";
  const auto third = registry->add(changed);
  REQUIRE(!third.ok());
  CHECK(third.error().code() == Errc::mismatch);
  CHECK(registry->count({}).value_or(0) == 1);
}

TEST_CASE("a place that is no folder makes none of its name") {
  for (const char* place : {"mlflow:", "mlflow:http://h", "s3://bucket/r", "file:///r"}) {
    CAPTURE(place);
    CHECK(code_of(registry_path(place)) == Errc::unsupported);
  }
  for (const char* place : {"./mlflow:", "/a:b", "a/b:c", "r"}) {
    CAPTURE(place);
    CHECK(must(registry_path(place)) == Path(place));
  }
  CHECK(code_of(parse_reference("models:/m@champion")) == Errc::unsupported);
}

TEST_CASE("a registry's files are its user's alone, also in a folder that others may look into") {
  TestFolder folder;
  const Path place = folder.path() / "r";
  std::filesystem::create_directory(place);
  std::filesystem::permissions(place, std::filesystem::perms(0755));
  {
    Registry registry = open_registry(place);
    must(registry.add(test_model("m", {1.0F}).version));
  }
  Registry registry = open_registry(place);
  must(registry.add(test_model("m", {2.0F}).version));
  for (const char* name :
       {"registry.db", "registry.db-wal", "registry.db-shm", "writer.lock", "FORMAT"}) {
    CAPTURE(name);
    CHECK(mode_of(place / name) == 0600);
  }
  for (const char* name : {"objects", "tmp", "trash", "incoming", "backup"}) {
    CAPTURE(name);
    CHECK(mode_of(place / name) == 0700);
  }
  must(registry.backup(folder.path() / "copy"));
  CHECK(mode_of(folder.path() / "copy" / "registry.db") == 0600);
}

TEST_CASE("a registry that was made for a group stays the group's") {
  TestFolder folder;
  const Path place = folder.path() / "r";
  must(open_registry(place, {.shared_group = true}).add(test_model("m", {1.0F}).version));
  Registry registry = open_registry(place);  // need not be said again
  must(registry.add(test_model("m", {2.0F}).version));
  CHECK(mode_of(place) == 02770);
  for (const char* name :
       {"registry.db", "registry.db-wal", "registry.db-shm", "writer.lock", "FORMAT"}) {
    CAPTURE(name);
    CHECK(mode_of(place / name) == 0660);
  }
  for (const auto& entry : std::filesystem::directory_iterator(place / "objects")) {
    CHECK(mode_of(entry.path()) == 02770);
  }
}

}  // namespace headrace::registry
