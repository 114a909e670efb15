// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "headrace/base/test_folder.h"
#include "headrace/jobs/series_table.h"
#include "headrace/lake/test_tables.h"

namespace headrace::jobs {

namespace {

using base::TestFolder;

constexpr int64_t kHour = int64_t{3600} * 1'000'000;
constexpr int64_t kStart = 1'767'225'600'000'000;  // 2026-01-01

/// 30 hours of the items a, b and c: 0, 1, ... for a, 100, 101, ... for b, 200, ... for c.
lake::Batch three_items(const std::string& zone = {}) {
  std::vector<std::optional<std::string>> ids;
  std::vector<int64_t> stamps;
  std::vector<double> values;
  for (const auto& [id, base] : {std::pair("a", 0), std::pair("b", 100), std::pair("c", 200)}) {
    for (int k = 0; k < 30; ++k) {
      ids.emplace_back(id);
      stamps.push_back(kStart + k * kHour);
      values.push_back(base + k);
    }
  }
  return {{lake::texts("item_id", ids), lake::stamps("timestamp", stamps, zone),
           lake::reals("target", values)}};
}

TableSpec table_at(const base::Path& path) {
  TableSpec spec;
  spec.url = path.string();
  return spec;
}

bool mentions(const Error& error, std::string_view part) {
  return error.message().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("one item of a table sorted by item is read out of its row group alone") {
  const TestFolder folder;
  lake::ParquetOptions by_item;
  by_item.group_by = "item_id";
  lake::put_parquet(folder / "t.parquet", three_items(), by_item);
  const TableSpec spec = table_at((folder / "t.parquet"));

  const auto all = load_series(spec);
  const auto one = load_series(spec, {"b"});

  REQUIRE(all.ok());
  CHECK(all->set.series.size() == 3);
  CHECK(all->row_groups_read == 3);
  REQUIRE(one.ok());
  REQUIRE(one->set.series.size() == 1);
  CHECK(one->set.series[0].id == "b");
  CHECK(one->set.series[0].start_us == kStart);
  CHECK(one->set.series[0].target.front() == 100.0);
  CHECK(one->set.series[0].target.back() == 129.0);
  CHECK(one->set.frequency.name() == "h");
  CHECK(one->row_groups_read == 1);
  CHECK(one->row_groups_total == 3);
  CHECK(one->snapshot.rows == 90);
  CHECK(one->snapshot.format == "parquet");
  CHECK(!one->snapshot.digest.empty());
  CHECK(list_items(spec).value() == std::vector<std::string>{"a", "b", "c"});
  CHECK(load_series(spec, {"d"}).error().code() == Errc::not_found);
}

TEST_CASE("usual names of columns are found, others are told, absent ones listed") {
  const TestFolder folder;
  const base::Path path = folder / "t.csv";
  lake::put_file(path, "unique_id,ds,y\na,2026-01-01,1\na,2026-01-02,2\na,2026-01-03,3\n");
  TableSpec spec = table_at(path);
  CHECK(check_table(spec).ok());
  CHECK(load_series(spec)->set.series.at(0).target == std::vector<double>{1, 2, 3});

  lake::put_file(path, "unique_id,ds,sold\na,2026-01-01,1\na,2026-01-02,2\n");
  const auto absent = check_table(spec);
  REQUIRE(!absent.ok());
  CHECK(absent.error().code() == Errc::not_found);
  CHECK(mentions(absent.error(), "no column \"target\"; found: \"unique_id\", \"ds\", \"sold\""));
  CHECK(mentions(absent.error(), "say which one holds the values with target (--target)"));
  CHECK(load_series(spec).error().message() == absent.error().message());
  spec.target = "sold";
  CHECK(check_table(spec).ok());
  spec.id = "shop";
  CHECK(mentions(list_items(spec).error(), "no column \"shop\""));
}

TEST_CASE("what no item can be read from is told without reading") {
  const TestFolder folder;
  const base::Path path = folder / "t.parquet";
  const TableSpec spec = table_at(path);
  lake::put_parquet(path, three_items("Europe/Berlin"));
  CHECK(mentions(check_table(spec).error(), "--zone UTC"));
  CHECK(load_series(spec).error().code() == Errc::invalid_argument);
  lake::put_parquet(path, three_items("UTC"));
  CHECK(check_table(spec).ok());

  lake::Batch texts = three_items();
  std::swap(texts.columns[0].field.name, texts.columns[2].field.name);
  lake::put_parquet(path, texts);
  CHECK(check_table(spec).error().code() == Errc::invalid_argument);

  lake::put_parquet(path, {{lake::texts("item_id", {}), lake::stamps("timestamp", {}),
                            lake::reals("target", {})}});
  CHECK(check_table(spec).error().code() == Errc::not_found);
  CHECK(mentions(list_items(spec).error(), "holds no items: it has no rows"));
}

TEST_CASE("items are listed by falling length, those of one length as in the table") {
  const TestFolder folder;
  lake::put_file(folder / "t.csv",
                 "item_id,timestamp,target\nd,2026-01-01,1\nc,2026-01-01,1\nc,2026-01-02,1\n"
                 "b,2026-01-01,1\na,2026-01-01,1\na,2026-01-02,1\na,2026-01-03,1\n");
  CHECK(list_items(table_at(folder / "t.csv")).value() ==
        std::vector<std::string>{"a", "c", "d", "b"});
}

TEST_CASE("what is wrong with one item leaves the others") {
  const TestFolder folder;
  lake::Batch rows = three_items();
  rows.columns[1].integers[35] = rows.columns[1].integers[34];  // b, twice the same hour
  lake::put_parquet(folder / "t.parquet", rows);
  TableSpec spec = table_at((folder / "t.parquet"));

  const auto table = load_series(spec);
  REQUIRE(table.ok());
  CHECK(table->set.series.size() == 2);
  REQUIRE(table->set.errors.size() == 1);
  CHECK(table->set.errors[0].item == "b");
  CHECK(mentions(table->set.errors[0].error, "(rows 34 and 35 of those read)"));

  spec.aggregate = "sum";
  CHECK(load_series(spec)->set.series.at(1).target.at(4) == 104.0 + 105.0);
  spec.aggregate = "guess";
  CHECK(load_series(spec).error().code() == Errc::invalid_argument);
}

TEST_CASE("tables without a stamp per value need a frequency") {
  const TestFolder folder;
  lake::put_file(folder / "t.jsonl",
                 "{\"item_id\": \"a\", \"start\": \"2026-01-01\", \"target\": [1, 2]}\n");
  TableSpec spec = table_at((folder / "t.jsonl"));
  CHECK(mentions(load_series(spec).error(), "say its frequency"));
  spec.frequency = "D";
  const auto table = load_series(spec);
  REQUIRE(table.ok());
  CHECK(table->set.series.at(0).stamp(1) == kStart + 24 * kHour);
}

}  // namespace headrace::jobs
