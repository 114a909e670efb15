// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>

#include "headrace/base/checksum.h"
#include "headrace/base/thread.h"
#include "headrace/registry/bundle.h"
#include "headrace/registry/tar.h"
#include "headrace/registry/test_models.h"

namespace headrace::registry {

namespace {

std::string entry_bytes(const std::string& name, const std::string& text) {
  const TarBlock header = tar_header({name, static_cast<int64_t>(text.size())});
  return std::string(header.data(), header.size()) + text +
         std::string(static_cast<size_t>(tar_padding(static_cast<int64_t>(text.size()))), '\0');
}

std::string hash_of(std::string_view text) {
  base::Blake2b256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return base::hex(hash.finish());
}

/// A manifest of one version "x" with one artifact.
std::string manifest_for(const std::string& hash, int64_t bytes) {
  return R"({"format":"headrace-export/1","versions":[{"name":"x","kind":"files","header":{},)"
         R"("uid":"00112233445566778899aabbccddeeff","created_us":1,"version":1,"artifacts":[)"
         R"({"path":"a.txt","kind":"file","hash":")" +
         hash + R"(","bytes":)" + std::to_string(bytes) + "}]}]}";
}

const std::string kEnd(1024, '\0');

/// Recompute the checksum of a header that a test has changed.
void fix_checksum(std::string* tar) {
  std::fill_n(tar->begin() + 148, 8, ' ');
  int sum = 0;
  for (size_t i = 0; i < 512; ++i) {
    sum += static_cast<unsigned char>((*tar)[i]);
  }
  char text[16];
  std::snprintf(text, sizeof text, "%06o", static_cast<unsigned>(sum));
  std::copy_n(text, 7, tar->begin() + 148);
}

}  // namespace

TEST_CASE("an export writes through a link, and over no pipe; old parts are not in its way") {
  TestFolder folder;
  Registry source = open_registry(folder.path() / "a");
  must(source.add(test_model("m/H1", {1.0F}).version));
  const Path files = folder.path() / "files";
  must(base::make_folders(files));
  std::filesystem::create_symlink("data.tar", files / "link.tar");
  std::filesystem::create_directory(files / "data.tar.part");  // one fixed name would fail on it
  CHECK(must(source.export_file({.pattern = "m/**"}, files / "link.tar")) == 1);
  CHECK(std::filesystem::is_symlink(files / "link.tar"));
  Registry target = open_registry(folder.path() / "b");
  CHECK(must(target.import_file(files / "data.tar")).added == 1);
  REQUIRE(::mkfifo((files / "fifo").c_str(), 0600) == 0);
  const auto refused = source.export_file({.pattern = "m/**"}, files / "fifo");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Errc::invalid_argument);
  CHECK(std::filesystem::is_fifo(files / "fifo"));
  CHECK(std::distance(std::filesystem::directory_iterator(files), {}) == 4);
}

TEST_CASE("exports of several at once into one file each write a whole one") {
  TestFolder folder;
  Registry source = open_registry(folder.path() / "a");
  must(source.add(test_model("m/H1", std::vector<float>(100'000, 1.0F)).version));
  const Path file = folder.path() / "one.tar";
  std::atomic<int> done = 0;
  {
    std::vector<base::Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("export", [&] {
        for (int k = 0; k < 20; ++k) {
          done += source.export_file({.pattern = "m/**"}, file, true).ok() ? 1 : 0;
        }
      });
    }
  }
  CHECK(done == 80);
  Registry target = open_registry(folder.path() / "b");
  CHECK(must(target.import_file(file)).added == 1);
}

TEST_CASE("an export imports elsewhere with everything, and importing twice changes nothing") {
  TestFolder folder;
  Registry source = open_registry(folder.path() / "a");
  TestModel model = test_model("m/H1", {1.0F, 2.0F});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  model.version.metrics = {{"nan", nan, {}},
                           {"up", inf, 7},
                           {"down", -inf, {}},
                           {"tiny", std::numeric_limits<double>::denorm_min(), {}}};
  model.version.params = {{"cells", "40"}};
  model.version.tags = {{"team", "\"quoted\""}};
  model.version.lineage.run = "r1";
  model.version.lineage.item = "H1";
  const std::string text = "notes";
  model.version.artifacts = {{"notes/a.txt", std::as_bytes(std::span(text))}};
  const Version first = must(source.add(model.version));
  TestModel child = test_model("m/H1", {3.0F});
  child.version.parent = "m/H1:1";
  must(source.add(child.version));
  must(source.set_alias(must(parse_reference("m/H1:2")), "champion"));
  const Path file = folder.path() / "models.tar";
  CHECK(must(source.export_file({.pattern = "m/**"}, file)) == 2);

  Registry target = open_registry(folder.path() / "b");
  must(target.add(test_model("m/H1", {9.0F}).version));  // takes number 1
  CHECK(must(target.import_file(file)).added == 2);
  const ImportReport again = must(target.import_file(file));
  CHECK(again.added == 0);
  CHECK(again.known == 2);
  CHECK(must(target.count({})) == 3);
  const Version version = must(target.find("uid:" + first.uid));
  CHECK(version.version == 2);
  CHECK(std::isnan(*version.metric("nan")));
  CHECK(*version.metric("up") == inf);
  CHECK(*version.metric("down") == -inf);
  CHECK(*version.metric("tiny") == std::numeric_limits<double>::denorm_min());
  CHECK(version.params[0].value == "40");
  CHECK(version.tags[0].value == "\"quoted\"");
  CHECK(version.lineage.run == "r1");
  CHECK(version.created == first.created);
  CHECK(must(base::read_file(must(target.artifact_path(version, "notes/a.txt")))) == "notes");
  const Version champion = must(target.find("m/H1@champion"));
  CHECK(champion.parent == first.uid);
  CHECK(must(target.verify({.deep = true})).clean());
  CHECK(code_of(target.import_file(folder.path() / "absent.tar")) == Errc::not_found);

  Registry strict = open_registry(folder.path() / "c");
  must(strict.add(test_model("m/H1", {9.0F}).version));
  CHECK(code_of(strict.import_file(file, {.keep_versions = true})) == Errc::mismatch);
  CHECK(must(strict.count({})) == 1);
}

TEST_CASE("equal registries give equal export bytes") {
  TestFolder folder;
  Registry source = open_registry(folder.path() / "a");
  for (int i = 0; i < 5; ++i) {
    must(source.add(test_model("m/" + std::to_string(i), {static_cast<float>(i)}).version));
  }
  must(source.export_file({}, folder.path() / "1.tar"));
  Registry target = open_registry(folder.path() / "b");
  must(target.import_file(folder.path() / "1.tar"));
  must(target.export_file({}, folder.path() / "2.tar"));
  CHECK(must(base::read_file(folder.path() / "1.tar")) ==
        must(base::read_file(folder.path() / "2.tar")));
}

TEST_CASE("hostile and damaged tars are refused and leave no row") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const std::string text = "hello";
  const std::string hash = hash_of(text);
  const std::string manifest = entry_bytes("manifest.json", manifest_for(hash, 5));
  const std::string object = entry_bytes("objects/" + hash, text);
  const auto with_type = [&](char type) {
    std::string tar = object;
    tar[156] = type;
    fix_checksum(&tar);
    return manifest + tar + kEnd;
  };
  std::string bad_checksum = object;
  bad_checksum[0] = 'p';
  const std::pair<const char*, std::string> cases[] = {
      {"symlink", with_type('2')},
      {"hard link", with_type('1')},
      {"device", with_type('3')},
      {"folder", with_type('5')},
      {"pax extension", with_type('x')},
      {"absolute name", manifest + entry_bytes("/objects/" + hash, text) + kEnd},
      {"name that climbs", manifest + entry_bytes("objects/../x", text) + kEnd},
      {"duplicate", manifest + object + object + kEnd},
      {"not in the manifest", manifest + entry_bytes("objects/" + hash_of("x"), "x") + kEnd},
      {"other size", entry_bytes("manifest.json", manifest_for(hash, 6)) + object + kEnd},
      {"other content", manifest + entry_bytes("objects/" + hash, "hellO") + kEnd},
      {"missing object", manifest + kEnd},
      {"wrong checksum", manifest + bad_checksum + kEnd},
      {"no manifest", object + kEnd},
      {"cut in an object", manifest + object.substr(0, 515)},
      {"cut before the end", manifest + object},
      {"empty", ""},
      {"name that climbs in the manifest", entry_bytes("manifest.json",
                                                       [&] {
                                                         std::string json = manifest_for(hash, 5);
                                                         json.replace(json.find("a.txt"), 5,
                                                                      "../..");
                                                         return json;
                                                       }()) +
                                               object + kEnd},
      {"bad model name", entry_bytes("manifest.json",
                                     [&] {
                                       std::string json = manifest_for(hash, 5);
                                       json.replace(json.find("\"x\""), 3, "\"..\"");
                                       return json;
                                     }()) +
                             object + kEnd}};
  for (const auto& [what, bytes] : cases) {
    const std::string name = what;
    CAPTURE(name);
    Registry fresh = open_registry(folder.path() / name);
    const Path file = folder.path() / "bad.tar";
    must(base::replace_file(file, bytes));
    CHECK(!fresh.import_file(file).ok());
    CHECK(must(fresh.count({})) == 0);
  }
  must(base::replace_file(folder.path() / "good.tar", manifest + object + kEnd));
  CHECK(must(registry.import_file(folder.path() / "good.tar")).added == 1);
  CHECK(must(registry.verify({.deep = true})).clean());
}

TEST_CASE("sizes above 8 GiB survive the header") {
  const TarBlock block = tar_header({"objects/x", int64_t{20} << 30});
  const auto entry = must(parse_tar_header(block, int64_t{64} << 30));
  REQUIRE(entry.has_value());
  CHECK(entry->bytes == int64_t{20} << 30);
  CHECK(!parse_tar_header(block, int64_t{1} << 30).ok());
}

TEST_CASE("items of a bundle export and import with their bundle") {
  TestFolder folder;
  Registry source = open_registry(folder.path() / "a");
  BundleOptions options;
  options.key = "k";
  options.kind = "deepar";
  options.parameters = {{"w", {4}}};
  auto writer = must(BundleWriter::make(&source, options));
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> weights(4, static_cast<float>(i));
    ItemRecord item;
    item.key = "H" + std::to_string(i);
    item.name = "m/" + item.key;
    item.weights = weights;
    must(writer.append(item));
  }
  must(writer.seal());
  must(source.export_file({.pattern = "m/H1"}, folder.path() / "x.tar"));
  Registry target = open_registry(folder.path() / "b");
  must(target.import_file(folder.path() / "x.tar"));
  const ModelFile file = must(target.load(must(target.find("m/H1"))));
  CHECK(must(must(file.tensor("w")).floats())[3] == 1.0F);

  must(target.export_folder(must(target.find("m/H1")), folder.path() / "hub"));
  const ModelFile alone = must(ModelFile::open(folder.path() / "hub" / "model.safetensors"));
  CHECK(must(must(alone.tensor("w")).floats())[0] == 1.0F);
  CHECK(must(parse_json(must(base::read_file(folder.path() / "hub" / "config.json"))))
            .get_string("kind") == "deepar");
}

TEST_CASE("what another host staged is taken in once, with its hash checked") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const Path shared = folder.path() / "shared";
  TestModel model = test_model("m/H1", {1.0F});
  model.version.once = "run/H1";
  const std::string uid = must(stage(shared, model.version));
  must(stage(shared, model.version));  // a retry of the same item with the same bytes
  TestModel other = test_model("m/H2", {2.0F});
  const std::string damaged = must(stage(shared, other.version));
  std::string file;
  for (const auto& entry : std::filesystem::directory_iterator(shared)) {
    if (entry.path().extension() != ".json") {
      const ModelFile content = must(ModelFile::open(entry.path()));
      if (must(must(content.tensor("w")).floats())[0] == 2.0F) {
        file = entry.path().string();
      }
    }
  }
  const std::string good = must(base::read_file(file));
  std::string bad = good;
  bad.back() = 'x';
  must(base::replace_file(file, bad));
  const ImportReport damaged_file = must(registry.import_incoming(shared));
  REQUIRE(damaged_file.conflicts.size() == 1);
  CHECK(damaged_file.conflicts[0].find("stage it again") != std::string::npos);
  CHECK(damaged_file.added == 1);
  CHECK(damaged_file.known == 1);  // the retry
  CHECK(must(registry.count({})) == 1);
  must(base::replace_file(file, good));
  must(registry.import_incoming(shared));
  CHECK(must(registry.count({})) == 2);
  CHECK(must(registry.find("uid:" + damaged)).name == "m/H2");
  CHECK(std::filesystem::is_empty(shared));
  CHECK(must(registry.import_incoming(shared)).added == 0);
  must(registry.load(must(registry.find("m/H1"))));
}

TEST_CASE("a staged version that conflicts, or is damaged, is set aside and stops no other") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  const Path shared = folder.path() / "shared";
  TestModel here = test_model("m/H0", {9.0F});
  here.version.once = "run/H0";
  must(registry.add(here.version));
  std::string conflicting;
  for (int i = 0; i < 6; ++i) {
    TestModel model = test_model("m/H" + std::to_string(i), {static_cast<float>(i)});
    model.version.once = "run/H" + std::to_string(i);
    const std::string uid = must(stage(shared, model.version));
    conflicting = i == 0 ? uid : conflicting;
  }
  const std::string damaged(32, '0');  // the first in order
  must(base::replace_file(shared / (damaged + ".json"), "{\"format\": \"headrace-inc"));

  const ImportReport report = must(registry.import_incoming(shared));
  CHECK(report.added == 5);
  REQUIRE(report.conflicts.size() == 2);
  CHECK(report.conflicts[1].find("run/H0") != std::string::npos);
  CHECK(std::filesystem::exists(shared / (conflicting + ".mismatch")));
  CHECK(std::filesystem::exists(shared / (damaged + ".mismatch")));
  CHECK(must(registry.count({})) == 6);
  CHECK(must(registry.import_incoming(shared)).conflicts.empty());
}

}  // namespace headrace::registry
