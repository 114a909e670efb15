// SPDX-License-Identifier: Apache-2.0
// Many processes on one registry at once.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "headrace/base/file_lock.h"
#include "headrace/base/test_process.h"
#include "headrace/base/thread.h"
#include "headrace/registry/bundle.h"
#include "headrace/registry/bundle_part.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/prepare.h"
#include "headrace/registry/schema.h"
#include "headrace/registry/test_models.h"
#include "headrace/registry/writer.h"

namespace headrace::registry {

namespace {

using base::TestProcess;

constexpr int kWriters = 16;
constexpr int kAddsEach = 500;

/// One line per version whose add returned, by O_APPEND: atomic for short lines.
class ReportFile {
 public:
  explicit ReportFile(const Path& path)
      : path_(path), fd_(must(base::open_file(path, O_WRONLY | O_CREAT | O_APPEND))) {}
  void line(const std::string& text) { must(base::write_all(fd_.get(), text + "\n", path_)); }

 private:
  Path path_;
  base::Fd fd_;
};

std::vector<std::string> lines_of(const Path& path) {
  std::istringstream text(base::read_file(path).value_or(""));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Half of the adds go alone, half into bundles of 50.
int write_many(const Path& folder, const Path& report_path, int writer) {
  ReportFile report(report_path);
  auto registry = Registry::open(folder);
  if (!registry.ok()) {
    report.line("error " + registry.error().message());
    return 1;
  }
  BundleOptions options;
  options.key = "writer-" + std::to_string(writer);
  options.kind = "deepar";
  options.parameters = {{"w", {16}}};
  auto bundle = BundleWriter::make(&*registry, options);
  std::vector<std::string> in_bundle;
  for (int i = 0; i < kAddsEach; ++i) {
    // Names are shared by all writers: they meet in the version counter.
    const std::string name = "m/" + std::to_string(i % 20);
    const std::string once = std::to_string(writer) + "/" + std::to_string(i);
    std::string error;
    if (i % 2 == 0) {
      TestModel model = test_model(name, {static_cast<float>(writer), static_cast<float>(i)});
      model.version.once = once;
      const auto added = registry->add(model.version);
      if (added.ok()) {
        report.line(once);
      } else {
        error = added.error().message();
      }
    } else {
      const std::vector<float> weights(16, static_cast<float>(i));
      ItemRecord item;
      item.key = std::to_string(i);
      item.name = name;
      item.weights = weights;
      item.once = once;
      const auto slot = bundle->append(item);
      in_bundle.push_back(once);
      if (!slot.ok()) {
        error = slot.error().message();
      } else if (in_bundle.size() == 50) {
        const auto sealed = bundle->seal();
        if (!sealed.ok()) {
          error = sealed.error().message();
        }
        for (const std::string& one : in_bundle) {
          report.line(one);
        }
        in_bundle.clear();
      }
    }
    if (!error.empty()) {
      report.line("error " + error);
      return 1;
    }
  }
  return 0;
}

Path gc_folder;
std::string gc_point;
int gc_passes = 0;

/// Another process with the shortest grace there is, every other time that this one passes a point.
void gc_at_point(const char* point) {
  if (gc_point == point && ++gc_passes % 2 == 0) {
    fault::hook() = nullptr;
    Registry other =
        must(Registry::open(gc_folder, {.lock_timeout = std::chrono::milliseconds(20)}));
    const auto collected = other.gc({.grace = base::Micros(0), .keep = base::Micros(0)});
    // Where this one holds the writer's lock, gc of another process would wait.
    REQUIRE((collected.ok() || collected.error().code() == Errc::busy));
    fault::hook() = gc_at_point;
  }
}

Result<SealReport> write_small_bundle(Registry* registry) {
  BundleOptions options;
  options.key = "small";
  options.kind = "deepar";
  options.header.set("dictionary", std::string(70'000, 'x'));
  options.parameters = {{"w", {2}}};
  HR_TRY(auto writer, BundleWriter::make(registry, options));
  for (const char* key : {"a", "b", "c"}) {
    const std::vector<float> weights = {1.0F, static_cast<float>(key[0])};
    ItemRecord item;
    item.key = key;
    item.name = std::string("bundled/") + key;
    item.weights = weights;
    HR_TRY(writer.append(item));
    HR_TRY(writer.flush());
  }
  return writer.seal();
}

}  // namespace

TEST_CASE(
    "sixteen writers, three of them killed, lose nothing that was reported and never meet a lock") {
  TestFolder folder(TestFolder::memory());
  const Path path = folder.path() / "r";
  const Path report = folder.path() / "report";
  std::vector<TestProcess> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] { return write_many(path, report, i); });
  }
  TestProcess reader([&] {
    // Reads all the time until every writer is done, and never waits for one.
    for (;;) {
      auto registry = Registry::open(path, {.create = false});
      if (registry.ok()) {
        const auto page = registry->list({.limit = 100});
        if (!page.ok()) {
          ReportFile(report).line("error " + page.error().message());
          return 1;
        }
      }
      if (std::filesystem::exists(folder.path() / "done")) {
        return 0;
      }
    }
  });
  const auto wait_lines = [&](size_t count) {
    const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(120));
    while (lines_of(report).size() < count) {
      REQUIRE(!deadline.passed());
      base::sleep_for(base::Micros(2000));
    }
  };
  for (size_t victim = 0; victim < 3; ++victim) {
    wait_lines(700 * (victim + 1));
    writers[victim * 5].kill();
  }
  for (size_t i = 0; i < writers.size(); ++i) {
    const int code = writers[i].wait();
    CHECK((i == 0 || i == 5 || i == 10 ? code == -SIGKILL : code == 0));
  }
  must(base::replace_file(folder.path() / "done", ""));
  CHECK(reader.wait() == 0);

  Registry registry = open_registry(path);
  must(seal_orphans(&registry, base::Micros(0)));
  std::set<std::string> stored;
  std::map<std::string, std::set<int64_t>> numbers;
  must(registry.for_each({.limit = 5000}, [&](const Version& version) -> Result<void> {
    CHECK(stored.insert(version.once).second);
    CHECK(numbers[version.name].insert(version.version).second);
    return {};
  }));
  for (const std::string& line : lines_of(report)) {
    CHECK_MESSAGE(line.substr(0, 5) != "error", line);
    if (line.substr(0, 5) != "error") {
      CHECK_MESSAGE(stored.contains(line), line);
    }
  }
  CHECK(stored.size() >= 13 * kAddsEach);
  CHECK(must(registry.verify({.deep = true})).clean());
}

TEST_CASE("sixteen processes that open a new registry at once agree on one") {
  for (int round = 0; round < 5; ++round) {
    TestFolder folder(TestFolder::memory());
    std::vector<TestProcess> children;
    for (int i = 0; i < kWriters; ++i) {
      children.emplace_back([&, i] {
        Registry registry = open_registry(folder.path() / "deep" / "r");
        must(registry.add(test_model("m", {static_cast<float>(i)}).version));
        ReportFile(folder.path() / "report").line(registry.uuid());
        return 0;
      });
    }
    for (TestProcess& child : children) {
      CHECK(child.wait() == 0);
    }
    const auto lines = lines_of(folder.path() / "report");
    CHECK(std::set<std::string>(lines.begin(), lines.end()).size() == 1);
    CHECK(must(open_registry(folder.path() / "deep" / "r").count({})) == kWriters);
  }
}

TEST_CASE("sixteen processes that migrate at once migrate once") {
  static constexpr Migration kSteps[] = {{1, "ALTER TABLE model ADD COLUMN colour TEXT"}};
  TestFolder folder(TestFolder::memory());
  const Path path = folder.path() / "r";
  must(open_registry(path).add(test_model("m", {1.0F}).version));
  std::vector<TestProcess> children;
  for (int i = 0; i < kWriters; ++i) {
    children.emplace_back([&] {
      Writer writer(
          {.database = path / "registry.db", .lock_file = path / "writer.lock", .command = "test"});
      must(writer.exclusive(
          [&](Database* database) { return migrate_with_backup(database, path, kSteps, 2); }));
      return 0;
    });
  }
  for (TestProcess& child : children) {
    CHECK(child.wait() == 0);
  }
  const auto backups = std::filesystem::directory_iterator(path / "backup");
  CHECK(std::distance(begin(backups), end(backups)) == 1);
}

TEST_CASE("a registry that only newer ones may write can still be read") {
  TestFolder folder;
  const Path path = folder.path() / "r";
  must(open_registry(path).add(test_model("m", {1.0F}).version));
  {
    auto database = must(Database::open(path / "registry.db", {.mode = DatabaseMode::read_write}));
    must(database->execute("UPDATE meta SET value='7' WHERE key='min_writer'"));
  }
  const auto refused = Registry::open(path);
  CHECK(code_of(refused) == Errc::unsupported);
  CHECK(refused.error().message().find("writes registry format 7") != std::string::npos);
  CHECK(must(Registry::open(path, {.read_only = true})).find("m").ok());
}

TEST_CASE("a registry of a newer format is refused, naming what is needed") {
  TestFolder folder;
  const Path path = folder.path() / "r";
  must(open_registry(path).add(test_model("m", {1.0F}).version));
  {
    auto database = must(Database::open(path / "registry.db", {.mode = DatabaseMode::read_write}));
    must(database->execute("UPDATE meta SET value='7' WHERE key='min_reader'"));
  }
  const auto refused = Registry::open(path);
  CHECK(code_of(refused) == Errc::unsupported);
  CHECK(refused.error().message().find("format 7") != std::string::npos);
  must(base::replace_file(path / "FORMAT", "headrace-registry 2\nabc\n"));
  CHECK(code_of(Registry::open(path)) == Errc::unsupported);
}

TEST_CASE(
    "an alias set by eight processes at once has exactly one winner each round, and a whole log") {
  constexpr int kProcesses = 8;
  constexpr int kRounds = 10;
  TestFolder folder(TestFolder::memory());
  const Path path = folder.path() / "r";
  {
    Registry registry = open_registry(path);
    for (int i = 0; i < kRounds; ++i) {
      must(registry.add(test_model("m", {static_cast<float>(i)}).version));
    }
  }
  for (int64_t round = 1; round <= kRounds; ++round) {
    std::vector<TestProcess> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.emplace_back([&] {
        Registry registry = open_registry(path);
        const auto set = registry.set_alias(must(parse_reference("m:" + std::to_string(round))),
                                            "champion", {.expect = round - 1});
        return set.ok() ? 0 : set.error().code() == Errc::mismatch ? 1 : 2;
      });
    }
    std::map<int, int> codes;
    for (TestProcess& child : children) {
      ++codes[child.wait()];
    }
    CHECK(codes[0] == 1);
    CHECK(codes[1] == kProcesses - 1);
  }
  const auto log = must(open_registry(path).history("m"));
  REQUIRE(log.size() == kRounds);
  for (size_t i = 0; i < log.size(); ++i) {
    CHECK(log[i].from_version == static_cast<int64_t>(i));
    CHECK(log[i].to_version == static_cast<int64_t>(i) + 1);
  }
}

TEST_CASE(
    "gc while equal content is published in a loop never takes an object that a version needs") {
  TestFolder folder(TestFolder::memory());
  const Path path = folder.path() / "r";
  open_registry(path);
  std::vector<TestProcess> children;
  for (int i = 0; i < 3; ++i) {
    children.emplace_back([&, i] {
      Registry registry = open_registry(path);
      for (int round = 0; round < 150; ++round) {
        const Version version =
            must(registry.add(test_model("m/" + std::to_string(i), {1.0F}).version));
        must(registry.load(version));
        must(registry.remove(must(parse_reference(version.reference()))));
      }
      must(registry.add(test_model("last/" + std::to_string(i), {1.0F}).version));
      return 0;
    });
  }
  TestProcess collector([&] {
    Registry registry = open_registry(path);
    while (!std::filesystem::exists(folder.path() / "done")) {
      must(registry.gc({.grace = base::Micros(0), .keep = base::Micros(0)}));
    }
    return 0;
  });
  for (TestProcess& child : children) {
    CHECK(child.wait() == 0);
  }
  must(base::replace_file(folder.path() / "done", ""));
  CHECK(collector.wait() == 0);
  Registry registry = open_registry(path);
  CHECK(must(registry.count({})) == 3);
  CHECK(must(registry.verify({.deep = true})).clean());
}

TEST_CASE("gc with no grace at any point of an add, a bundle or an import takes nothing of it") {
  const char* points[] = {"object.opened",      "object.created",       "object.before_link",
                          "object.after_link",  "object.exists",        "add.before_rows",
                          "import.before_rows", "incoming.before_rows", "bundle.after_record",
                          "bundle.copied",      "bundle.finished",      "bundle.before_forget"};
  for (int round = 0; round < 2 * static_cast<int>(std::size(points)); ++round) {
    const std::string point = points[round / 2];
    CAPTURE(point);
    TestFolder folder(TestFolder::memory());
    const Path path = folder.path() / "r";
    Registry source = open_registry(folder.path() / "source");
    must(source.add(test_model("imported", {3.0F}).version));
    must(source.export_file({}, folder.path() / "x.tar"));
    must(stage(folder.path() / "shared", test_model("staged", {4.0F}).version));
    Registry registry = open_registry(path);
    must(registry.add(test_model("there", {1.0F}).version));
    must(registry.remove(must(parse_reference("there:1"))));

    gc_folder = path;
    gc_point = point;
    gc_passes = round;
    fault::hook() = gc_at_point;
    const auto first = registry.add(test_model("m", {1.0F}).version);
    const auto import = registry.import_file(folder.path() / "x.tar");
    const auto incoming = registry.import_incoming(folder.path() / "shared");
    const auto sealed = write_small_bundle(&registry);
    fault::hook() = nullptr;

    must(first);
    must(import);
    must(incoming);
    CHECK(must(sealed).items == 3);
    CHECK(must(registry.count({})) == 6);
    must(registry.gc({.grace = base::Micros(0), .keep = base::Micros(0)}));
    CHECK(must(registry.verify({.deep = true})).findings.empty());
  }
}

TEST_CASE("a bundle whose rows did not come is put in place again after gc") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const ObjectStore store(registry.folder());
  BundleOptions options;
  options.key = "k";
  options.kind = "deepar";
  options.parameters = {{"w", {2}}};
  auto part = must(BundlePart::create(store, must(part_shape(options))));
  const std::vector<float> weights = {1.0F, 2.0F};
  ItemRecord record;
  record.weights = weights;
  PartItem item;
  item.key = "a";
  item.uid = new_uid();
  item.version.name = "m";
  item.version.kind = "deepar";
  must(part.append(record, item));
  const ObjectFile object = must(part.finish());

  must(part.put_in_place(object));
  must(registry.gc({.grace = base::Micros(0)}));  // a commit that failed left it without a row
  CHECK(!store.size_of(object.hash));
  must(part.put_in_place(object));
  CHECK(store.size_of(object.hash) == object.bytes);
}

TEST_CASE("threads of one process share transactions and each gets its own version") {
  TestFolder folder(TestFolder::memory());
  Registry registry = open_registry(folder.path() / "r");
  constexpr int kThreads = 8;
  constexpr int kEach = 50;
  std::atomic<int> failed = 0;
  {
    std::vector<base::Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("writer", [&, t] {
        for (int i = 0; i < kEach; ++i) {
          TestModel model = test_model("m", {static_cast<float>(t), static_cast<float>(i)});
          if (i == 7) {
            model.version.parent = "absent";  // fails alone, takes nobody with it
          }
          failed += registry.add(model.version).ok() ? 0 : 1;
        }
      });
    }
  }
  CHECK(failed == kThreads);
  CHECK(must(registry.count({})) == kThreads * (kEach - 1));
  CHECK(must(registry.find("m")).version == kThreads * (kEach - 1));
}

TEST_CASE("a lock that stays taken ends in an error that names its holder") {
  TestFolder folder;
  const Path path = folder.path() / "r";
  Registry registry = open_registry(path, {.lock_timeout = std::chrono::milliseconds(50)});
  const auto lock = must(base::FileLock::acquire(path / "writer.lock", 0,
                                                 base::holder_description("headrace flow run")));
  const auto added = registry.add(test_model("m", {1.0F}).version);
  CHECK(code_of(added) == Errc::busy);
  CHECK(added.error().message().find("pid " + std::to_string(::getpid())) != std::string::npos);
  CHECK(added.error().message().find("headrace flow run") != std::string::npos);
  CHECK(added.error().message().find("since") != std::string::npos);
}

TEST_CASE("after fork the child is told to open again, and the parent goes on") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  must(registry.add(test_model("m", {1.0F}).version));
  TestProcess child([&] {
    const auto found = registry.find("m");
    const auto added = registry.add(test_model("m", {1.0F}).version);
    const bool told =
        !found.ok() && !added.ok() && found.error().message().find("fork()") != std::string::npos;
    return told && open_registry(folder.path() / "r").find("m").ok() ? 0 : 1;
  });
  CHECK(child.wait() == 0);
  must(registry.add(test_model("m", {2.0F}).version));
}

TEST_CASE("the folder can be moved, copied and its parent renamed") {
  TestFolder folder;
  const Path first = folder.path() / "a" / "r";
  must(open_registry(first).add(test_model("m", {1.0F}).version));
  std::filesystem::rename(first, folder.path() / "a" / "moved");
  std::filesystem::rename(folder.path() / "a", folder.path() / "b");
  std::filesystem::copy(folder.path() / "b" / "moved", folder.path() / "copy",
                        std::filesystem::copy_options::recursive);
  std::filesystem::create_directory_symlink("b/moved", folder.path() / "link");
  for (const char* name : {"b/moved", "copy", "link"}) {
    CAPTURE(name);
    Registry registry = open_registry(folder.path() / name, {.create = false});
    must(registry.load(must(registry.find("m:1"))));
    must(registry.add(test_model("m", {2.0F}).version));
    CHECK(must(registry.verify({.deep = true})).clean());
  }
}

TEST_CASE("a network file system is refused with what to do") {
  TestFolder folder;
  for (const int64_t magic : {0x6969LL, 0xFF534D42LL, 0x65735546LL}) {
    fault::filesystem_type() = magic;
    const auto opened = Registry::open(folder.path() / "r");
    fault::filesystem_type() = 0;
    CHECK(code_of(opened) == Errc::unsupported);
    CHECK(opened.error().message().find("incoming/") != std::string::npos);
  }
}

TEST_CASE("a folder with other files never becomes a registry") {
  TestFolder folder;
  must(base::replace_file(folder.path() / "thesis.tex", "x"));
  CHECK(code_of(Registry::open(folder.path())) == Errc::invalid_argument);
  CHECK(code_of(Registry::open(folder.path(), {.create = false})) == Errc::not_found);
  CHECK(code_of(Registry::open(folder.path() / "absent", {.create = false})) == Errc::not_found);
  const auto too_long = Registry::open(folder.path() / std::string(300, 'x'));
  REQUIRE(!too_long.ok());
  CHECK(too_long.error().message().find("making folder") != std::string::npos);
  const auto entries = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}

TEST_CASE("a registry opened for reading changes nothing") {
  TestFolder folder;
  must(open_registry(folder.path() / "r").add(test_model("m", {1.0F}).version));
  Registry registry = open_registry(folder.path() / "r", {.read_only = true});
  must(registry.load(must(registry.find("m"))));
  CHECK(code_of(registry.add(test_model("m", {1.0F}).version)) == Errc::invalid_argument);
  CHECK(code_of(registry.gc()) == Errc::invalid_argument);
  CHECK(code_of(registry.remove(must(parse_reference("m:1")))) == Errc::invalid_argument);
}

}  // namespace headrace::registry
