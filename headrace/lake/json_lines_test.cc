// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "headrace/lake/table.h"
#include "headrace/lake/test_tables.h"

namespace headrace::lake {

namespace {

using Lines = std::vector<std::string>;

struct JsonFolder {
  base::TestFolder folder;
  std::string url = (folder / "t.jsonl").string();

  Lines read(std::string_view text, const TableOptions& options = {}) {
    put_file(url, text);
    const auto table = Table::open(url, options);
    REQUIRE_MESSAGE(table.ok(), table.error().message());
    return rows_as_text(*table->read());
  }
  Error error(std::string_view text) {
    put_file(url, text);
    return error_of(url);
  }
};

constexpr std::string_view kTwo =
    R"({"start": "2015-07-01 00:00:00", "target": [1, "NaN", null, 4.5], "item_id": "A"})"
    "\n\n"
    R"({"target": [NaN, 2], "start": "2015-07-02", "item_id": 7, "name": "NaN \" NaN"})"
    "\n";

}  // namespace

TEST_CASE("series of a GluonTS data set become rows with a position") {
  JsonFolder json;
  CHECK(json.read(kTwo) == Lines{"A|0|2015-07-01T00:00:00|1", "A|1|2015-07-01T00:00:00|null",
                                 "A|2|2015-07-01T00:00:00|null", "A|3|2015-07-01T00:00:00|4.5",
                                 "7|0|2015-07-02T00:00:00|null", "7|1|2015-07-02T00:00:00|2"});
  const TableOptions hourly{
      .stamp = [](int64_t start, int64_t index) { return start + index * 3600000000; }};
  put_file(json.url, kTwo);
  const Table table = *Table::open(json.url, hourly);
  CHECK(table.rows() == 6);
  CHECK(rows_as_text(*table.read({.columns = {"item_id", "timestamp"}}))[5] ==
        "7|2015-07-02T01:00:00");
  CHECK(table.read({.predicate = {{"item_id", Op::equal, {"A"}}}})->rows() == 4);
  CHECK(table.read({.batch_rows = 1})->rows() == 6);
}

TEST_CASE("covariates are columns; dynamic ones may go on behind the target") {
  JsonFolder json;
  const Lines rows = json.read(
      R"({"start":"2015-07-01","target":[1,2],"feat_static_cat":[3,0],"feat_static_real":[0.5],)"
      R"("feat_dynamic_real":[[10,11,12],[20,21,null]]})"
      "\n");
  CHECK(rows == Lines{"0|0|2015-07-01T00:00:00|1|3|0|0.5|10|20",
                      "0|1|2015-07-01T00:00:00|2|3|0|0.5|11|21",
                      "0|2|2015-07-01T00:00:00|null|3|0|0.5|12|null"});
}

TEST_CASE("series without an id are numbered over all files") {
  JsonFolder json;
  const std::string line = R"({"start":"2015-07-01","target":[1]})";
  put_file(json.folder / "lake/a.jsonl", line + "\n" + line);
  put_file(json.folder / "lake/b.json", line + "\r\n");
  const Table table = *Table::open((json.folder / "lake").string());
  CHECK(rows_as_text(*table.read({.columns = {"item_id"}})) == Lines{"0", "1", "2"});
}

TEST_CASE("what is wrong in a line is told with file, line and member") {
  JsonFolder json;
  const auto message = [&json](const std::string& second) {
    return json
        .error(R"({"start":"2015-07-01","target":[1],"feat_static_cat":[1]})"
               "\n" +
               second + "\n")
        .message();
  };
  CHECK(contains(message("{\"start\": "), "t.jsonl:2"));
  CHECK(contains(message("[1]"), "expected an object"));
  CHECK(contains(message(R"({"target":[1]})"), "t.jsonl:2: \"start\": the member is missing"));
  CHECK(
      contains(message(R"({"start":"yesterday","target":[1]})"), "\"yesterday\" is no time stamp"));
  CHECK(contains(message(R"({"start":"2015-07-01"})"), "\"target\": the member is missing"));
  CHECK(contains(message(R"({"start":"2015-07-01","target":[1,"x"]})"),
                 "\"target\": value 1 is \"x\"; expected a number"));
  CHECK(contains(message(R"({"start":"2015-07-01","target":[1],"item_id":null})"),
                 "\"item_id\": it is null"));
  CHECK(contains(message(R"({"start":"2015-07-01","target":[1]})"),
                 "\"feat_static_cat\" has 0 values, the first line has 1"));
  CHECK(contains(message(R"({"start":"2015-07-01","target":[1],"feat_static_cat":[1.5]})"),
                 "1.5 is no whole number"));
  CHECK(contains(message(R"({"start":"2015-07-01","target":[1,2],"feat_dynamic_real":[[1]]})"),
                 "\"feat_dynamic_real\": row 0 has 1 values, the target has 2"));
  CHECK(contains(message(R"({"start":"2015-07-01T00:00Z","target":[1],"feat_static_cat":[1]})"),
                 "\"start\": its zone is UTC, the first line's is none"));
  CHECK(json.error("{").code() == Errc::invalid_argument);
}

TEST_CASE("an empty file is a table without rows") {
  JsonFolder json;
  CHECK(json.read("\n").empty());
}

}  // namespace headrace::lake
