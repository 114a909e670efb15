// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/series.h"

#include <doctest/doctest.h>

#include <cmath>

#include "headrace/lake/arrow_c.h"
#include "headrace/lake/test_tables.h"

namespace headrace::lake {

namespace {

const std::string kM4 = HEADRACE_SOURCE_DIR "/examples/m4_hourly/";

Error series_error(const Batch& batch, const SeriesColumns& columns = {}) {
  const base::TestFolder folder;
  put_parquet(folder / "t.parquet", batch);
  const auto rows = read_series(*Table::open((folder / "t.parquet").string()), columns);
  REQUIRE_FALSE(rows.ok());
  CHECK(contains(rows.error().message(), "t.parquet"));
  return rows.error();
}

}  // namespace

TEST_CASE("items, stamps and targets of the M4 lake come as codes and numbers") {
  const Table table = *Table::open(kM4 + "lake");
  const SeriesRows all = *read_series(table);
  CHECK(all.ids.size() == 414);
  CHECK(all.item.size() == 353500);
  CHECK(all.ids[static_cast<size_t>(all.item[0])] == "H1");
  CHECK(all.stamp_us[1] - all.stamp_us[0] == 3600000000);
  CHECK(all.target[0] == 605);
  CHECK(all.zone.empty());

  const SeriesRows two = *read_series(table, {}, {.items = {"H1", "H414"}});
  CHECK(two.ids.size() == 2);
  CHECK(two.item.size() == 700 + 960);
  CHECK(two.stats.row_groups_read == 2);
  const Items items = *list_items(table, "item_id");
  CHECK(items.ids.size() == 414);
  CHECK(items.rows[0] == 700);
}

TEST_CASE("covariates, integer ids, dates and nulls are taken as they are") {
  const base::TestFolder folder;
  put_parquet(folder / "t.parquet",
              {{integers("id", {7, 7, 9}), integers("day", {0, 1, 0}, Type::date),
                nulled(integers("y", {1, 2, 3}), {1}), texts("shop", {"x", std::nullopt, "y"}),
                nulled(reals("price", {0.5, 1.5, 2.5}), {2})}});
  const SeriesRows rows = *read_series(
      *Table::open((folder / "t.parquet").string()),
      {.id = "id", .time = "day", .target = "y", .categories = {"shop"}, .reals = {"price"}});
  CHECK(rows.ids == std::vector<std::string>{"7", "9"});
  CHECK(rows.item == std::vector<int32_t>{0, 0, 1});
  CHECK(rows.stamp_us == std::vector<int64_t>{0, 86400000000, 0});
  CHECK(rows.target[0] == 1);
  CHECK(std::isnan(rows.target[1]));
  CHECK(rows.categories[0].values == std::vector<std::string>{"x", "y"});
  CHECK(rows.categories[0].code == std::vector<int32_t>{0, -1, 1});
  CHECK(std::isnan(rows.reals[0].values[2]));
  const SeriesRows one = *read_series(*Table::open((folder / "t.parquet").string()),
                                      {.id = "", .time = "day", .target = "y"});
  CHECK(one.ids == std::vector<std::string>{""});
}

TEST_CASE("null ids are counted and the first is shown") {
  const Error error =
      series_error({{texts("item_id", {"a", std::nullopt, std::nullopt}),
                     stamps("timestamp", {0, 86400000000, 0}, "UTC"), reals("target", {1, 2, 3})}});
  CHECK(error.code() == Errc::invalid_argument);
  CHECK(contains(error.message(),
                 "2 of 3 rows have no item id (column \"item_id\" is null), the "
                 "first is row 1 with time 1970-01-02T00:00:00Z"));
}

TEST_CASE("missing columns and wrong types are told before anything is read") {
  const Column id = texts("item_id", {"a"});
  const Column time = stamps("timestamp", {0});
  const Column target = reals("target", {1});
  CHECK(series_error({{id, time}}).code() == Errc::not_found);
  CHECK(contains(series_error({{id, time}}).message(), "found: \"item_id\", \"timestamp\""));
  CHECK(contains(series_error({{reals("item_id", {1}), time, target}}).message(),
                 "column \"item_id\" is to be the item id, but it is double"));
  CHECK(contains(series_error({{id, texts("timestamp", {"x"}), target}}).message(),
                 "is to be the time, but it is string"));
  CHECK(contains(series_error({{id, time, texts("target", {"x"})}}).message(),
                 "is to be the target, but it is string"));
  CHECK(contains(series_error({{id, time, target}}, {.reals = {"item_id"}}).message(),
                 "numeric covariate"));
  CHECK(contains(series_error({{id, time, target}}, {.categories = {"target"}}).message(),
                 "categorical covariate"));
  CHECK(
      contains(series_error({{texts("item_id", {}), stamps("timestamp", {}), reals("target", {})}})
                   .message(),
               "the table has no rows"));
}

TEST_CASE("lists are refused in every role of a column but that of paths") {
  Column lists;
  lists.field = {.name = "lst", .type = Type::floats};
  lists.lists = {1.0, 2.0, 3.0};
  lists.ends = {2, 3};
  const Batch batch = {{texts("item_id", {"A", "B"}), stamps("timestamp", {0, 0}),
                        reals("target", {1.0, 2.0}), lists}};
  const auto refused = [](const Error& error, const char* role) {
    CAPTURE(role);
    CAPTURE(error.message());
    CHECK(error.code() == Errc::invalid_argument);
    CHECK(contains(error.message(), "column \"lst\" is to be the " + std::string(role)));
    CHECK(contains(error.message(), "but it is list<"));
  };
  refused(series_error(batch, {.id = "lst"}), "item id");
  refused(series_error(batch, {.time = "lst"}), "time");
  refused(series_error(batch, {.target = "lst"}), "target");
  refused(series_error(batch, {.categories = {"lst"}}), "categorical covariate");
  refused(series_error(batch, {.reals = {"lst"}}), "numeric covariate");

  const base::TestFolder folder;
  put_parquet(folder / "static.parquet", batch);
  const Table table = *Table::open((folder / "static.parquet").string());
  refused(read_static(table, {.id = "lst"}).error(), "item id");
  refused(read_static(table, {.categories = {"lst"}}).error(), "categorical covariate");
  refused(read_static(table, {.reals = {"lst"}}).error(), "numeric covariate");

  const SeriesRows rows = *read_series(table, {.lists = "lst"});
  CHECK(rows.lists == std::vector<float>{1.0F, 2.0F, 3.0F});
  CHECK(rows.list_ends == std::vector<int64_t>{2, 3});
}

TEST_CASE("a CSV of a header alone has no rows, whatever its columns are") {
  const base::TestFolder folder;
  put_file(folder / "t.csv", "item_id,timestamp,target\n");
  const auto table = Table::open((folder / "t.csv").string());
  CHECK(contains(read_series(*table).error().message(), "the table has no rows"));
  CHECK(
      contains(read_static(*table, {.id = "item_id"}).error().message(), "the table has no rows"));
}

TEST_CASE("a target in CSV that is text is told with the cell that made it so") {
  const base::TestFolder folder;
  put_file(folder / "t.csv", "item_id,timestamp,target\na,2015-07-01,1\na,2015-07-02,n.a.\n");
  const auto rows = read_series(*Table::open((folder / "t.csv").string()));
  CHECK(contains(rows.error().message(), "but it is text, because of \"n.a.\" in "));
  CHECK(contains(rows.error().message(), "t.csv:3; expected numbers"));
}

TEST_CASE("batches cross the Arrow C interface both ways without change") {
  const Batch batch{{texts("s", {"a", std::nullopt, "a"}), nulled(integers("i", {1, 2, 3}), {1}),
                     reals("r", {0.5, -1, 2}), stamps("t", {0, 1, 2}, "Europe/Berlin"),
                     integers("d", {0, 1, 2}, Type::date),
                     integers("b", {1, 0, 1}, Type::boolean)}};
  ArrowArrayStream stream = {};
  REQUIRE(export_batch(batch, &stream).ok());
  const Batch back = *import_batch(&stream);
  CHECK((stream.release == nullptr));
  CHECK(rows_as_text(back) == rows_as_text(batch));
  CHECK(back.columns[3].field.zone == "Europe/Berlin");
  CHECK(import_batch(&stream).error().code() == Errc::invalid_argument);

  const Table table = *Table::open(kM4 + "lake");
  REQUIRE(export_stream(*table.scan(), &stream).ok());
  const auto reader = *import_stream(&stream);
  const SeriesRows rows = *read_series(*reader, "stream");
  CHECK(rows.ids.size() == 414);
  CHECK(rows.target.size() == 353500);
}

TEST_CASE("a stream that nobody reads is released with its reader") {
  const Table table = *Table::open(kM4 + "lake");
  ArrowArrayStream stream = {};
  REQUIRE(export_stream(*table.scan(), &stream).ok());
  REQUIRE((stream.release != nullptr));
  stream.release(&stream);
  CHECK((stream.release == nullptr));
}

}  // namespace headrace::lake
