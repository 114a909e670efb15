// SPDX-License-Identifier: Apache-2.0
#include <arrow/buffer.h>
#include <arrow/record_batch.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/statistics.h>

#include <algorithm>
#include <array>

#include "headrace/base/checksum.h"
#include "headrace/base/json.h"
#include "headrace/lake/scan/arrow_internal.h"
#include "headrace/lake/scan/parquet_internal.h"

namespace headrace::lake::scan {

namespace {

parquet::ReaderProperties reader_properties() {
  parquet::ReaderProperties properties;
  properties.set_page_checksum_verification(true);  // where the writer gave checksums
  return properties;
}

std::string in_row_group(const std::string& path, int row_group) {
  return fmt::format("{}, row group {}", path, row_group);
}

/// Of damaged bytes: Arrow's words on one line (some end in newlines), and what to do.
Error told(const Error& error) {
  if (error.code() != Errc::corrupt) {
    return error;
  }
  std::string text;
  for (const char c : error.message()) {
    const bool space = c == '\n' || c == ' ';
    if (!space || (!text.empty() && text.back() != ' ')) {
      text += space ? ' ' : c;
    }
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) {
    text.pop_back();
  }
  constexpr std::string_view kNoise = ": Invalid: ";
  if (const size_t at = text.find(kNoise); at != std::string::npos) {
    text.replace(at, kNoise.size(), ": ");
  }
  return Error{Errc::corrupt, text +
                                  "; the file is damaged or cut short: write or copy it again, or "
                                  "take it out of the table"};
}

/// As `guarded`, for what reads a file's bytes.
template <typename Body>
auto reading(std::string_view where, const Body& body) -> decltype(body()) {
  auto result = guarded(where, body);
  return result.ok() ? std::move(result) : decltype(body())(told(result.error()));
}

/// The batches of a row group; owns the file's reader, which Arrow's batch reader only borrows.
class ParquetRows final : public RowGroupRows {
 public:
  ParquetRows(std::string where, int row_group, Schema schema, std::vector<int> leaves,
              std::unique_ptr<parquet::arrow::FileReader> file,
              std::unique_ptr<arrow::RecordBatchReader> batches)
      : where_(std::move(where)),
        row_group_(row_group),
        schema_(std::move(schema)),
        leaves_(std::move(leaves)),
        file_(std::move(file)),
        batches_(std::move(batches)) {}

  Result<std::optional<Batch>> next() override {
    auto result = guarded(where_, [&]() -> Result<std::optional<Batch>> {
      std::shared_ptr<arrow::RecordBatch> batch;
      HR_ARROW_OK(batches_->ReadNext(&batch), where_);
      if (batch == nullptr) {
        return std::optional<Batch>();
      }
      HR_TRY(auto out, batch_of(schema_, *batch), where_);
      return std::optional<Batch>(std::move(out));
    });
    if (result.ok() || result.error().code() != Errc::corrupt) {
      return result;
    }
    return told(damaged_column().value_or(result.error()));
  }

 private:
  /// Arrow does not say which column it could not decode: read them one by one until one fails.
  std::optional<Error> damaged_column() {
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const std::string where = fmt::format("{}, column {}", where_, json_quote(schema_[i].name));
      const auto alone = guarded(where, [&]() -> Result<void> {
        HR_ARROW(const auto batches, file_->GetRecordBatchReader({row_group_}, {leaves_[i]}),
                 where);
        std::shared_ptr<arrow::RecordBatch> batch;
        do {
          HR_ARROW_OK(batches->ReadNext(&batch), where);
        } while (batch != nullptr);
        return {};
      });
      if (!alone.ok()) {
        return alone.error();
      }
    }
    return std::nullopt;
  }

  std::string where_;
  int row_group_;
  Schema schema_;
  std::vector<int> leaves_;  // of the columns in `schema_`
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
};

class ArrowParquetFile final : public ParquetFile {
 public:
  ArrowParquetFile(Storage storage, std::string path,
                   std::shared_ptr<parquet::FileMetaData> metadata)
      : storage_(std::move(storage)), path_(std::move(path)), metadata_(std::move(metadata)) {}

  Result<void> learn() {
    parquet::ArrowReaderProperties properties = arrow_properties({}, 1);
    std::shared_ptr<arrow::Schema> schema;
    HR_ARROW_OK(parquet::arrow::FromParquetSchema(metadata_->schema(), properties,
                                                  metadata_->key_value_metadata(), &schema),
                path_);
    parquet::arrow::SchemaManifest manifest;
    HR_ARROW_OK(parquet::arrow::SchemaManifest::Make(
                    metadata_->schema(), metadata_->key_value_metadata(), properties, &manifest),
                path_);
    for (size_t i = 0; i < manifest.schema_fields.size(); ++i) {
      Field field = field_of(*schema->field(static_cast<int>(i)));
      const auto& node = manifest.schema_fields[i];
      const bool list = field.type == Type::floats && node.children.size() == 1;
      const int leaf = list ? node.children.front().column_index : node.column_index;
      if (leaf < 0) {
        field.type = Type::unsupported;
      }
      schema_.push_back(std::move(field));
      leaves_.push_back(leaf);
    }
    written_by_ = metadata_->created_by();
    return {};
  }

  const Schema& schema() const override { return schema_; }
  int64_t rows() const override { return metadata_->num_rows(); }
  int row_groups() const override { return metadata_->num_row_groups(); }
  int64_t row_group_rows(int row_group) const override {
    return metadata_->RowGroup(row_group)->num_rows();
  }
  const std::string& written_by() const override { return written_by_; }
  Result<std::string> footer_hash(const ByteCounter& counter) const override;

  Range range(int row_group, int column, int64_t* nulls) const override;
  Result<std::unique_ptr<RowGroupRows>> read(int row_group, const std::vector<int>& columns,
                                             int64_t batch_rows,
                                             const ByteCounter& counter) const override;

 private:
  /// Text columns are decoded as their dictionaries, without a string per row.
  parquet::ArrowReaderProperties arrow_properties(const std::vector<int>& columns,
                                                  int64_t batch_rows) const {
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(std::max<int64_t>(1, batch_rows));
    properties.set_coerce_int96_timestamp_unit(arrow::TimeUnit::MICRO);
    for (const int column : columns) {
      const auto at = static_cast<size_t>(column);
      if (schema_[at].type == Type::string) {
        properties.set_read_dictionary(leaves_[at], true);
      }
    }
    return properties;
  }

  const Storage storage_;
  const std::string path_;
  const std::shared_ptr<parquet::FileMetaData> metadata_;
  Schema schema_;
  std::vector<int> leaves_;  // of each top-level column, of a list its values; -1 for nested ones
  std::string written_by_;
};

Range ArrowParquetFile::range(int row_group, int column, int64_t* nulls) const {
  *nulls = -1;
  Range out;
  const int leaf = leaves_[static_cast<size_t>(column)];
  if (leaf < 0 || schema_[static_cast<size_t>(column)].type == Type::floats) {
    return out;  // of lists the statistics are the elements'
  }
  // Statistics that cannot be read are as good as none: the values themselves decide then.
  const auto read = [&]() -> Result<void> {
    const auto group = metadata_->RowGroup(row_group);
    const auto statistics = group->ColumnChunk(leaf)->statistics();
    if (statistics == nullptr) {
      return {};
    }
    if (statistics->HasNullCount()) {
      *nulls = statistics->null_count();
      out.all_null = *nulls == group->num_rows();
    }
    if (statistics->HasMinMax()) {
      std::shared_ptr<arrow::Scalar> min;
      std::shared_ptr<arrow::Scalar> max;
      HR_ARROW_OK(parquet::arrow::StatisticsAsScalars(*statistics, &min, &max), path_);
      const auto keep = [](const arrow::Scalar& scalar) {
        Value value = value_of(scalar);
        return value.index() == 0 ? std::optional<Value>() : std::optional<Value>(std::move(value));
      };
      out.min = keep(*min);
      out.max = keep(*max);
    }
    return {};
  };
  const Result<void> result = guarded(path_, read);
  return result.ok() ? out : Range();
}

Result<std::string> ArrowParquetFile::footer_hash(const ByteCounter& counter) const {
  return guarded(path_, [&]() -> Result<std::string> {
    HR_TRY(auto file, storage_.state().open(path_, counter));
    HR_ARROW(const int64_t bytes, file->GetSize(), path_);
    constexpr int64_t kTail = 8;  // length of the footer and the magic
    const int64_t footer = std::min<int64_t>(bytes, int64_t{metadata_->size()} + kTail);
    HR_ARROW(const auto buffer, file->ReadAt(bytes - footer, footer), path_);
    return base::hex(base::xxh3_128(
        std::as_bytes(std::span(buffer->data(), static_cast<size_t>(buffer->size())))));
  });
}

Result<std::unique_ptr<RowGroupRows>> ArrowParquetFile::read(int row_group,
                                                             const std::vector<int>& columns,
                                                             int64_t batch_rows,
                                                             const ByteCounter& counter) const {
  const std::string where = in_row_group(path_, row_group);
  return reading(where, [&]() -> Result<std::unique_ptr<RowGroupRows>> {
    std::vector<int> leaves;
    Schema schema;
    for (const int column : columns) {
      leaves.push_back(leaves_[static_cast<size_t>(column)]);
      schema.push_back(schema_[static_cast<size_t>(column)]);
    }
    HR_TRY(auto file, storage_.state().open(path_, counter));
    HR_ARROW(auto reader,
             parquet::arrow::FileReader::Make(
                 arrow::default_memory_pool(),
                 parquet::ParquetFileReader::Open(file, reader_properties(), metadata_),
                 arrow_properties(columns, batch_rows)),
             where);
    HR_ARROW(auto batches, reader->GetRecordBatchReader({row_group}, leaves), where);
    return std::unique_ptr<RowGroupRows>(
        std::make_unique<ParquetRows>(where, row_group, std::move(schema), std::move(leaves),
                                      std::move(reader), std::move(batches)));
  });
}

/// Whether a file that cannot be read was written as Parquet at all ("PARE": encrypted).
bool begins_as_parquet(const Storage& storage, const std::string& path,
                       const ByteCounter& counter) {
  std::array<char, 4> begin{};
  const auto stream = storage.stream(path, false, counter);
  const auto count = stream.ok() ? (*stream)->read(begin) : Result<int64_t>(int64_t{0});
  const std::string_view magic(begin.data(), begin.size());
  return !count.ok() || magic == "PAR1" || magic == "PARE";
}

}  // namespace

Result<std::shared_ptr<const ParquetFile>> ParquetFile::open(const Storage& storage,
                                                             const std::string& path, int64_t bytes,
                                                             const ByteCounter& counter) {
  auto opened = reading(path, [&]() -> Result<std::shared_ptr<const ParquetFile>> {
    HR_TRY(auto file, storage.state().open(path, counter));
    if (bytes == 0) {
      return told(
          Error{Errc::corrupt, path + ": the file is empty; a Parquet file has 12 bytes at least"});
    }
    const auto reader = parquet::ParquetFileReader::Open(file, reader_properties());
    auto out = std::make_shared<ArrowParquetFile>(storage, path, reader->metadata());
    HR_TRY(out->learn());
    return std::shared_ptr<const ParquetFile>(std::move(out));
  });
  const bool damaged = bytes > 0 && !opened.ok() && opened.error().code() == Errc::corrupt;
  if (damaged && !begins_as_parquet(storage, path, counter)) {
    return Error{Errc::corrupt, path +
                                    ": it does not begin with PAR1 and so is no Parquet file; "
                                    "name its format, or take it out of the table"};
  }
  return opened;
}

}  // namespace headrace::lake::scan
