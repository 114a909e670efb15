// SPDX-License-Identifier: Apache-2.0
// Plain columns into Arrow arrays, and Arrow output streams over our sinks.
#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/io/compressed.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/compression.h>

#include "headrace/lake/scan/arrow_internal.h"

namespace headrace::lake::scan {

namespace {

constexpr std::string_view kWhere = "making Arrow arrays";

std::shared_ptr<arrow::DataType> arrow_type(const Field& field) {
  switch (field.type) {
    case Type::int64: return arrow::int64();
    case Type::float64: return arrow::float64();
    case Type::string: return arrow::utf8();
    case Type::timestamp_us: return arrow::timestamp(arrow::TimeUnit::MICRO, field.zone);
    case Type::date: return arrow::date32();
    case Type::boolean: return arrow::boolean();
    case Type::floats:
      return field.width > 0 ? arrow::fixed_size_list(arrow::float32(), field.width)
                             : arrow::list(arrow::float32());
    case Type::null:
    case Type::unsupported: break;
  }
  return arrow::null();
}

/// Append rows [begin, end) to `builder`; `add(row)` appends one that is not null.
template <typename Builder, typename Add>
arrow::Status append_rows(const Column& column, int64_t begin, int64_t end, Builder& builder,
                          const Add& add) {
  ARROW_RETURN_NOT_OK(builder.Reserve(end - begin));
  for (int64_t row = begin; row < end; ++row) {
    ARROW_RETURN_NOT_OK(column.is_null(row) ? builder.AppendNull()
                                            : add(builder, static_cast<size_t>(row)));
  }
  return arrow::Status::OK();
}

template <typename Builder, typename Add>
arrow::Result<std::shared_ptr<arrow::Array>> build(const Column& column, int64_t begin, int64_t end,
                                                   Builder&& builder, const Add& add) {
  ARROW_RETURN_NOT_OK(append_rows(column, begin, end, builder, add));
  return builder.Finish();
}

arrow::Result<std::shared_ptr<arrow::Array>> lists_of(const Column& column, int64_t begin,
                                                      int64_t end) {
  const auto pool = arrow::default_memory_pool();
  const auto values = std::make_shared<arrow::FloatBuilder>(pool);
  const auto fill = [&](auto&& out) -> arrow::Result<std::shared_ptr<arrow::Array>> {
    for (int64_t row = begin; row < end; ++row) {
      const std::span<const float> list = column.list(row);
      ARROW_RETURN_NOT_OK(column.is_null(row) ? out.AppendNull() : out.Append());
      if (!column.is_null(row)) {
        ARROW_RETURN_NOT_OK(values->AppendValues(list.data(), std::ssize(list)));
      }
    }
    return out.Finish();
  };
  return column.field.width > 0
             ? fill(arrow::FixedSizeListBuilder(pool, values, column.field.width))
             : fill(arrow::ListBuilder(pool, values));
}

arrow::Result<std::shared_ptr<arrow::Array>> array_of(const Column& column, int64_t begin,
                                                      int64_t end) {
  const auto pool = arrow::default_memory_pool();
  switch (column.field.type) {
    case Type::int64:
      return build(column, begin, end, arrow::Int64Builder(),
                   [&](auto& out, size_t row) { return out.Append(column.integers[row]); });
    case Type::float64:
      return build(column, begin, end, arrow::DoubleBuilder(),
                   [&](auto& out, size_t row) { return out.Append(column.reals[row]); });
    case Type::string:
      return build(column, begin, end, arrow::StringBuilder(), [&](auto& out, size_t row) {
        return out.Append(column.dictionary[static_cast<size_t>(column.codes[row])]);
      });
    case Type::timestamp_us:
      return build(column, begin, end, arrow::TimestampBuilder(arrow_type(column.field), pool),
                   [&](auto& out, size_t row) { return out.Append(column.integers[row]); });
    case Type::date:
      return build(column, begin, end, arrow::Date32Builder(), [&](auto& out, size_t row) {
        return out.Append(static_cast<int32_t>(column.integers[row]));
      });
    case Type::boolean:
      return build(column, begin, end, arrow::BooleanBuilder(),
                   [&](auto& out, size_t row) { return out.Append(column.integers[row] != 0); });
    case Type::floats: return lists_of(column, begin, end);
    case Type::null:
    case Type::unsupported: break;
  }
  return std::make_shared<arrow::NullArray>(end - begin);
}

class SinkStream final : public arrow::io::OutputStream {
 public:
  explicit SinkStream(ByteSink* sink) : sink_(sink) {}
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> Tell() const override { return written_; }
  arrow::Status Write(const void* bytes, int64_t count) override {
    if (failed_) {
      return arrow::Status::OK();  // told once: closing in a destructor would print it again
    }
    const Result<void> result =
        sink_->write({static_cast<const char*>(bytes), static_cast<size_t>(count)});
    if (!result.ok()) {
      failed_ = true;
      return arrow_status(result.error());
    }
    written_ += count;
    return arrow::Status::OK();
  }

 private:
  ByteSink* sink_;
  int64_t written_ = 0;
  bool closed_ = false;
  bool failed_ = false;
};

class GzipSink final : public ByteSink {
 public:
  GzipSink(std::unique_ptr<arrow::util::Codec> codec,
           std::shared_ptr<arrow::io::CompressedOutputStream> out)
      : codec_(std::move(codec)), out_(std::move(out)) {}
  Result<void> write(std::string_view bytes) override {
    HR_ARROW_OK(out_->Write(bytes.data(), std::ssize(bytes)), "packing");
    return {};
  }
  Result<void> finish() override {
    HR_ARROW_OK(out_->Close(), "packing");
    return {};
  }

 private:
  std::unique_ptr<arrow::util::Codec> codec_;
  std::shared_ptr<arrow::io::CompressedOutputStream> out_;
};

}  // namespace

std::shared_ptr<arrow::Schema> arrow_schema(const Schema& schema) {
  arrow::FieldVector fields;
  for (const Field& field : schema) {
    fields.push_back(arrow::field(field.name, arrow_type(field)));
  }
  return arrow::schema(std::move(fields));
}

Result<std::shared_ptr<arrow::RecordBatch>> arrow_batch(const Batch& batch, int64_t begin,
                                                        int64_t count) {
  arrow::ArrayVector arrays;
  for (const Column& column : batch.columns) {
    auto array = array_of(column, begin, begin + count);
    if (!array.ok()) {
      Error error = arrow_error(array.status(), kWhere);
      return array.status().IsCapacityError() ? Error{Errc::invalid_argument, error.message()}
                                              : error;
    }
    arrays.push_back(*std::move(array));
  }
  return arrow::RecordBatch::Make(arrow_schema(batch.schema()), count, std::move(arrays));
}

std::shared_ptr<arrow::io::OutputStream> arrow_output(ByteSink* sink) {
  return std::make_shared<SinkStream>(sink);
}

Result<std::unique_ptr<ByteSink>> gzip_sink(ByteSink* below) {
  HR_ARROW(auto codec, arrow::util::Codec::Create(arrow::Compression::GZIP), "gzip");
  HR_ARROW(auto out, arrow::io::CompressedOutputStream::Make(codec.get(), arrow_output(below)),
           "gzip");
  return std::unique_ptr<ByteSink>(std::make_unique<GzipSink>(std::move(codec), std::move(out)));
}

}  // namespace headrace::lake::scan
