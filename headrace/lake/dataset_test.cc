// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/dataset.h"

#include <doctest/doctest.h>

#include "headrace/lake/test_tables.h"

namespace headrace::lake {

namespace {

/// As gluonts.dataset.common.TrainDatasets.save (GluonTS 0.17) writes it.
constexpr std::string_view kMetadata =
    R"({"freq": "h", "target": null, "feat_static_cat": [{"name": "shop", "cardinality": "3"}], )"
    R"("feat_static_real": [], "feat_dynamic_real": [], "feat_dynamic_cat": [], )"
    R"("prediction_length": 6})"
    "\n";

struct Folder {
  base::TestFolder folder;

  Folder() {
    std::filesystem::create_directories(folder / "m4/train");
    std::filesystem::create_directories(folder / "m4/test");
    put_file((folder / "m4/train/data.json").string(), "{}\n");
  }
  std::string at(const char* name) const { return (folder / name).string(); }
  void metadata(std::string_view text, const char* name = "m4/metadata.json") {
    put_file(at(name), text);
  }
  std::string error(std::string_view text) {
    metadata(text);
    const auto found = find_dataset(at("m4"));
    REQUIRE_FALSE(found.ok());
    CHECK(found.error().code() == Errc::invalid_argument);
    return found.error().message();
  }
};

}  // namespace

TEST_CASE("a data set is found by its root, its parts and their files") {
  Folder folder;
  folder.metadata(kMetadata);
  for (const char* name : {"m4", "m4/", "m4/train", "m4/test/", "m4/train/data.json"}) {
    CAPTURE(name);
    const auto found = *find_dataset(folder.at(name));
    REQUIRE(found.has_value());
    CHECK(found->metadata == folder.at("m4/metadata.json"));
    CHECK(found->train == folder.at("m4/train"));
    CHECK(found->test == folder.at("m4/test"));
    CHECK(found->at_root == !contains(std::string(name), "t"));
    CHECK(found->frequency == "h");
    CHECK(found->horizon == 6);
    CHECK(found->cardinalities == std::vector<int64_t>{3});
  }
}

TEST_CASE("a folder that is no data set is none") {
  Folder folder;
  CHECK_FALSE(find_dataset(folder.at("m4"))->has_value());  // no metadata
  folder.metadata(kMetadata, "metadata.json");              // no train/ beside it
  CHECK_FALSE(find_dataset((folder.folder.path()).string())->has_value());
  CHECK_FALSE(find_dataset(folder.at("nothing"))->has_value());
  CHECK_FALSE(find_dataset(folder.at("m4/*.json"))->has_value());
}

TEST_CASE("a metadata file of something else makes no data set of the folders beside it") {
  for (const std::string_view text :
       {"{}", "[1]", R"({"license": "CC0", "rows": 7})", R"({"freq": 5})", "not JSON"}) {
    for (const char* name : {"m4/metadata.json", "m4/metadata", "m4/metadata/metadata.json"}) {
      CAPTURE(text);
      CAPTURE(name);
      Folder folder;
      std::filesystem::create_directories(base::Path(folder.at(name)).parent_path());
      folder.metadata(text, name);
      for (const char* part : {"m4/train", "m4/test", "m4/train/data.json"}) {
        const auto found = find_dataset(folder.at(part));
        REQUIRE(found.ok());
        CHECK_FALSE(found->has_value());
      }
    }
  }
}

TEST_CASE("a root whose metadata is of something else is the table that it is without") {
  Folder folder;
  folder.metadata(R"({"license": "CC0"})");
  CHECK_FALSE(find_dataset(folder.at("m4")).ok());  // metadata.json itself would be of the table
  put_file(folder.at("m4/train/a.csv"), "item_id,timestamp,target\n");
  CHECK_FALSE(find_dataset(folder.at("m4"))->has_value());
}

TEST_CASE("metadata that is named takes the place of what lies beside train/") {
  Folder folder;
  folder.metadata("not JSON");
  put_file(folder.at("other.json"), R"({"freq": "D", "prediction_length": 3})");
  for (const char* name : {"m4", "m4/train", "m4/train/data.json"}) {
    CAPTURE(name);
    const auto found = find_dataset(folder.at(name), folder.at("other.json"));
    REQUIRE(found.ok());
    REQUIRE(found->has_value());
    CHECK((*found)->metadata == folder.at("other.json"));
    CHECK((*found)->frequency == "D");
    CHECK((*found)->train == folder.at("m4/train"));
    CHECK((*found)->at_root == !contains(std::string(name), "t"));
  }
  const auto elsewhere = find_dataset(folder.at("other.json"), folder.at("other.json"));
  CHECK((*elsewhere)->horizon == 3);
  CHECK((*elsewhere)->train.empty());
  const auto wrong = find_dataset(folder.at("m4/train"), folder.at("m4/metadata.json"));
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().code() == Errc::invalid_argument);
}

TEST_CASE("the file may be called metadata, or lie in a folder of that name") {
  for (const char* name : {"m4/metadata", "m4/metadata/metadata.json"}) {
    Folder folder;
    std::filesystem::create_directories(base::Path(folder.at(name)).parent_path());
    folder.metadata(R"({"freq": "D", "prediction_length": null})", name);
    const auto found = *find_dataset(folder.at("m4"));
    REQUIRE(found.has_value());
    CHECK(found->frequency == "D");
    CHECK(found->horizon == 0);
    CHECK(read_dataset(folder.at(name))->frequency == "D");
    CHECK(read_dataset(folder.at("m4"))->frequency == "D");
  }
}

TEST_CASE("what metadata says wrongly is told by member and value") {
  Folder folder;
  CHECK(contains(folder.error("{}"), "metadata.json: no text \"freq\" is in it"));
  CHECK(contains(folder.error("[1]"), "no text \"freq\""));
  CHECK(contains(folder.error(R"({"freq": "h", "prediction_length": 0})"),
                 "\"prediction_length\" is 0; a whole number from 1 is needed"));
  CHECK(contains(folder.error(R"({"freq": "h", "feat_static_cat": [{"cardinality": "x"}]})"),
                 "\"feat_static_cat[0]\" is {\"cardinality\":\"x\"}; an object with"));
  CHECK(contains(folder.error("{\"freq\""), "metadata.json"));
  const std::string members(1000, 'x');
  CHECK(folder.error(R"({"freq": "h", "feat_static_cat": ")" + members + "\"}").size() < 300);
  const auto absent = read_dataset(folder.at("m4/train"));
  REQUIRE_FALSE(absent.ok());
  CHECK(absent.error().code() == Errc::not_found);
  CHECK(read_dataset(folder.at("nothing")).error().code() == Errc::not_found);
}

}  // namespace headrace::lake
