// SPDX-License-Identifier: Apache-2.0
// Text files as rows: a buffer over a stream, CSV cells, and the types that cells may have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/checksum.h"
#include "headrace/base/result.h"
#include "headrace/lake/column.h"
#include "headrace/lake/scan/parquet_internal.h"
#include "headrace/lake/scan/storage_internal.h"
#include "headrace/lake/table.h"

namespace headrace::lake {

/// A stream with a view ahead. A row (or line) must fit in kRowBytesMax.
class TextBuffer {
 public:
  static constexpr size_t kRowBytesMax = size_t{64} << 20;
  TextBuffer(std::unique_ptr<scan::ByteStream> stream, base::Xxh3Stream128* hash = nullptr)
      : stream_(std::move(stream)), hash_(hash) {}

  /// What is read and not consumed.
  std::string_view ahead() const { return std::string_view(bytes_).substr(begin_); }
  char* ahead_data() { return bytes_.data() + begin_; }
  /// Read on; false at the end. Invalidates earlier views.
  Result<bool> more();
  void consume(size_t bytes) { begin_ += bytes; }
  bool over() const { return over_; }

 private:
  std::unique_ptr<scan::ByteStream> stream_;
  base::Xxh3Stream128* hash_;
  std::string bytes_;
  size_t begin_ = 0;
  bool over_ = false;
};

struct CsvCell {
  std::string_view text;
  bool quoted = false;
};

/// Whether a file that begins with these bytes is Parquet: "PAR1", or "PARE" when encrypted, and
/// the first byte of a page's header, which no text has there.
bool looks_like_parquet(std::string_view bytes);
inline constexpr size_t kParquetBeginBytes = 5;

/// Rows of a CSV file (RFC 4180): quotes, doubled quotes, line ends in quotes; LF, CRLF; a
/// byte-order mark is passed over, empty lines are none.
class CsvRows {
 public:
  /// `name` is for messages. The delimiter is the first of , ; tab that the header holds outside
  /// quotes.
  CsvRows(std::unique_ptr<scan::ByteStream> stream, std::string name,
          base::Xxh3Stream128* hash = nullptr);

  /// The next row; false at the end. Cells are views until the next call. `corrupt`: "NAME:LINE:
  /// what".
  Result<bool> next(std::vector<CsvCell>* cells);
  /// Line at which the last row began, from 1.
  int64_t line() const { return row_line_; }
  Error error(const std::string& what, Errc code = Errc::corrupt) const;

 private:
  struct RowEnd {
    size_t bytes = 0;     // of the row, without its line end
    size_t consumed = 0;  // with it
    int64_t lines = 0;    // line ends in it
    bool complete = false;
    bool in_quotes = false;  // when not complete
  };
  RowEnd find_end() const;
  Result<void> split(size_t bytes, std::vector<CsvCell>* cells);
  Result<bool> skip_blank();

  TextBuffer buffer_;
  std::string name_;
  char delimiter_ = '\0';
  int64_t line_ = 1;
  int64_t row_line_ = 0;
};

/// Lines of a file, without their ends.
class TextLines {
 public:
  TextLines(std::unique_ptr<scan::ByteStream> stream, std::string name,
            base::Xxh3Stream128* hash = nullptr)
      : buffer_(std::move(stream), hash), name_(std::move(name)) {}
  Result<bool> next(std::string_view* line);
  int64_t line() const { return line_; }
  std::string where() const { return name_ + ":" + std::to_string(line_); }

 private:
  TextBuffer buffer_;
  std::string name_;
  int64_t line_ = 0;
  size_t pending_ = 0;
};

/// Narrows what type the cells of one column may have.
class TypeGuess {
 public:
  void see(const CsvCell& cell, const std::string& where);
  /// The narrowest type that holds all; string when none does, null when there was nothing.
  Type type() const;
  std::string zone() const { return zone_; }
  /// Two cells that disagree in their zone, in words; empty when all agree.
  const std::string& zone_conflict() const { return zone_conflict_; }
  /// The first cell that is no number although those before were: `"abc" in a.csv:7`; else empty.
  const std::string& first_text() const { return first_text_; }

 private:
  void see_stamp(std::string_view text, const std::string& where);

  uint8_t possible_ = 0xFF;
  bool any_ = false;
  bool any_marker_ = false;  // NA and the like: null among numbers, text among texts
  bool any_stamp_ = false;
  std::string zone_;
  std::string zone_where_;
  std::string zone_conflict_;
  std::string first_text_;
};

/// Value of a cell in a column of `type`; false when it does not fit.
bool cell_value(const CsvCell& cell, Type type, Value* out);

/// What one pass over all files of a text table found.
struct TextShape {
  Schema schema;                    ///< without partition columns
  std::vector<int64_t> rows;        ///< per file
  std::vector<int64_t> series;      ///< per file, JSON lines
  std::vector<std::string> hashes;  ///< per file: XXH3-128 of the unpacked bytes, hex
};

Result<TextShape> inspect_csv(const scan::Storage& storage, const std::vector<FileInfo>& files,
                              const TableOptions& options);
Result<TextShape> inspect_wide_csv(const scan::Storage& storage, const std::vector<FileInfo>& files,
                                   const TableOptions& options);
Result<TextShape> inspect_json_lines(const scan::Storage& storage,
                                     const std::vector<FileInfo>& files,
                                     const TableOptions& options);

/// Rows of one file: the fields of `schema` (a part of TextShape's), in that order.
struct TextRead {
  const scan::Storage* storage = nullptr;
  FileInfo file;
  Schema schema;
  int64_t batch_rows = 65536;
  int64_t first_series = 0;  ///< JSON lines: number of series in the files before
  scan::ByteCounter counter;
  const TableOptions* options = nullptr;  ///< outlives the rows
};
Result<std::unique_ptr<scan::RowGroupRows>> read_csv(const TextRead& read);
Result<std::unique_ptr<scan::RowGroupRows>> read_wide_csv(const TextRead& read);
Result<std::unique_ptr<scan::RowGroupRows>> read_json_lines(const TextRead& read);

}  // namespace headrace::lake
