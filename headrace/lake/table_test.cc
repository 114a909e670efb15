// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/table.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <numeric>

#include "headrace/base/thread.h"
#include "headrace/lake/test_tables.h"

namespace headrace::lake {

namespace {

const std::string kM4 = HEADRACE_SOURCE_DIR "/examples/m4_hourly/";
using Lines = std::vector<std::string>;

Lines read_text(const Table& table, const ReadOptions& options = {}, ReadStats* stats = nullptr) {
  const auto batch = table.read(options, stats);
  REQUIRE_MESSAGE(batch.ok(), batch.error().message());
  return rows_as_text(*batch);
}

/// 40 items of 500 rows, sorted; one row group each.
Batch sorted_items() {
  std::vector<std::optional<std::string>> ids;
  std::vector<int64_t> times;
  std::vector<double> values;
  for (int item = 0; item < 40; ++item) {
    for (int t = 0; t < 500; ++t) {
      ids.emplace_back((item < 10 ? "i0" : "i") + std::to_string(item));
      times.push_back(int64_t{t} * 3600000000);
      values.push_back(std::sin(item * 500 + t));
    }
  }
  return {{texts("item_id", ids), stamps("timestamp", times), reals("target", values)}};
}

}  // namespace

TEST_CASE("the M4 lake written by pyarrow is read whole and knows its order") {
  const Table table = *Table::open(kM4 + "lake");
  CHECK(table.format() == Format::parquet);
  CHECK(table.files().size() == 6);
  CHECK(table.files()[0].name == "part-0.parquet");
  CHECK(table.files()[0].written_by == "parquet-cpp-arrow version 26.0.1");
  CHECK(table.rows() == 353500);
  CHECK(table.schema().size() == 3);
  CHECK(table.schema()[0].type == Type::string);
  CHECK(table.schema()[1].type == Type::timestamp_us);
  CHECK(table.schema()[1].zone.empty());
  CHECK(table.schema()[2].type == Type::float64);
  CHECK(table.sorted_by() == Lines{"item_id"});

  ReadStats stats;
  const Batch all = *table.read({}, &stats);
  CHECK(all.rows() == 353500);
  CHECK(stats.row_groups_read == 18);
  // The sum of Hourly-train.csv by awk over its cells: 2,602,190,482.2 (see the next test for all).
  CHECK(all.columns[0].dictionary.size() == 414);
  CHECK(rows_as_text(take_rows(all, {0})) == Lines{"H1|2015-07-01T00:00:00|605"});
}

TEST_CASE("the published wide CSV holds, cell by cell, what the lake holds") {
  const auto hours = [](int64_t start, int64_t index) { return start + index * 3600000000; };
  const int64_t july = 1435708800000000;  // 2015-07-01, as the examples' README says
  const Table wide =
      *Table::open(kM4 + "Hourly-train.csv.gz",
                   {.format = Format::wide_csv, .stamp = hours, .wide_start_us = july});
  const Table lake = *Table::open(kM4 + "lake");
  CHECK(wide.rows() == 353500);
  const ReadOptions options{.columns = {"item_id", "timestamp", "target"}};
  Lines a = read_text(wide, options);
  Lines b = read_text(lake, options);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  CHECK(a.size() == 353500);
  CHECK((a == b));
}

TEST_CASE("one item of a sorted table costs one row group, shown by the bytes read") {
  const Table table = *Table::open(kM4 + "lake");
  ReadStats all;
  REQUIRE(table.read({}, &all).ok());
  ReadStats one;
  const Batch rows = *table.read({.predicate = {{"item_id", Op::equal, {"H238"}}}}, &one);
  CHECK(rows.rows() == 960);
  CHECK(rows.columns[0].text(0) == "H238");
  CHECK(one.row_groups_total == 18);
  CHECK(one.row_groups_read == 1);
  CHECK(one.files_read == 1);
  CHECK(one.bytes_read > 0);
  CHECK(one.bytes_read < all.bytes_read / 10);
  MESSAGE("bytes for one of 414 items: " << one.bytes_read << " of " << all.bytes_read);

  const base::TestFolder folder;
  put_parquet(folder / "t.parquet", sorted_items(), {.group_by = "item_id"});
  const Table own = *Table::open((folder / "t.parquet").string());
  CHECK(own.files()[0].row_groups == 40);
  CHECK(own.sorted_by() == Lines{"item_id"});
  REQUIRE(own.read({}, &all).ok());
  const Predicate three = {{"item_id", Op::in, {"i03", "i17", "i39", "none"}}};
  CHECK(own.read({.predicate = three}, &one)->rows() == 1500);
  CHECK(one.row_groups_read == 3);
  CHECK(one.bytes_read < all.bytes_read / 10);
  // Only the asked columns are read.
  REQUIRE(own.read({.columns = {"item_id"}}, &one).ok());
  CHECK(one.bytes_read < all.bytes_read / 5);
}

TEST_CASE("items and their rows come from statistics where a row group holds one item") {
  const base::TestFolder folder;
  put_parquet(folder / "t.parquet", sorted_items(), {.group_by = "item_id"});
  const Table table = *Table::open((folder / "t.parquet").string());
  const Distinct items = *table.distinct("item_id");
  CHECK(items.values.rows() == 40);
  CHECK(items.values.text(39) == "i39");
  CHECK(items.counts == std::vector<int64_t>(40, 500));
  CHECK(items.stats.row_groups_read == 0);
  CHECK(items.stats.bytes_read == 0);

  const Table lake = *Table::open(kM4 + "lake");
  const Distinct m4 = *lake.distinct("item_id");
  CHECK(m4.values.rows() == 414);
  CHECK(std::accumulate(m4.counts.begin(), m4.counts.end(), int64_t{0}) == 353500);
  CHECK(m4.stats.bytes_read > 0);
  CHECK(lake.distinct("nothing").error().code() == Errc::not_found);
}

TEST_CASE("a stream gives the rows in batches of the asked size") {
  const Table table = *Table::open(kM4 + "lake/part-0.parquet");
  const auto reader = *table.scan({.columns = {"target"}, .batch_rows = 1000});
  int64_t rows = 0;
  for (;;) {
    const auto batch = *reader->next();
    if (!batch) {
      break;
    }
    CHECK(batch->rows() <= 1000);
    CHECK(batch->rows() > 0);
    rows += batch->rows();
  }
  CHECK(rows == table.rows());
  CHECK(read_text(table, {.columns = {"target"}, .batch_rows = 2, .rows_max = 3}).size() == 3);
}

TEST_CASE("hive folders become columns, prune files and may be null or escaped") {
  const base::TestFolder folder;
  const auto values = [](double x) { return Batch{{reals("y", {x, x + 0.5})}}; };
  put_parquet(folder / "year=2015/month=07/a.parquet", values(1));
  put_parquet(folder / "year=2015/month=11/a.parquet", values(2));
  put_parquet(folder / "year=2016/month=__HIVE_DEFAULT_PARTITION__/a.parquet", values(3));
  put_file(folder / "year=2015/month=07/_SUCCESS", "");
  put_file(folder / "_delta_log/0.parquet", "not data");
  put_file(folder / ".hidden.parquet", "not data");
  const Table table = *Table::open(folder.path().string());
  CHECK(table.files().size() == 3);
  CHECK(table.schema()[1].name == "year");
  CHECK(table.schema()[1].type == Type::int64);
  CHECK(table.schema()[1].partition);
  CHECK(read_text(table) == Lines{"1|2015|7", "1.5|2015|7", "2|2015|11", "2.5|2015|11",
                                  "3|2016|null", "3.5|2016|null"});
  ReadStats stats;
  CHECK(read_text(table,
                  {.columns = {"month", "y"}, .predicate = {{"month", Op::greater, {int64_t{7}}}}},
                  &stats) == Lines{"11|2", "11|2.5"});
  CHECK(stats.files_read == 1);
  CHECK(read_text(table, {.columns = {"year"}, .predicate = {{"year", Op::less, {"2016"}}}}, &stats)
            .size() == 4);
  CHECK(stats.bytes_read == 0);  // the folders' names say it all
  CHECK(table.distinct("year")->counts == std::vector<int64_t>{4, 2});
  CHECK(table.distinct("month")->nulls == 2);

  put_parquet(folder / "text/city=New%20York/a.parquet", values(1));
  const Table city = *Table::open((folder / "text").string());
  CHECK(read_text(city)[0] == "1|New York");
  const Table month =
      *Table::open((folder / "year=2015").string(), {.types = {{"month", Type::string}}});
  CHECK(read_text(month)[0] == "1|07");
}

TEST_CASE("a glob chooses files; ** goes through folders") {
  const base::TestFolder folder;
  for (const char* name : {"a-1.parquet", "a-2.parquet", "b-1.parquet", "x/a-3.parquet"}) {
    put_parquet(folder / name, {{texts("name", {name})}});
  }
  const auto names = [&folder](const std::string& pattern) {
    return read_text(*Table::open((folder.path() / pattern).string()));
  };
  CHECK(names("a-*.parquet") == Lines{"a-1.parquet", "a-2.parquet"});
  CHECK(names("?-1.parquet") == Lines{"a-1.parquet", "b-1.parquet"});
  CHECK(names("[!b]-[12].parquet") == Lines{"a-1.parquet", "a-2.parquet"});
  CHECK(names("**/a-*.parquet") == Lines{"a-1.parquet", "a-2.parquet", "x/a-3.parquet"});
  CHECK(names("*/*.parquet") == Lines{"x/a-3.parquet"});
  CHECK(error_of((folder / "c-*.parquet").string()).code() == Errc::not_found);
  CHECK(error_of((folder / "none/*.parquet").string()).code() == Errc::not_found);
}

TEST_CASE("several threads read one table at once") {
  const Table table = *Table::open(kM4 + "lake/part-0.parquet");
  std::atomic<int64_t> rows{0};
  {
    std::vector<base::Thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back("reader", [&table, &rows, t] {
        const std::string item = table.distinct("item_id")->values.text(t);
        const auto batch = table.read({.predicate = {{"item_id", Op::equal, {item}}}});
        rows += batch.ok() ? batch->rows() : -1000000;
      });
    }
  }
  CHECK(rows == 4 * 700);
}

TEST_CASE("URLs of local files work; file systems that are not there say so") {
  const Table table = *Table::open("file://" + kM4 + "lake/part-0.parquet");
  CHECK(table.rows() > 0);
  const Error error = error_of("nosuch://bucket/table");
  CHECK(error.code() == Errc::unsupported);
  CHECK(contains(error.message(), "nosuch://bucket/table"));
  CHECK(error_of("").code() == Errc::invalid_argument);
}

TEST_CASE("the snapshot is the same for a copy and another for other data") {
  const base::TestFolder folder;
  std::filesystem::copy(kM4 + "lake", folder / "copy");
  const Table original = *Table::open(kM4 + "lake");
  const Table copy = *Table::open((folder / "copy").string());
  const Snapshot snapshot = *original.snapshot();
  CHECK(snapshot.digest.size() == 64);
  CHECK(snapshot.files.size() == 6);
  CHECK(copy.snapshot()->digest == snapshot.digest);
  std::filesystem::remove(folder / "copy/part-5.parquet");
  CHECK(Table::open((folder / "copy").string())->snapshot()->digest != snapshot.digest);

  put_file(folder / "t.csv", "a\n1\n");
  const std::string first = Table::open((folder / "t.csv").string())->snapshot()->digest;
  put_file(folder / "t.csv", "a\n2\n");
  CHECK(Table::open((folder / "t.csv").string())->snapshot()->digest != first);
}

TEST_CASE("what is no table says what is there instead") {
  const base::TestFolder folder;
  CHECK(error_of((folder / "none").string()).code() == Errc::not_found);
  Error error = error_of(folder.path().string());
  CHECK(error.code() == Errc::not_found);
  CHECK(contains(error.message(), "found: nothing"));
  put_file(folder / "notes.txt", "x");
  error = error_of(folder.path().string());
  CHECK(contains(error.message(), "found: notes.txt"));
  CHECK(error_of((folder / "notes.txt").string()).code() == Errc::unsupported);
}

TEST_CASE("options that mean nothing are refused") {
  CHECK(error_of(kM4 + "lake", {.types = {{"targt", Type::float64}}}).code() == Errc::not_found);
  CHECK(error_of(kM4 + "lake", {.types = {{"target", Type::string}}}).code() ==
        Errc::invalid_argument);
  CHECK(error_of(kM4 + "lake", {.zone = "CET"}).code() == Errc::invalid_argument);
}

TEST_CASE("a table without rows opens and gives none") {
  const base::TestFolder folder;
  put_parquet(folder / "t.parquet", {{reals("y", {}), texts("id", {})}});
  const Table table = *Table::open((folder / "t.parquet").string());
  CHECK(table.rows() == 0);
  const Batch batch = *table.read();
  CHECK(batch.rows() == 0);
  CHECK(batch.schema().size() == 2);
  CHECK(table.distinct("id")->values.rows() == 0);
}

TEST_CASE("damaged Parquet names the file, and the row group where one is known") {
  const base::TestFolder folder;
  put_parquet(folder / "good.parquet", sorted_items(), {.group_by = "item_id"});
  const std::string whole = *base::read_file(folder / "good.parquet");
  const std::string path = (folder / "bad.parquet").string();
  for (const size_t size : {size_t{0}, size_t{3}, size_t{11}, whole.size() / 2, whole.size() - 1}) {
    CAPTURE(size);
    put_file(path, whole.substr(0, size));
    const Error error = error_of(path);
    CHECK(error.code() == Errc::corrupt);
    CHECK(contains(error.message(), "bad.parquet"));
  }
  put_file(path, "this is a text that somebody called .parquet");
  CHECK(error_of(path).code() == Errc::corrupt);

  // A flipped byte in the pages of the 21st row group: found by the page's checksum.
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 0x20);
  put_file(path, flipped);
  const Error error = error_of(path);
  CHECK(error.code() == Errc::corrupt);
  CHECK(contains(error.message(), "bad.parquet, row group "));
}

TEST_CASE("a missing column lists those that are there") {
  const Table table = *Table::open(kM4 + "lake");
  const auto error = table.read({.columns = {"item"}}).error();
  CHECK(error.code() == Errc::not_found);
  CHECK(contains(error.message(),
                 "no column \"item\"; found: \"item_id\", \"timestamp\", \"target\""));
  CHECK(table.read({.predicate = {{"when", Op::equal, {"x"}}}}).error().code() == Errc::not_found);
}

TEST_CASE("files that differ in columns, types or zones are named, both of them") {
  const base::TestFolder folder;
  const std::string url = folder.path().string();
  put_parquet(folder / "a.parquet", {{reals("y", {1}), stamps("t", {0})}});
  const auto message_with = [&](const Batch& other) {
    put_parquet(folder / "b.parquet", other);
    const Error error = error_of(url);
    CHECK(error.code() == Errc::mismatch);
    CHECK(contains(error.message(), "a.parquet"));
    CHECK(contains(error.message(), "b.parquet"));
    return error.message();
  };
  CHECK(contains(message_with({{texts("y", {"1"}), stamps("t", {0})}}),
                 "column \"y\" is string, but double in"));
  CHECK(contains(message_with({{reals("y", {1})}}), "there is no column \"t\""));
  CHECK(contains(message_with({{reals("y", {1}), stamps("t", {0}), reals("z", {1})}}),
                 "there is a column \"z\""));
  CHECK(contains(message_with({{reals("y", {1}), stamps("t", {0}, "UTC")}}),
                 "column \"t\" has time zone UTC, but no time zone in"));
  put_parquet(folder / "a.parquet", {{reals("y", {1}), stamps("t", {0}, "Europe/Berlin")}});
  CHECK(contains(message_with({{reals("y", {1}), stamps("t", {0}, "UTC")}}), "Europe/Berlin"));

  // Told to, the same files are one table of instants.
  const Table instants = *Table::open(url, {.zone = "UTC"});
  CHECK(read_text(instants) == Lines{"1|1970-01-01T00:00:00Z", "1|1970-01-01T00:00:00Z"});
  put_parquet(folder / "b.parquet", {{reals("z", {7})}});
  const Table loose = *Table::open(url, {.allow_missing_columns = true});
  CHECK(read_text(loose) == Lines{"1|1970-01-01T00:00:00Z|null", "null|null|7"});
  put_parquet(folder / "year=1/a.parquet", {{reals("y", {1}), stamps("t", {0})}});
  CHECK(error_of(url).code() == Errc::mismatch);
}

TEST_CASE("values of every type come back through Parquet, nulls and edges too") {
  const base::TestFolder folder;
  const Batch batch{{nulled(integers("i", {INT64_MIN, INT64_MAX, 7}), {2}),
                     nulled(reals("r", {-0.0, 1e308, 0}), {2}),
                     texts("s", {"", "\xC3\xA4\n\"", std::nullopt}),
                     nulled(stamps("t", {-1, 253402300799999999, 0}, "UTC"), {2}),
                     nulled(integers("d", {-719162, 2932896, 0}, Type::date), {2}),
                     nulled(integers("b", {0, 1, 0}, Type::boolean), {2})}};
  for (const char* compression : {"none", "snappy", "zstd", "gzip", "lz4"}) {
    put_parquet(folder / "t.parquet", batch, {.compression = compression});
    const Table table = *Table::open((folder / "t.parquet").string());
    CHECK(read_text(table) == rows_as_text(batch));
    CHECK(table.schema()[3].zone == "UTC");
  }
  CHECK(rows_as_text(batch)[0] ==
        "-9223372036854775808|-0||1969-12-31T23:59:59.999999Z|0001-01-01|false");
  CHECK(rows_as_text(batch)[1] ==
        "9223372036854775807|1e+308|\xC3\xA4\n\"|9999-12-31T23:59:59.999999Z|9999-12-31|true");
  CHECK(write_parquet(folder / "t.parquet", batch, {.compression = "rar"}).error().code() ==
        Errc::invalid_argument);
  CHECK(write_parquet(folder / "t.parquet", batch, {.group_by = "none"}).error().code() ==
        Errc::not_found);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a full disk is told as one and leaves the old file") {
  base::TestFolder folder;
  if (!folder.mount_tiny(256 * 1024)) {
    MESSAGE("skipped: mounting a tmpfs needs root");
    return;
  }
  const base::Path path = folder / "t.parquet";
  put_parquet(path, {{reals("y", {1})}});
  std::vector<double> noise(200000);
  for (size_t i = 0; i < noise.size(); ++i) {
    noise[i] = std::sin(static_cast<double>(i));
  }
  const Batch large{{reals("y", noise)}};
  CHECK(write_parquet(path, large).error().code() == Errc::out_of_space);
  CHECK(write_csv(folder / "t.csv", large).error().code() == Errc::out_of_space);
  CHECK(write_csv(folder / "t.csv.gz", large).error().code() == Errc::out_of_space);
  CHECK(Table::open(path.string())->rows() == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

}  // namespace headrace::lake
