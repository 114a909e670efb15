// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "headrace/lake/table.h"
#include "headrace/lake/test_tables.h"
#include "headrace/lake/text_internal.h"

namespace headrace::lake {

namespace {

using Lines = std::vector<std::string>;

/// A stream that gives `step` bytes at a time.
class MemoryStream final : public scan::ByteStream {
 public:
  MemoryStream(std::string text, size_t step) : text_(std::move(text)), step_(step) {}
  Result<int64_t> read(std::span<char> out) override {
    const size_t count = std::min({step_, out.size(), text_.size() - at_});
    std::copy_n(text_.data() + at_, count, out.data());
    at_ += count;
    return static_cast<int64_t>(count);
  }

 private:
  std::string text_;
  size_t step_;
  size_t at_ = 0;
};

/// Cells joined by |, quoted ones in <>; an error as its message.
Lines cells_of(const std::string& text, size_t step = 1 << 20) {
  CsvRows rows(std::make_unique<MemoryStream>(text, step), "t.csv");
  std::vector<CsvCell> cells;
  Lines out;
  for (;;) {
    const auto some = rows.next(&cells);
    if (!some.ok()) {
      out.push_back(some.error().message());
      return out;
    }
    if (!*some) {
      return out;
    }
    std::string line;
    for (const CsvCell& cell : cells) {
      line += (&cell == cells.data() ? "" : "|") +
              (cell.quoted ? "<" + std::string(cell.text) + ">" : std::string(cell.text));
    }
    out.push_back(line);
  }
}

struct CsvFolder {
  base::TestFolder folder;
  std::string url = (folder / "t.csv").string();

  Lines read(std::string_view text, const TableOptions& options = {}) {
    put_file(url, text);
    const auto table = Table::open(url, options);
    REQUIRE_MESSAGE(table.ok(), table.error().message());
    return rows_as_text(*table->read());
  }
  Lines types(std::string_view text) {
    put_file(url, text);
    Lines out;
    const Table table = *Table::open(url);
    for (const Field& field : table.schema()) {
      out.emplace_back(type_name(field.type));
    }
    return out;
  }
  std::string error(std::string_view text, const TableOptions& options = {}) {
    put_file(url, text);
    return error_of(url, options).message();
  }
};

}  // namespace

TEST_CASE("cells are those of RFC 4180, however the bytes arrive") {
  const std::string text =
      "\xEF\xBB\xBF"
      "a,\"b\",c\r\n"
      "\n"
      "1,\"x, \"\"y\"\"\r\nz\",\n"
      ",,\"\"\r\n"
      "a\"b,c,last without an end";
  const Lines expected = {"a|<b>|c", "1|<x, \"y\"\r\nz>|", "||<>", "a\"b,c,last without an end"};
  Lines whole = cells_of(text);
  // A quote inside an unquoted cell opens no quotes by the RFC, but a lone one is never closed.
  CHECK(whole.size() == 4);
  CHECK(Lines(whole.begin(), whole.begin() + 3) == Lines(expected.begin(), expected.begin() + 3));
  CHECK(contains(whole[3], "t.csv:6: a quote is opened and never closed"));
  for (size_t step = 1; step < 12; ++step) {
    CHECK(cells_of(text, step) == whole);
  }
}

TEST_CASE("line numbers count line ends inside quotes") {
  CHECK(
      cells_of("a,b\n\"1\n2\n3\",4\n\"x\"y,2\n") ==
      Lines{"a|b", "<1\n2\n3>|4",
            "t.csv:5: cell 1: there is text behind the closing quote; double a quote that is part "
            "of the text"});
}

TEST_CASE("the delimiter is found in the header") {
  CHECK(cells_of("a;b\n1,5;2\n") == Lines{"a|b", "1,5|2"});
  CHECK(cells_of("a\tb\n1,5\t2\n") == Lines{"a|b", "1,5|2"});
  CHECK(cells_of("one\n1\n") == Lines{"one", "1"});
}

TEST_CASE("types are the narrowest that hold every value of a column") {
  CsvFolder csv;
  CHECK(csv.types("a,b,c,d,e,f,g\n1,1.5,true,2015-07-01,2015-07-01T10:00,x,\n2,2,False,2016-01-01,"
                  "2016-01-01,1,\n") ==
        Lines{"int64", "float64", "boolean", "date", "timestamp", "string", "null"});
  CHECK(csv.types("a\n007\n8\n") == Lines{"string"});  // an id
  CHECK(csv.types("a\n99999999999999999999\n") == Lines{"string"});
  CHECK(csv.types("a,b\n1,NA\nNA,NA\n") == Lines{"int64", "string"});
  CHECK(csv.types("a\n1e5\nnan\n-inf\n") == Lines{"float64"});
  CHECK(csv.types("a\n\"1\"\n2\n") == Lines{"int64"});
}

TEST_CASE("values, nulls, empty texts and markers are read as what they are") {
  CsvFolder csv;
  CHECK(csv.read("id,x,y\na,1,0.5\n\"\",NA,\nNA,-3,nan\n,+4,1e-3\n",
                 {.types = {{"id", Type::string}}}) ==
        Lines{"a|1|0.5", "|null|null", "NA|-3|nan", "null|4|0.001"});
}

TEST_CASE("what is wrong in a CSV file is told with file and line") {
  CsvFolder csv;
  CHECK(contains(csv.error("a,b\n1,2\n3\n"), "t.csv:3: 1 cells, but the header names 2 columns"));
  CHECK(contains(csv.error("a,b\n1,2,3\n"), "t.csv:2: 3 cells"));
  CHECK(contains(csv.error("a,a\n1,2\n"), "two columns are called \"a\""));
  CHECK(contains(csv.error(""), "the file is empty"));
  CHECK(contains(csv.error("a\nx\n", {.types = {{"a", Type::int64}}}),
                 "t.csv:2: column \"a\": \"x\" is no int64"));
  CHECK(contains(csv.error("t\n2015-07-01T00:00:00+01:00\n2015-07-02T00:00:00+02:00\n"),
                 "time stamps of different zones: \"2015-07-01T00:00:00+01:00\" ("));
  CHECK(contains(csv.error("t\n2015-07-01T00:00:00Z\n2015-07-02\n"), "t.csv:3)"));
  CHECK(csv.read("t\n2015-07-01T00:00:00+01:00\n2015-07-02T00:00:00+02:00\n", {.zone = "UTC"}) ==
        Lines{"2015-06-30T23:00:00Z", "2015-07-01T22:00:00Z"});
  CHECK(csv.read("t\n2015-07-01T00:00:00+01:00\n2015-07-02T00:00:00+01:00\n") ==
        Lines{"2015-06-30T23:00:00Z", "2015-07-01T23:00:00Z"});
}

TEST_CASE("text that is not UTF-8 is told with file and line, and how to convert it") {
  constexpr const char* kWhat =
      "the text here is not UTF-8; convert the file, e.g. iconv -f LATIN1 -t UTF-8";
  CHECK(cells_of("item,caf\xE9\nA,1\n", 1) == Lines{std::string("t.csv:1: ") + kWhat});
  CHECK(cells_of("item,place\nA,somewhere far away\nB,Gr\xF6sse\n") ==
        Lines{"item|place", "A|somewhere far away", std::string("t.csv:3: ") + kWhat});
  CHECK(cells_of("\xFF\xFEi\0,\0") == Lines{std::string("t.csv:1: ") + kWhat});  // UTF-16
  CHECK(cells_of("item,caf\xC3\xA9 au lait\n") == Lines{"item|caf\xC3\xA9 au lait"});
}

TEST_CASE("several CSV files are one table; other headers are a mismatch") {
  CsvFolder csv;
  put_file(csv.folder / "lake/a.csv", "x,y\n1,a\n");
  put_file(csv.folder / "lake/b.csv", "y,x\nb,2.5\n");
  const std::string lake = (csv.folder / "lake").string();
  CHECK(rows_as_text(*Table::open(lake)->read()) == Lines{"1|a", "2.5|b"});
  put_file(csv.folder / "lake/c.csv", "x\n3\n");
  CHECK(error_of(lake).code() == Errc::mismatch);
  CHECK(contains(error_of(lake).message(), "there is no column \"y\""));
  CHECK(rows_as_text(*Table::open(lake, {.allow_missing_columns = true})->read()) ==
        Lines{"1|a", "2.5|b", "3|null"});
  put_file(csv.folder / "lake/c.csv", "x,y,z\n3,c,1\n");
  CHECK(contains(error_of(lake).message(), "there is a column \"z\""));
}

TEST_CASE("wide files: a series a row, trailing empty cells end it, inner ones are missing") {
  CsvFolder csv;
  const TableOptions wide{.format = Format::wide_csv};
  CHECK(csv.read("id,V1,V2,V3\nA,1,,3\nB,4,,\n\"C\",\"5\",NaN,\n", wide) ==
        Lines{"A|0|1970-01-01T00:00:00|1", "A|1|1970-01-01T00:00:00|null",
              "A|2|1970-01-01T00:00:00|3", "B|0|1970-01-01T00:00:00|4", "C|0|1970-01-01T00:00:00|5",
              "C|1|1970-01-01T00:00:00|nan"});
  CHECK(contains(csv.error("id,V1\nA,1\nB,x\n", wide),
                 "t.csv:3: series \"B\", value 1: \"x\" is no number"));
  CHECK(contains(csv.error("id,V1\n,1\n", wide), "t.csv:2: the first cell of the row"));
}

TEST_CASE("packed files are read; a torn one is told") {
  CsvFolder csv;
  std::vector<double> values(5000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sqrt(static_cast<double>(i));
  }
  const std::string path = (csv.folder / "t.csv.gz").string();
  REQUIRE(write_csv(path, {{reals("y", values)}}).ok());
  const Table table = *Table::open(path);
  CHECK(table.read()->columns[0].reals == values);  // shortest form reads back the same bits
  const std::string whole = *base::read_file(path);
  CHECK(whole.substr(0, 2) == "\x1F\x8B");
  put_file(path, whole.substr(0, whole.size() / 2));
  CHECK(error_of(path).code() == Errc::corrupt);
  put_file(path, "no gzip at all");
  CHECK(error_of(path).code() == Errc::corrupt);
  CHECK(contains(error_of(path).message(), "t.csv.gz"));
}

TEST_CASE("what write_csv writes reads back the same") {
  CsvFolder csv;
  const Batch batch{{texts("s", {"a,b", "q\"q", "line\nend", "", std::nullopt, "NA"}),
                     nulled(reals("r", {0.1, 1e300, -0.0, 5, 6, 7}), {3}),
                     nulled(stamps("t", {0, 1, -1, 3, 4, 5}, "UTC"), {4})}};
  REQUIRE(write_csv(csv.url, batch).ok());
  CHECK(base::read_file(csv.url)->substr(0, 6) == "s,r,t\n");
  const Table table = *Table::open(csv.url, {.types = {{"s", Type::string}}});
  CHECK(rows_as_text(*table.read()) == rows_as_text(batch));
  REQUIRE(write_csv(csv.url, {{texts("only", {std::nullopt, "x"})}}).ok());
  CHECK(Table::open(csv.url)->rows() == 2);
}

}  // namespace headrace::lake
