// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/series_table.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "headrace/jobs/actuals.h"
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

/// Items "0" ... of `steps` hours each, sorted by item or by time.
lake::Batch hourly_table(int items, int steps, bool by_item) {
  std::vector<std::optional<std::string>> ids;
  std::vector<int64_t> times;
  std::vector<double> values;
  for (int row = 0; row < items * steps; ++row) {
    const int item = by_item ? row / steps : row % items;
    const int step = by_item ? row % steps : row / items;
    ids.emplace_back(std::to_string(item));
    times.push_back(int64_t{3600} * 1000000 * step);
    values.push_back(item * 1000 + step * step % 17);
  }
  lake::Batch out;
  out.columns = {lake::texts("item_id", ids), lake::stamps("timestamp", times),
                 lake::reals("target", values)};
  return out;
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

TEST_CASE("Parquet that is not sorted by item is read whole once items have cost as much twice") {
  const base::TestFolder folder;
  const base::Path path = folder.path() / "t.parquet";
  const int items = 20;
  lake::put_parquet(path, hourly_table(items, 40, false), {.row_group_rows = 100});
  SeriesCache cache;
  int64_t rows = 0;
  int64_t reads = 0;
  for (int item = 0; item < items; ++item) {
    CAPTURE(item);
    const auto next = cache.load(at(path), std::to_string(item));
    const auto alone = load_series(at(path), {std::to_string(item)});
    REQUIRE(next.ok());
    CHECK(as_text(next->set.series.at(0)) == as_text(alone->set.series.at(0)));
    CHECK(next->set.frequency.name() == "h");
    CHECK(next->snapshot.digest == alone->snapshot.digest);
    rows += next->row_groups_read;
    reads += next->bytes_read > 0 ? 1 : 0;
  }
  // 8 row groups hold every item: two items alone, then all of them.
  CHECK(rows == 16);
  CHECK(reads == 3);
  CHECK(cache.load(at(path), "x").error().code() == Errc::not_found);

  SeriesCache small(20 * 40 * 8);  // the series alone would fit
  for (int item = 0; item < 4; ++item) {
    CHECK(small.load(at(path), std::to_string(item))->row_groups_read == 8);
  }
}

TEST_CASE("of Parquet that is sorted by item only the item's row groups are read") {
  const base::TestFolder folder;
  const base::Path path = folder.path() / "t.parquet";
  lake::put_parquet(path, hourly_table(20, 40, true),
                    {.row_group_rows = 1000, .group_by = "item_id"});
  SeriesCache cache;
  for (int item = 0; item < 20; ++item) {
    CHECK(cache.load(at(path), std::to_string(item))->row_groups_read == 1);
  }
}

TEST_CASE("a damaged row group fails its own items only, kept table or not") {
  const base::TestFolder folder;
  const base::Path path = folder.path() / "t.parquet";
  lake::put_parquet(path, hourly_table(4, 500, true),
                    {.row_group_rows = 1000, .compression = "none", .group_by = "item_id"});
  std::string bytes = *base::read_file(path);
  for (size_t i = 4; i < bytes.size() / 16; ++i) {
    bytes[i] = static_cast<char>(bytes[i] ^ 0x55);
  }
  put_file(path, bytes);
  TableSpec spec = at(path);
  spec.frequency = "h";  // to find it out, all of the table must be readable
  SeriesCache cache;
  for (int turn = 0; turn < 10; ++turn) {  // past the point where the whole table is tried
    CHECK(cache.load(spec, "0").error().code() == Errc::corrupt);
    CHECK(cache.load(spec, "3").ok());
  }
}

TEST_CASE("a cache that is told no frequency takes the table's for every item, of any format") {
  const base::TestFolder folder;
  put_file(folder.path() / "t.csv", shops());
  lake::put_parquet(folder.path() / "t.parquet",
                    *lake::Table::open((folder.path() / "t.csv").string())->read());
  for (const char* name : {"t.csv", "t.parquet"}) {
    CAPTURE(name);
    SeriesCache cache;  // B alone would be of business days
    CHECK(cache.load(at(folder.path() / name), "B")->set.frequency.name() == "D");
    CHECK(cache.load(at(folder.path() / name), "D")->set.frequency.name() == "D");
  }
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

TEST_CASE("a table in train/ is read whatever an unrelated metadata.json says beside it") {
  const base::TestFolder folder;
  std::filesystem::create_directories(folder / "train");
  put_file(folder / "metadata.json", R"({"license": "CC0"})");
  put_file(folder / "train/t.csv", shops());
  lake::put_parquet(folder / "train/t.parquet", hourly_table(2, 5, true));
  put_file(folder / "other.json", R"({"freq": "B", "prediction_length": 2})");
  CHECK(load_series(at(folder / "train/t.parquet"))->set.frequency.name() == "h");
  CHECK(load_series(at(folder / "train"))->set.series.size() == 2);  // of Parquet
  TableSpec spec = at(folder / "train/t.csv");
  CHECK(load_series(spec)->set.frequency.name() == "D");
  spec.frequency = "D";
  CHECK(load_series(spec).ok());
  CHECK(table_files(spec).ok());
  CHECK(actuals_url(spec.url).ok());
  spec.frequency = "";
  spec.metadata = (folder / "other.json").string();
  CHECK(settle_table(spec)->spec.frequency == "B");
  CHECK(settle_table(spec)->horizon == 2);
  spec.metadata = (folder / "metadata.json").string();
  CHECK(lake::contains(load_series(spec).error().message(), "no text \"freq\""));
}

TEST_CASE("a cached table is read again when the metadata of its data set has changed") {
  const base::TestFolder folder;
  std::filesystem::create_directories(folder / "set/train");
  put_file(folder / "set/train/data.json",
           R"({"item_id": "A", "start": "2026-01-05", "target": [1, 2, 3]})"
           "\n");
  const base::Path beside = folder / "set/metadata.json";
  const base::Path elsewhere = folder / "other";
  TableSpec told = at(folder / "set");
  told.metadata = elsewhere.string();
  for (const auto& [spec, file] :
       {std::pair(at(folder / "set"), beside), std::pair(at(folder / "set/train"), beside),
        std::pair(told, elsewhere)}) {
    CAPTURE(file.string());
    put_file(beside, R"({"freq": "D"})");
    put_file(file, R"({"freq": "D"})");
    SeriesCache cache;
    CHECK(cache.load(spec, "A")->set.frequency.name() == "D");
    put_file(file, R"({"freq": "30min"})");
    CHECK(cache.load(spec, "A")->set.frequency.name() == "30min");
    CHECK(cache.load(spec, "A")->bytes_read == 0);
  }
}

TEST_CASE("the actual values of a data set are its test/, and never its train/") {
  const base::TestFolder folder;
  const std::string root = (folder / "set").string();
  std::filesystem::create_directories(folder / "set/train");
  put_file(folder / "set/metadata.json", R"({"freq": "D"})");
  for (const char* metadata : {"", "set/metadata.json"}) {
    const auto none = actuals_url(root, metadata[0] == 0 ? "" : (folder / metadata).string());
    REQUIRE_FALSE(none.ok());
    CHECK(none.error().code() == Errc::invalid_argument);
    CHECK(none.error().message() == root + " has no test/; name the table of actuals");
  }
  CHECK(*actuals_url(root + "/train") == root + "/train");  // who names it means it
  CHECK(*actuals_url("") == "");
  std::filesystem::create_directories(folder / "set/test");
  CHECK(*actuals_url(root) == root + "/test");
  CHECK(*actuals_url(root + "/") == root + "/test");
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
