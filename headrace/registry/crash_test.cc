// SPDX-License-Identifier: Apache-2.0
// Killed at any named point: afterwards nothing is torn, nothing is there twice, the work goes on.
#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "headrace/base/file_lock.h"
#include "headrace/base/random.h"
#include "headrace/base/test_process.h"
#include "headrace/registry/bundle.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/schema.h"
#include "headrace/registry/test_models.h"
#include "headrace/registry/writer.h"

namespace headrace::registry {

namespace {

using base::TestProcess;

std::atomic<int64_t> points_passed = 0;
std::atomic<int64_t> kill_at = 0;  // 0: never
std::string kill_name;             // the point that is always fatal, or ""

void on_point(const char* name) {
  const int64_t passed = points_passed.fetch_add(1) + 1;
  if (passed == kill_at.load() || (!kill_name.empty() && kill_name == name)) {
    ::kill(::getpid(), SIGKILL);
  }
}

using Work = std::function<void(const Path& folder)>;

/// Run `work` in a child that dies at point `at` (0: none); false when it was killed.
bool run_killed(const Work& work, const Path& folder, int64_t at, const std::string& name = "") {
  TestProcess child([&] {
    kill_at = at;
    kill_name = name;
    points_passed = 0;
    fault::hook() = on_point;
    work(folder);
    return 0;
  });
  const int code = child.wait();
  REQUIRE((code == 0 || code == -SIGKILL));
  return code == 0;
}

int64_t count_points(const Work& work, const Path& folder) {
  const Path report = folder.string() + ".points";
  TestProcess child([&] {
    points_passed = 0;
    fault::hook() = on_point;
    work(folder);
    must(base::replace_file(report, std::to_string(points_passed.load())));
    return 0;
  });
  REQUIRE(child.wait() == 0);
  return std::stoll(must(base::read_file(report)));
}

void check_whole(const Path& folder, int64_t versions) {
  Registry registry = open_registry(folder);
  must(registry.gc({.grace = base::Micros(0)}));
  CHECK(must(registry.count({})) == versions);
  const VerifyReport report = must(registry.verify({.deep = true}));
  for (const Finding& finding : report.findings) {
    MESSAGE(finding.text);
  }
  CHECK(report.findings.empty());  // after gc not even strays
  std::map<std::string, int> once;
  must(registry.for_each({.include_deleted = true}, [&](const Version& version) -> Result<void> {
    if (!version.once.empty()) {
      ++once[version.once];
    }
    return {};
  }));
  for (const auto& [key, count] : once) {
    CAPTURE(key);
    CHECK(count == 1);
  }
}

/// Kill `work` at every point it passes (at most `tries`, chosen at random), finish it afterwards,
/// and expect `versions`.
void kill_everywhere(const Work& prepare, const Work& work, int64_t versions, int64_t tries = 50) {
  TestFolder folder(TestFolder::memory());
  const Path whole = folder.path() / "whole";
  REQUIRE(run_killed(prepare, whole, 0));
  const int64_t points = count_points(work, whole);
  REQUIRE(points > 0);
  check_whole(whole, versions);
  base::Rng rng(17);
  MESSAGE("seed 17, points " << points);
  for (int64_t round = 0; round < std::min(points, tries); ++round) {
    const int64_t at = points <= tries
                           ? round + 1
                           : static_cast<int64_t>(rng.below(static_cast<uint64_t>(points))) + 1;
    CAPTURE(at);
    const Path killed = folder.path() / ("killed-" + std::to_string(round));
    REQUIRE(run_killed(prepare, killed, 0));
    CHECK(!run_killed(work, killed, at));
    REQUIRE(run_killed(work, killed, 0));  // the retry
    check_whole(killed, versions);
    std::filesystem::remove_all(killed);
  }
}

void nothing(const Path&) {}

void add_three(const Path& folder) {
  Registry registry = open_registry(folder);
  for (int i = 0; i < 3; ++i) {
    TestModel model = test_model("m/H" + std::to_string(i), {static_cast<float>(i)});
    const std::string notes = "notes " + std::to_string(i);
    model.version.artifacts = {{"notes.txt", std::as_bytes(std::span(notes))}};
    model.version.once = "run/H" + std::to_string(i);
    must(registry.add(model.version));
  }
}

void write_bundle_of(const Path& folder, size_t header_bytes) {
  Registry registry = open_registry(folder);
  BundleOptions options;
  options.key = "run/shape";
  options.kind = "deepar";
  options.parameters = {{"w", {20}}};
  options.scalars = {"scale"};
  options.metrics = {"mase"};
  options.header.set("dictionary", std::string(header_bytes, 'x'));
  auto writer = must(BundleWriter::make(&registry, options));
  for (int i = 0; i < 6; ++i) {
    const std::vector<float> weights(20, static_cast<float>(i));
    const double scale = i;
    ItemRecord item;
    item.key = "H" + std::to_string(i);
    item.name = "m/" + item.key;
    item.weights = weights;
    item.scalars = std::span(&scale, 1);
    item.metrics = {{"mase", 1.0, {}}};
    item.once = "run/" + item.key;
    must(writer.append(item));
    must(writer.flush());
    if (i == 3) {
      must(writer.seal());
    }
  }
  must(writer.seal());
}

void write_bundle(const Path& folder) { write_bundle_of(folder, 0); }
void write_wide_bundle(const Path& folder) { write_bundle_of(folder, 70'000); }

/// As write_bundle, but nobody writes the items again: what was flushed must come back by itself.
void seal_rest(const Path& folder) {
  Registry registry = open_registry(folder);
  must(seal_orphans(&registry, base::Micros(0)));
}

void add_and_delete(const Path& folder) {
  add_three(folder);
  Registry registry = open_registry(folder);
  must(registry.remove(must(parse_reference("m/H1:1"))));
  must(registry.remove(must(parse_reference("m/H2:1"))));
}

void collect(const Path& folder) {
  Registry registry = open_registry(folder);
  must(registry.gc({.grace = base::Micros(0), .keep = base::Micros(0)}));
}

Path export_of(const Path& folder) { return folder.string() + ".tar"; }

void make_export(const Path& folder) {
  const Path source = folder.string() + ".source";
  add_three(source);
  Registry registry = open_registry(source);
  must(registry.export_file({}, export_of(folder)));
}

void import_export(const Path& folder) {
  Registry registry = open_registry(folder);
  must(registry.import_file(export_of(folder)));
}

void stage_two(const Path& folder) {
  for (int i = 0; i < 2; ++i) {
    TestModel model = test_model("m/H" + std::to_string(i), {static_cast<float>(i)});
    model.version.once = "run/H" + std::to_string(i);
    must(stage(folder.string() + ".incoming", model.version));
  }
}

void import_staged(const Path& folder) {
  Registry registry = open_registry(folder);
  must(registry.import_incoming(folder.string() + ".incoming"));
}

}  // namespace

TEST_CASE("killed anywhere between opening and adding, the retry completes the registry") {
  kill_everywhere(nothing, add_three, 3);
}

TEST_CASE("killed anywhere while a bundle is written, finished items are sealed once") {
  kill_everywhere(nothing, write_bundle, 6);
}

TEST_CASE("killed anywhere while a bundle with a long header is written, items are sealed once") {
  kill_everywhere(nothing, write_wide_bundle, 6);
}

TEST_CASE("killed while sealing, an item that was flushed needs nobody to write it again") {
  for (const Work& work : {Work(write_bundle), Work(write_wide_bundle)}) {
    for (const char* point :
         {"bundle.copied", "bundle.index_written", "bundle.before_finished", "bundle.finished",
          "bundle.placed", "writer.before_commit", "bundle.before_forget"}) {
      CAPTURE(point);
      TestFolder folder(TestFolder::memory());
      const Path path = folder.path() / "r";
      // "bundle.copied" is passed by long headers alone, then all six items are there.
      const int64_t versions = run_killed(work, path, 0, point) ? 6 : 4;
      seal_rest(path);
      check_whole(path, versions);
    }
  }
}

TEST_CASE("killed anywhere in gc, what is needed stays and what is not goes later") {
  kill_everywhere(add_and_delete, collect, 1);
}

TEST_CASE("killed anywhere in an import, importing again completes it") {
  kill_everywhere(make_export, import_export, 3);
}

TEST_CASE("killed anywhere while staged versions are taken in, none is lost or doubled") {
  kill_everywhere(stage_two, import_staged, 2);
}

TEST_CASE("killed anywhere in a backup, the same command again completes it") {
  const auto back_up = [](const Path& folder) {
    const Path copy = folder.string() + ".copy";
    const Result<void> done = open_registry(folder).backup(copy);
    if (!done.ok() && done.error().code() != Errc::already_exists) {
      must(done);
    }
    if (must(open_registry(copy, {.create = false}).count({})) != 2) {
      std::abort();
    }
    if (!must(open_registry(copy, {.create = false}).verify({.deep = true})).clean()) {
      std::abort();
    }
  };
  const auto add_two = [](const Path& folder) {
    Registry registry = open_registry(folder);
    must(registry.add(test_model("m/a", {1.0F}).version));
    must(registry.add(test_model("m/b", {2.0F}).version));
  };
  kill_everywhere(add_two, back_up, 2);
}

TEST_CASE("half a backup is no registry, and a second backup into it waits for none") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const Path copy = folder.path() / "copy";
  must(base::make_folders(copy));
  auto lock = must(base::FileLock::acquire(copy / "FORMAT.part", 0, "somebody"));
  CHECK(code_of(Registry::open(copy, {.create = true})) == Errc::invalid_argument);
  CHECK(code_of(registry.backup(copy)) == Errc::busy);
}

TEST_CASE(
    "an item that was flushed is in the registry although its writer was killed before sealing") {
  TestFolder folder;
  const Path path = folder.path() / "r";
  const auto append_one = [](const Path& where) {
    Registry registry = open_registry(where);
    BundleOptions options;
    options.key = "k";
    options.kind = "deepar";
    options.parameters = {{"w", {20}}};
    auto writer = must(BundleWriter::make(&registry, options));
    const std::vector<float> weights(20, 3.0F);
    ItemRecord item;
    item.key = "a";
    item.name = "m/a";
    item.weights = weights;
    must(writer.append(item));
    must(writer.flush());
    item.key = "b";
    item.name = "m/b";
    must(writer.append(item));  // not flushed: may be lost
    ::kill(::getpid(), SIGKILL);
  };
  CHECK(!run_killed(append_one, path, 0));
  Registry registry = open_registry(path);
  CHECK(must(seal_orphans(&registry, base::Micros(0))).items == 1);
  const ModelFile file = must(registry.load(must(registry.find("m/a"))));
  CHECK(must(must(file.tensor("w")).floats())[7] == 3.0F);
}

TEST_CASE("what a power cut takes of unsynced writes leaves nothing torn") {
  // The kernel keeps what a killed process wrote; a power cut does not. Drop by hand what was not
  // synced at each point, then go on.
  TestFolder folder;
  const auto drop_content = [](const Path& where) {
    for (const auto& entry : std::filesystem::directory_iterator(where / "tmp")) {
      if (entry.path().extension() == ".part") {
        // Records beyond the last sync come back as zeros.
        std::filesystem::resize_file(entry.path(), kBundleReserveBytes);
        std::filesystem::resize_file(entry.path(), kBundleReserveBytes + 128);
      } else if (entry.path().extension() != ".log") {
        std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
        std::filesystem::resize_file(entry.path(), 0);
      }
    }
  };
  const auto drop_names = [](const Path& where) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(where / "objects")) {
      if (entry.is_regular_file()) {
        std::filesystem::remove(entry.path());
      }
    }
  };
  struct Case {
    Work work;
    std::string point;
    std::function<void(const Path&)> drop;
    int64_t versions;
  };
  const Case cases[] = {{add_three, "object.before_sync", drop_content, 3},
                        {add_three, "object.after_link", drop_names, 3},
                        {write_bundle, "bundle.after_record", drop_content, 6}};
  for (const Case& one : cases) {
    CAPTURE(one.point);
    const Path path = folder.path() / one.point;
    CHECK(!run_killed(one.work, path, 0, one.point));
    one.drop(path);
    {
      Registry registry = open_registry(path);
      CHECK(must(registry.count({})) == 0);
    }
    REQUIRE(run_killed(one.work, path, 0));
    check_whole(path, one.versions);
  }
}

TEST_CASE("a migration killed anywhere leaves the old schema or the new one, and a backup") {
  static constexpr Migration kSteps[] = {
      {1, "ALTER TABLE model ADD COLUMN colour TEXT; UPDATE model SET colour='blue'"}};
  const auto migrate = [](const Path& folder) {
    Writer writer({.database = folder / "registry.db",
                   .lock_file = folder / "writer.lock",
                   .command = "test"});
    must(writer.exclusive(
        [&](Database* database) { return migrate_with_backup(database, folder, kSteps, 2); }));
  };
  TestFolder folder(TestFolder::memory());
  add_three(folder.path() / "golden");
  for (int64_t at = 1;; ++at) {
    const Path path = folder.path() / std::to_string(at);
    std::filesystem::copy(folder.path() / "golden", path, std::filesystem::copy_options::recursive);
    const bool finished = run_killed(migrate, path, at);
    auto database = must(Database::open(path / "registry.db", {}));
    const int64_t version = must(database->integer("PRAGMA user_version"));
    const int64_t columns = must(
        database->integer("SELECT count(*) FROM pragma_table_info('model') WHERE name='colour'"));
    CHECK(columns == version - 1);
    CHECK(must(database->integer("SELECT count(*) FROM version")) == 3);
    database.reset();
    REQUIRE(run_killed(migrate, path, 0));
    database = must(Database::open(path / "registry.db", {}));
    CHECK(must(database->integer("SELECT count(*) FROM model WHERE colour='blue'")) == 3);
    CHECK(!std::filesystem::is_empty(path / "backup"));
    if (finished) {
      CHECK(at > 2);
      break;
    }
  }
}

}  // namespace headrace::registry
