// SPDX-License-Identifier: Apache-2.0
#include "headrace/lake/listing_internal.h"
#include "headrace/lake/sink_internal.h"
#include "headrace/lake/write.h"

namespace headrace::lake {

namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

/// A text is quoted when it must be, and when it could be taken for a null.
void append_text(std::string_view text, std::string* out) {
  if (!text.empty() && text.find_first_of(",;\t\"\r\n") == std::string_view::npos) {
    *out += text;
    return;
  }
  out->push_back('"');
  for (const char c : text) {
    if (c == '"') {
      out->push_back('"');
    }
    out->push_back(c);
  }
  out->push_back('"');
}

void append_row(const Batch& batch, int64_t row, std::string* out) {
  for (size_t i = 0; i < batch.columns.size(); ++i) {
    const Column& column = batch.columns[i];
    if (i > 0) {
      out->push_back(',');
    }
    if (column.is_null(row)) {
      continue;
    }
    if (column.field.type == Type::string) {
      append_text(column.dictionary[static_cast<size_t>(column.codes[static_cast<size_t>(row)])],
                  out);
    } else {
      *out += column.text(row);
    }
  }
  // An empty line is no row to most readers.
  if (batch.columns.size() == 1 && batch.columns[0].is_null(row)) {
    *out += "NA";
  }
  out->push_back('\n');
}

Result<void> write_rows(const Batch& batch, scan::ByteSink* sink) {
  std::string chunk;
  for (size_t i = 0; i < batch.columns.size(); ++i) {
    chunk += i > 0 ? "," : "";
    append_text(batch.columns[i].field.name, &chunk);
  }
  chunk.push_back('\n');
  for (int64_t row = 0; row < batch.rows(); ++row) {
    append_row(batch, row, &chunk);
    if (chunk.size() >= kChunkBytes) {
      HR_TRY(sink->write(chunk));
      chunk.clear();
    }
  }
  HR_TRY(sink->write(chunk));
  return sink->finish();
}

}  // namespace

Result<void> write_csv(const base::Path& path, const Batch& batch) {
  HR_TRY(auto file, base::FileReplacement::begin(path));
  FileSink sink(&file);
  Result<void> written;
  if (is_packed(path.string())) {
    HR_TRY(const auto packed, scan::gzip_sink(&sink));
    written = write_rows(batch, packed.get());
  } else {
    written = write_rows(batch, &sink);
  }
  HR_TRY(sink.first_error());
  HR_TRY(std::move(written));
  return file.commit();
}

}  // namespace headrace::lake
