// SPDX-License-Identifier: Apache-2.0
#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <algorithm>

#include "headrace/lake/arrow_c.h"
#include "headrace/lake/scan/arrow_internal.h"

namespace headrace::lake {

namespace {

/// Batches of somebody else's stream. Columns of types we cannot read are left out.
class ImportedReader final : public BatchReader {
 public:
  explicit ImportedReader(std::shared_ptr<arrow::RecordBatchReader> batches)
      : batches_(std::move(batches)) {
    const auto schema = batches_->schema();
    for (int i = 0; i < schema->num_fields(); ++i) {
      Field field = scan::field_of(*schema->field(i));
      if (field.type != Type::unsupported) {
        schema_.push_back(std::move(field));
        columns_.push_back(i);
      }
    }
  }

  const Schema& schema() const override { return schema_; }
  const ReadStats& stats() const override { return stats_; }

  Result<std::optional<Batch>> next() override {
    return scan::guarded(kWhere, [&]() -> Result<std::optional<Batch>> {
      for (;;) {
        std::shared_ptr<arrow::RecordBatch> batch;
        HR_ARROW_OK(batches_->ReadNext(&batch), kWhere);
        if (batch == nullptr) {
          return std::optional<Batch>();
        }
        if (batch->num_rows() == 0) {
          continue;
        }
        Batch out;
        for (size_t i = 0; i < schema_.size(); ++i) {
          HR_TRY(auto column, scan::column_of(schema_[i], *batch->column(columns_[i])), kWhere);
          out.columns.push_back(std::move(column));
        }
        stats_.rows_read += batch->num_rows();
        stats_.rows_returned = stats_.rows_read;
        return std::optional<Batch>(std::move(out));
      }
    });
  }

 private:
  static constexpr const char* kWhere = "reading an Arrow stream";
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  Schema schema_;
  std::vector<int> columns_;
  ReadStats stats_;
};

/// Our batches as Arrow's reader; large ones in slices.
class ExportedReader final : public arrow::RecordBatchReader {
 public:
  explicit ExportedReader(std::unique_ptr<BatchReader> reader)
      : reader_(std::move(reader)), schema_(scan::arrow_schema(reader_->schema())) {}

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    constexpr int64_t kSliceRows = int64_t{1} << 20;
    if (row_ >= batch_.rows()) {
      auto next = reader_->next();
      if (!next.ok()) {
        return scan::arrow_status(next.error());
      }
      if (!*next) {
        *out = nullptr;
        return arrow::Status::OK();
      }
      batch_ = **std::move(next);
      row_ = 0;
    }
    const int64_t count = std::min(kSliceRows, batch_.rows() - row_);
    auto made = scan::arrow_batch(batch_, row_, count);
    if (!made.ok()) {
      return scan::arrow_status(made.error());
    }
    row_ += count;
    *out = *std::move(made);
    return arrow::Status::OK();
  }

 private:
  std::unique_ptr<BatchReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
  Batch batch_;
  int64_t row_ = 0;
};

class OneBatch final : public BatchReader {
 public:
  explicit OneBatch(Batch batch) : schema_(batch.schema()), batch_(std::move(batch)) {
    stats_.rows_returned = batch_.rows();
  }
  const Schema& schema() const override { return schema_; }
  const ReadStats& stats() const override { return stats_; }
  Result<std::optional<Batch>> next() override {
    if (given_ || batch_.rows() == 0) {
      return std::optional<Batch>();
    }
    given_ = true;
    return std::optional<Batch>(std::move(batch_));
  }

 private:
  Schema schema_;
  Batch batch_;
  ReadStats stats_;
  bool given_ = false;
};

}  // namespace

Result<std::unique_ptr<BatchReader>> import_stream(ArrowArrayStream* stream) {
  constexpr const char* kWhere = "importing an Arrow stream";
  if (stream == nullptr || stream->release == nullptr) {
    return Error{Errc::invalid_argument, "importing an Arrow stream: it was released already"};
  }
  return scan::guarded(kWhere, [&]() -> Result<std::unique_ptr<BatchReader>> {
    HR_ARROW(auto batches, arrow::ImportRecordBatchReader(stream), kWhere);
    return std::unique_ptr<BatchReader>(std::make_unique<ImportedReader>(std::move(batches)));
  });
}

Result<Batch> import_batch(ArrowArrayStream* stream) {
  HR_TRY(const auto reader, import_stream(stream));
  return read_all(*reader);
}

Result<void> export_stream(std::unique_ptr<BatchReader> reader, ArrowArrayStream* out) {
  constexpr const char* kWhere = "exporting an Arrow stream";
  return scan::guarded(kWhere, [&]() -> Result<void> {
    HR_ARROW_OK(
        arrow::ExportRecordBatchReader(std::make_shared<ExportedReader>(std::move(reader)), out),
        kWhere);
    return {};
  });
}

Result<void> export_batch(Batch batch, ArrowArrayStream* out) {
  return export_stream(reader_of(std::move(batch)), out);
}

std::unique_ptr<BatchReader> reader_of(Batch batch) {
  return std::make_unique<OneBatch>(std::move(batch));
}

}  // namespace headrace::lake
