// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "headrace/base/json.h"
#include "headrace/lake/stamp.h"
#include "headrace/lake/text_internal.h"

namespace headrace::lake {

bool looks_like_parquet(std::string_view bytes) {
  return bytes.starts_with("PAR1\x15") || bytes.starts_with("PARE\x15");
}

namespace {

constexpr size_t kReadBytes = size_t{256} << 10;

constexpr uint8_t kBoolean = 1;
constexpr uint8_t kInteger = 2;
constexpr uint8_t kReal = 4;
constexpr uint8_t kDate = 8;
constexpr uint8_t kStamp = 16;

/// Most text is ASCII, which is told eight bytes at a time.
constexpr const char* kParquetText =
    ": this is a Parquet file and is read as text; end its name in .parquet, or say its format: "
    "parquet (--format parquet)";

bool is_utf8(std::string_view text) {
  size_t at = 0;
  for (uint64_t eight = 0; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & 0x8080808080808080U) != 0) {
      break;
    }
  }
  const std::string_view rest = text.substr(at);
  const bool ascii = std::ranges::none_of(rest, [](char c) { return (c & 0x80) != 0; });
  return ascii || utf8_text(rest) == rest;
}

bool is_marker(std::string_view text) {
  return text == "NA" || text == "N/A" || text == "null" || text == "NULL" || text == "None";
}

bool is_true(std::string_view text) { return text == "true" || text == "True" || text == "TRUE"; }
bool is_false(std::string_view text) {
  return text == "false" || text == "False" || text == "FALSE";
}

/// "007" is an id and no number.
bool is_padded(std::string_view text) {
  const std::string_view digits = text.substr(!text.empty() && text.front() == '-' ? 1 : 0);
  return digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9';
}

bool parse_integer(std::string_view text, int64_t* out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return code == std::errc() && end == text.data() + text.size() && !is_padded(text);
}

bool parse_real(std::string_view text, double* out) {
  const std::string_view bare = text.substr(text.front() == '+' && text.size() > 1 ? 1 : 0);
  const auto [end, code] = std::from_chars(bare.data(), bare.data() + bare.size(), *out);
  return code == std::errc() && end == bare.data() + bare.size();
}

}  // namespace

Result<bool> TextBuffer::more() {
  if (over_) {
    return false;
  }
  if (begin_ > 0) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  const size_t kept = bytes_.size();
  // Doubling keeps the work for a long row linear, though its start is looked at again.
  bytes_.resize(kept + std::max(kReadBytes, kept));
  HR_TRY(const int64_t count, stream_->read({bytes_.data() + kept, bytes_.size() - kept}));
  bytes_.resize(kept + static_cast<size_t>(count));
  over_ = count == 0;
  if (hash_ != nullptr) {
    hash_->update(std::as_bytes(std::span(bytes_).subspan(kept)));
  }
  return !over_;
}

CsvRows::CsvRows(std::unique_ptr<scan::ByteStream> stream, std::string name,
                 base::Xxh3Stream128* hash)
    : buffer_(std::move(stream), hash), name_(std::move(name)) {}

Error CsvRows::error(const std::string& what, Errc code) const {
  return Error{code, fmt::format("{}:{}: {}", name_, row_line_, what)};
}

/// Look for the end of the row at the front of the buffer.
CsvRows::RowEnd CsvRows::find_end() const {
  const std::string_view text = buffer_.ahead();
  RowEnd out;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      quoted = !quoted;  // a doubled quote leaves and enters again
    } else if (text[i] == '\n') {
      ++out.lines;
      if (!quoted) {
        out.bytes = i > 0 && text[i - 1] == '\r' ? i - 1 : i;
        out.consumed = i + 1;
        out.complete = true;
        return out;
      }
    }
  }
  out.bytes = text.size();
  out.consumed = text.size();
  out.in_quotes = quoted;
  return out;
}

/// Cut the row into cells; doubled quotes are joined in place.
Result<void> CsvRows::split(size_t bytes, std::vector<CsvCell>* cells) {
  cells->clear();
  char* at = buffer_.ahead_data();
  char* const end = at + bytes;
  for (;;) {
    if (at < end && *at == '"') {
      char* const begin = ++at;
      char* out = begin;
      while (at < end && (*at != '"' || (at + 1 < end && at[1] == '"'))) {
        at += *at == '"' ? 1 : 0;
        *out++ = *at++;
      }
      ++at;  // the closing quote, which find_end has seen
      if (at < end && *at != delimiter_) {
        return error(
            fmt::format("cell {}: there is text behind the closing quote; double a quote "
                        "that is part of the text",
                        cells->size() + 1));
      }
      cells->push_back({{begin, static_cast<size_t>(out - begin)}, true});
    } else {
      char* const stop = std::find(at, end, delimiter_);
      cells->push_back({{at, static_cast<size_t>(stop - at)}, false});
      at = stop;
    }
    if (at >= end) {
      return {};
    }
    ++at;  // the delimiter; a row that ends in one has an empty last cell
  }
}

/// Pass over a byte-order mark and empty lines; false at the end.
Result<bool> CsvRows::skip_blank() {
  for (;;) {
    const std::string_view text = buffer_.ahead();
    if (text.size() < 3 && !buffer_.over()) {
      HR_TRY(buffer_.more());
      continue;
    }
    if (text.empty()) {
      return false;
    }
    if (row_line_ == 0 && line_ == 1 && text.substr(0, 3) == "\xEF\xBB\xBF") {
      buffer_.consume(3);
      row_line_ = 1;
      continue;
    }
    const size_t blank = text[0] == '\n' ? 1 : text.substr(0, 2) == "\r\n" ? 2 : 0;
    if (blank == 0) {
      return true;
    }
    buffer_.consume(blank);
    ++line_;
  }
}

Result<bool> CsvRows::next(std::vector<CsvCell>* cells) {
  HR_TRY(const bool some, skip_blank());
  if (!some) {
    return false;
  }
  while (line_ == 1 && buffer_.ahead().size() < kParquetBeginBytes && !buffer_.over()) {
    HR_TRY(buffer_.more());  // a read may give less than that
  }
  if (line_ == 1 && looks_like_parquet(buffer_.ahead())) {
    return Error{Errc::invalid_argument, name_ + kParquetText};
  }
  row_line_ = line_;
  RowEnd end = find_end();
  while (!end.complete && !buffer_.over()) {
    if (buffer_.ahead().size() > TextBuffer::kRowBytesMax) {
      return error(end.in_quotes ? "a quote is opened and not closed within 64 MiB"
                                 : "the row is longer than 64 MiB");
    }
    HR_TRY(buffer_.more());
    end = find_end();
  }
  if (end.in_quotes) {
    return error("a quote is opened and never closed");
  }
  if (!is_utf8(buffer_.ahead().substr(0, end.bytes))) {
    return error("the text here is not UTF-8; convert the file, e.g. iconv -f LATIN1 -t UTF-8",
                 Errc::invalid_argument);
  }
  if (delimiter_ == '\0') {
    const std::string_view header = buffer_.ahead().substr(0, end.bytes);
    delimiter_ = ',';
    for (const char candidate : {',', ';', '\t'}) {
      if (header.find(candidate) != std::string_view::npos) {
        delimiter_ = candidate;
        break;
      }
    }
  }
  HR_TRY(split(end.bytes, cells));
  buffer_.consume(end.consumed);
  line_ += end.lines;
  return true;
}

Result<bool> TextLines::next(std::string_view* line) {
  buffer_.consume(pending_);
  pending_ = 0;
  size_t end = buffer_.ahead().find('\n');
  while (end == std::string_view::npos && !buffer_.over()) {
    if (buffer_.ahead().size() > TextBuffer::kRowBytesMax) {
      return Error{Errc::corrupt,
                   fmt::format("{}:{}: the line is longer than 64 MiB", name_, line_ + 1)};
    }
    const size_t seen = buffer_.ahead().size();
    HR_TRY(buffer_.more());
    end = buffer_.ahead().find('\n', seen);
  }
  const std::string_view text = buffer_.ahead();
  if (text.empty()) {
    return false;
  }
  if (line_ == 0 && looks_like_parquet(text)) {
    return Error{Errc::invalid_argument, name_ + kParquetText};
  }
  ++line_;
  pending_ = end == std::string_view::npos ? text.size() : end + 1;
  *line = text.substr(0, end);
  if (!line->empty() && line->back() == '\r') {
    line->remove_suffix(1);
  }
  return true;
}

void TypeGuess::see_stamp(std::string_view text, const std::string& where) {
  const auto stamp = parse_stamp(text);
  if (!stamp) {
    possible_ &= static_cast<uint8_t>(~(kDate | kStamp));
    return;
  }
  if (!stamp->date_only) {
    possible_ &= static_cast<uint8_t>(~kDate);
  }
  const std::string zone = zone_text(*stamp);
  if (!any_stamp_) {
    any_stamp_ = true;
    zone_ = zone;
    zone_where_ = fmt::format("\"{}\" ({})", text, where);
  } else if (zone != zone_ && zone_conflict_.empty()) {
    zone_conflict_ = fmt::format("{} and \"{}\" ({})", zone_where_, text, where);
  }
}

void TypeGuess::see(const CsvCell& cell, const std::string& where) {
  if (cell.text.empty() && !cell.quoted) {
    return;
  }
  if (is_marker(cell.text) && !cell.quoted) {
    any_marker_ = true;
    return;
  }
  const bool numeric = any_ && (possible_ & (kInteger | kReal)) != 0;
  any_ = true;
  if ((possible_ & kBoolean) != 0 && !is_true(cell.text) && !is_false(cell.text)) {
    possible_ &= static_cast<uint8_t>(~kBoolean);
  }
  int64_t whole = 0;
  double real = 0.0;
  const bool is_integer = !cell.text.empty() && parse_integer(cell.text, &whole);
  // An integer too long for 64 bits is an id, not a rounded number.
  const bool digits_only = cell.text.find_first_not_of("0123456789-") == std::string_view::npos;
  if (!is_integer) {
    possible_ &= static_cast<uint8_t>(~kInteger);
    if (cell.text.empty() || digits_only || !parse_real(cell.text, &real)) {
      possible_ &= static_cast<uint8_t>(~kReal);
    }
  }
  if ((possible_ & (kDate | kStamp)) != 0) {
    see_stamp(cell.text, where);
  }
  if (numeric && (possible_ & (kInteger | kReal)) == 0 && first_text_.empty()) {
    first_text_ = fmt::format("{} in {}", json_quote(cell.text.substr(0, 40)), where);
  }
}

Type TypeGuess::type() const {
  if (!any_) {
    return any_marker_ ? Type::string : Type::null;
  }
  if ((possible_ & kBoolean) != 0) {
    return Type::boolean;
  }
  if ((possible_ & kInteger) != 0) {
    return Type::int64;
  }
  if ((possible_ & kReal) != 0) {
    return Type::float64;
  }
  if ((possible_ & kDate) != 0) {
    return Type::date;
  }
  return (possible_ & kStamp) != 0 ? Type::timestamp_us : Type::string;
}

bool cell_value(const CsvCell& cell, Type type, Value* out) {
  *out = std::monostate();
  if (cell.text.empty() && !cell.quoted) {
    return true;
  }
  if (type == Type::string) {
    *out = std::string(cell.text);
    return true;
  }
  if (is_marker(cell.text)) {
    return true;
  }
  if (cell.text.empty()) {
    return false;
  }
  int64_t whole = 0;
  double real = 0.0;
  switch (type) {
    case Type::int64: *out = parse_integer(cell.text, &whole) ? Value(whole) : Value(); break;
    case Type::float64: *out = parse_real(cell.text, &real) ? Value(real) : Value(); break;
    case Type::boolean:
      *out = is_true(cell.text) ? Value(true) : is_false(cell.text) ? Value(false) : Value();
      break;
    case Type::date:
    case Type::timestamp_us: {
      const auto stamp = parse_stamp(cell.text);
      if (stamp && (type == Type::timestamp_us || stamp->date_only)) {
        *out = type == Type::date ? stamp->us / kMicrosPerDay - (stamp->us % kMicrosPerDay < 0)
                                  : stamp->us;
      }
      break;
    }
    default: return false;
  }
  return out->index() != 0;
}

}  // namespace headrace::lake
