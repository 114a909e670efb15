// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/static_table.h"

#include <doctest/doctest.h>

#include <string>

#include "headrace/jobs/series_cache.h"
#include "headrace/jobs/series_table.h"
#include "headrace/lake/test_tables.h"

namespace headrace::jobs {

namespace {

using lake::put_file;

/// Items a, b, c of four days each, with the given cells behind the target.
std::string long_table(const std::string& names, const std::string (&cells)[3]) {
  std::string text = "item_id,timestamp,target" + names + "\n";
  for (int day = 1; day <= 4; ++day) {
    for (int i = 0; i < 3; ++i) {
      text += std::string(1, "abc"[i]) + ",2026-01-0" + std::to_string(day) + "," +
              std::to_string(day * 3 + i) + cells[i] + "\n";
    }
  }
  return text;
}

struct Lake {
  base::TestFolder folder;
  TableSpec spec;

  Lake() {
    put_file(at("t.csv"), long_table(",promo", {",0.5", ",0.25", ",1"}));
    spec.url = at("t.csv");
    spec.static_table = at("items.csv");
    spec.categories = {"region", "kind"};
    spec.static_reals = {"size", "age"};
    spec.dynamic_reals = {"promo"};
  }
  std::string at(const char* name) const { return (folder / name).string(); }
  Error error(std::string_view rows, const std::vector<std::string>& items = {}) {
    put_file(at("items.csv"), rows);
    auto loaded = load_series(spec, items);
    REQUIRE_FALSE(loaded.ok());
    CHECK(check_mentions(loaded.error(), "items.csv"));
    return std::move(loaded).error();
  }
  static bool check_mentions(const Error& error, const char* text) {
    return lake::contains(error.message(), text);
  }
};

void check_equal(const forecast::SeriesSet& a, const forecast::SeriesSet& b) {
  REQUIRE(a.series.size() == b.series.size());
  for (size_t i = 0; i < a.series.size(); ++i) {
    CHECK(a.series[i].id == b.series[i].id);
    CHECK(a.series[i].target == b.series[i].target);
    CHECK(a.series[i].categories == b.series[i].categories);
    CHECK(a.series[i].static_reals == b.series[i].static_reals);
    CHECK(a.series[i].dynamic_reals == b.series[i].dynamic_reals);
  }
}

}  // namespace

TEST_CASE("static covariates of a second table are as if they stood in the first") {
  Lake lake;
  // Another order of items, an item too many, and columns that nobody asks for.
  put_file(lake.at("items.csv"),
           "note,size,item_id,kind,age,region\n"
           "x,3.5,c,1,7,south\nx,9,z,9,9,west\nx,1.5,a,2,5,north\nx,2.5,b,1,6,south\n");
  put_file(lake.at("inline.csv"),
           long_table(",region,kind,size,age,promo",
                      {",north,2,1.5,5,0.5", ",south,1,2.5,6,0.25", ",south,1,3.5,7,1"}));
  TableSpec inline_spec = lake.spec;
  inline_spec.url = lake.at("inline.csv");
  inline_spec.static_table = "";

  check_equal(load_series(lake.spec)->set, load_series(inline_spec)->set);
  check_equal(load_series(lake.spec, {"b"})->set, load_series(inline_spec, {"b"})->set);
  CHECK(check_table(lake.spec).ok());
  CHECK(list_items(lake.spec)->size() == 3);
  SeriesCache cache;
  check_equal(cache.load(lake.spec, "c")->set, load_series(inline_spec, {"c"})->set);

  // Some of the columns in the one, some in the other.
  put_file(lake.at("t.csv"),
           long_table(",kind,promo,size", {",2,0.5,1.5", ",1,0.25,2.5", ",1,1,3.5"}));
  put_file(lake.at("items.csv"), "item_id,age,region\nb,6,south\nc,7,south\na,5,north\n");
  check_equal(load_series(lake.spec)->set, load_series(inline_spec)->set);
}

TEST_CASE("a cached table is read again when its second table has changed") {
  Lake lake;
  lake.spec.categories = {"region"};
  lake.spec.static_reals = {};
  put_file(lake.at("items.csv"), "item_id,region\na,north\nb,north\nc,north\n");
  SeriesCache cache;
  CHECK(cache.load(lake.spec, "a")->set.series[0].categories[0] == "north");
  put_file(lake.at("items.csv"), "item_id,region\na,southwest\nb,north\nc,north\n");
  CHECK(cache.load(lake.spec, "a")->set.series[0].categories[0] == "southwest");
}

TEST_CASE("of sorted Parquet with a second table that one is read once, not once per item") {
  Lake lake;
  lake.spec.categories = {"region"};
  lake.spec.static_reals = {"size"};
  lake.spec.dynamic_reals = {};
  lake.spec.url = lake.at("t.parquet");
  lake::put_parquet(lake.at("t.parquet"), *lake::Table::open(lake.at("t.csv"))->read(),
                    {.group_by = "item_id"});
  const auto items = [&](const char* region) {
    std::string text = "item_id,region,size\n";
    for (int i = 0; i < 1000; ++i) {
      text += (i < 3 ? std::string(1, "abc"[i]) : "other" + std::to_string(i)) + "," + region +
              std::to_string(i) + ",2.5\n";
    }
    put_file(lake.at("items.csv"), text);
    return std::ssize(text);
  };
  const int64_t bytes = items("north");
  SeriesCache cache;
  const auto first = cache.load(lake.spec, "a");
  CHECK(first->bytes_read > bytes);
  CHECK(first->set.series[0].categories[0] == "north0");
  for (const char* item : {"b", "c", "a"}) {
    const auto next = cache.load(lake.spec, item);
    CHECK(next->bytes_read > 0);
    CHECK(next->bytes_read < bytes);
    check_equal(next->set, load_series(lake.spec, {item})->set);
  }
  items("southwest");
  CHECK(cache.load(lake.spec, "b")->set.series[0].categories[0] == "southwest1");

  SeriesCache small(1000);  // rows that take more are read for each item
  CHECK(small.load(lake.spec, "a")->bytes_read > bytes);
  CHECK(small.load(lake.spec, "b")->bytes_read > bytes);
}

TEST_CASE("what a second table lacks or has twice is told") {
  Lake lake;
  const std::string header = "item_id,region,kind,size,age\n";
  const std::string b = "b,south,1,2.5,6\n";

  const Error missing = lake.error(header + b);
  CHECK(missing.code() == Errc::not_found);
  CHECK(Lake::check_mentions(missing, "2 of 3 items of "));
  CHECK(Lake::check_mentions(missing, "have no row: \"a\", \"c\"; add one for each"));
  CHECK(load_series(lake.spec, {"b"}).ok());  // of this item there is one

  const Error twice = lake.error(header + b + "a,south,1,2.5,6\nc,south,1,2.5,6\n" + b);
  CHECK(twice.code() == Errc::invalid_argument);
  CHECK(Lake::check_mentions(twice, "1 items have more than one row: \"b\"; a table of static"));
  CHECK(Lake::check_mentions(lake.error(header + b + ",south,1,2,3\n"),
                             "column \"item_id\" is null"));

  const Error unknown = lake.error("item_id,region,size,age\n");
  CHECK(unknown.code() == Errc::not_found);
  CHECK(Lake::check_mentions(unknown, "t.csv: there is no column \"kind\"; found: \"item_id\""));
  CHECK(Lake::check_mentions(unknown, "nor has the static table"));
  CHECK_FALSE(check_table(lake.spec).ok());

  const Error clash = [&] {
    put_file(lake.at("t.csv"), long_table(",promo,size", {",0.5,1", ",0.25,1", ",1,1"}));
    return lake.error(header);
  }();
  CHECK(clash.code() == Errc::invalid_argument);
  CHECK(Lake::check_mentions(clash, "column \"size\" is in "));
  CHECK(Lake::check_mentions(clash, "rename or leave out one of them"));
}

TEST_CASE("a second table without ids, of wrong types or not there at all is told") {
  Lake lake;
  CHECK(Lake::check_mentions(lake.error("shop,region,kind,size,age\n"), "holds the item ids"));
  CHECK(Lake::check_mentions(lake.error("item_id,region,kind,size,age\na,x,1,big,5\n"),
                             "\"size\" is to be the numeric covariate"));
  lake.spec.static_table = lake.at("none.csv");
  const auto absent = load_series(lake.spec);
  REQUIRE_FALSE(absent.ok());
  CHECK(absent.error().code() == Errc::not_found);
  CHECK(Lake::check_mentions(absent.error(), "static table"));
}

}  // namespace headrace::jobs
