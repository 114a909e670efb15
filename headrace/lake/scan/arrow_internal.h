// SPDX-License-Identifier: Apache-2.0
// Between Arrow and our plain types; for the files of this folder alone, because it includes Arrow.
#pragma once

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/type_fwd.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/result.h"
#include "headrace/lake/column.h"
#include "headrace/lake/scan/storage_internal.h"

namespace headrace::lake::scan {

struct Storage::State {
  std::shared_ptr<arrow::fs::FileSystem> system;
  /// The file for random access; what is read of it is counted.
  Result<std::shared_ptr<arrow::io::RandomAccessFile>> open(const std::string& path,
                                                            ByteCounter counter) const;
};

/// `where: message`. Arrow's Invalid is corrupt here: it comes from bytes of a file.
Error arrow_error(const arrow::Status& status, std::string_view where);

/// Run `body`, which returns a Result, and turn what Arrow and Parquet throw into an Error.
template <typename Body>
auto guarded(std::string_view where, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{Errc::out_of_memory, std::string(where) + ": not enough memory"};
  } catch (const std::exception& thrown) {
    return Error{Errc::corrupt, std::string(where) + ": " + thrown.what()};
  }
}

/// Our type for an Arrow field.
Field field_of(const arrow::Field& field);
/// Append the values of `array` to `column`, whose field is field_of(its field) or null.
/// `invalid_argument` when a value does not fit (unsigned above 2^63, stamps beyond microseconds).
Result<Column> column_of(const Field& field, const arrow::Array& array);
Result<Batch> batch_of(const Schema& schema, const arrow::RecordBatch& batch);
/// nullopt for types that have no value of ours.
Value value_of(const arrow::Scalar& scalar);

/// The other way. Texts become plain strings, as other programs expect them.
std::shared_ptr<arrow::Schema> arrow_schema(const Schema& schema);
/// Rows [begin, begin + count) of `batch`. `invalid_argument` when texts exceed 2 GiB.
Result<std::shared_ptr<arrow::RecordBatch>> arrow_batch(const Batch& batch, int64_t begin,
                                                        int64_t count);

/// An Arrow output stream over a sink of ours.
std::shared_ptr<arrow::io::OutputStream> arrow_output(ByteSink* sink);
/// `error` as Arrow carries it; its message comes back in arrow_error.
arrow::Status arrow_status(const Error& error);

}  // namespace headrace::lake::scan

#define HR_ARROW_CONCAT_INNER(a, b) a##b
#define HR_ARROW_CONCAT(a, b) HR_ARROW_CONCAT_INNER(a, b)
/// HR_ARROW(auto x, expr, where): the value of an arrow::Result, or an Error upward.
#define HR_ARROW_INNER(tmp, decl, expr, where)                       \
  auto tmp = (expr);                                                 \
  if (!tmp.ok()) [[unlikely]] {                                      \
    return ::headrace::lake::scan::arrow_error(tmp.status(), where); \
  }                                                                  \
  decl = std::move(tmp).ValueUnsafe()
#define HR_ARROW(decl, expr, where) \
  HR_ARROW_INNER(HR_ARROW_CONCAT(hr_arrow_, __LINE__), decl, expr, where)
/// HR_ARROW_OK(expr, where): for an arrow::Status.
#define HR_ARROW_OK(expr, where)                                    \
  do {                                                              \
    const ::arrow::Status hr_status = (expr);                       \
    if (!hr_status.ok()) [[unlikely]] {                             \
      return ::headrace::lake::scan::arrow_error(hr_status, where); \
    }                                                               \
  } while (false)
