// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/series_table.h"

#include <doctest/doctest.h>

#include <string>

#include "headrace/jobs/evaluation.h"
#include "headrace/jobs/forecast_store.h"
#include "headrace/jobs/series_cache.h"
#include "headrace/lake/test_tables.h"

namespace headrace::jobs {

namespace {

using lake::put_file;

/// "2026-01-05" is a Monday.
std::string date(int day) {
  return "2026-01-" + std::string(day < 10 ? "0" : "") + std::to_string(day);
}

/// Shops A and C are open every day, B is shut at weekends, D has one row.
std::string shops() {
  std::string text = "item_id,timestamp,target\n";
  for (int day = 5; day < 26; ++day) {
    const std::string stamp = date(day) + "," + std::to_string(day * day % 11) + "\n";
    text += "A," + stamp + "C," + stamp;
    text += (day - 5) % 7 < 5 ? "B," + stamp : "";
  }
  return text + "D,2026-01-05,1\n";
}

std::string as_text(const forecast::Series& series) {  // NaN equals NaN here
  std::string text;
  for (const double value : series.target) {
    text += std::to_string(value) + " ";
  }
  return text;
}

TableSpec at(const base::Path& path) {
  TableSpec spec;
  spec.url = path.string();
  return spec;
}

}  // namespace

TEST_CASE("the frequency is that of the whole table, not of one item") {
  const base::TestFolder folder;
  put_file(folder.path() / "t.csv", shops());
  TableSpec spec = at(folder.path() / "t.csv");
  CHECK(load_series(spec, {"B"})->set.frequency.name() == "B");
  CHECK(table_frequency(spec)->name() == "D");
  spec.frequency = "W";
  CHECK(table_frequency(spec)->name() == "W");
}

TEST_CASE("a text table is parsed once for all its items, and again when it has changed") {
  const base::TestFolder folder;
  const base::Path path = folder.path() / "t.csv";
  put_file(path, shops());
  TableSpec spec = at(path);
  spec.frequency = "D";
  SeriesCache cache;
  const auto first = cache.load(spec, "A");
  REQUIRE(first.ok());
  CHECK(first->bytes_read > 0);
  for (const char* item : {"A", "B", "C", "D"}) {
    CAPTURE(item);
    const auto next = cache.load(spec, item);
    const auto alone = load_series(spec, {item});
    REQUIRE(next.ok());
    CHECK(next->bytes_read == 0);
    CHECK(as_text(next->set.series.at(0)) == as_text(alone->set.series.at(0)));
    CHECK(next->set.series[0].start_us == alone->set.series[0].start_us);
    CHECK(next->snapshot.digest == alone->snapshot.digest);
  }
  CHECK(cache.load(spec, "E").error().code() == Errc::not_found);

  put_file(path, shops() + "E,2026-01-05,1\n");
  CHECK(cache.load(spec, "E")->bytes_read > 0);
  CHECK(cache.load(spec, "E")->bytes_read == 0);
  SeriesCache small(8);  // what is too large is read for each item
  CHECK(small.load(spec, "A")->bytes_read > 0);
  CHECK(small.load(spec, "A")->bytes_read > 0);
}

TEST_CASE("a folder of JSON lines has stamps where the frequency is told, else asks for it") {
  const base::TestFolder folder;
  put_file(folder.path() / "a.jsonl",
           R"({"item_id": "A", "start": "2026-01-05", "target": [1, 2, 3]})"
           "\n");
  TableSpec spec = at(folder.path());
  CHECK(lake::contains(load_series(spec).error().message(), "say its frequency"));
  spec.frequency = "D";
  const auto table = load_series(spec);
  REQUIRE(table.ok());
  CHECK(table->set.series.at(0).length() == 3);
}

TEST_CASE("files of mixed zones or columns are read where that is allowed") {
  const base::TestFolder folder;
  put_file(folder.path() / "a.csv",
           "item_id,timestamp,target\nA,2026-01-05T00:00:00Z,1\nA,2026-01-05T01:00:00Z,2\n");
  put_file(
      folder.path() / "b.csv",
      "item_id,timestamp,target,price\nB,2026-01-05T00:00:00,1,5\nB,2026-01-05T01:00:00,2,5\n");
  TableSpec spec = at(folder.path());
  CHECK(load_series(spec).error().code() == Errc::mismatch);
  spec.zone = "UTC";
  CHECK(load_series(spec).error().code() == Errc::mismatch);
  spec.allow_missing_columns = true;
  const auto table = load_series(spec);
  REQUIRE(table.ok());
  CHECK(table->set.series.size() == 2);
}

TEST_CASE("a season that training was told is that of the evaluation too") {
  const base::TestFolder folder;
  put_file(folder.path() / "past.csv", shops());
  std::string future = "item_id,timestamp,target\n";
  for (int day = 26; day < 31; ++day) {
    future += "A," + date(day) + "," + std::to_string(day * day % 5) + "\n";
  }
  put_file(folder.path() / "future.csv", future);
  TableSpec past = at(folder.path() / "past.csv");
  past.frequency = "D";
  TableSpec came = at(folder.path() / "future.csv");
  came.frequency = "D";
  forecast::TrainOptions options;
  options.horizon = 5;
  options.season = 7;  // of days it is 1 by frequency
  const forecast::Series series = load_series(past, {"A"})->set.series.at(0);
  const forecast::Model naive = forecast::fallback_model(series, options);
  ItemForecast item;
  item.forecast = forecast::predict(naive, {&series, 1}, {})->items.at(0);
  // Its median is that of the errors seen; a point forecast is what the naive method is judged by.
  for (size_t i = 0; i < item.forecast.quantiles.size(); ++i) {
    item.forecast.quantiles[i] = item.forecast.mean[i % 5];
  }
  item.winner = "seasonal_naive";
  item.season = naive.spec.season;
  {
    auto writer = ForecastWriter::open(folder.path() / "run");
    REQUIRE(writer.ok());
    REQUIRE(writer->append(item).ok());
  }

  const auto summary = evaluate_run(folder.path() / "run", past, came);
  REQUIRE(summary.ok());
  CHECK(summary->at("model").at("mase").number() ==
        summary->at("seasonal_naive").at("mase").number());
  CHECK(summary->at("model").at("smape").number() ==
        summary->at("seasonal_naive").at("smape").number());
}

}  // namespace headrace::jobs
