// SPDX-License-Identifier: Apache-2.0
// Plain columns: what a table gives and takes, whatever file it lies in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::lake {

/// Every file type is read as one of these; narrower integers and floats are widened.
enum class Type : uint8_t {
  int64,         ///< integers of any width
  float64,       ///< floats of any width, decimals
  string,        ///< UTF-8 text, dictionary-coded
  timestamp_us,  ///< microseconds since the epoch; `Field::zone` says of what
  date,          ///< days since the epoch
  boolean,       ///< 0 or 1
  floats,        ///< lists of 32-bit floats; 64-bit ones are narrowed
  null,          ///< a column without any value, which goes with every other type
  unsupported,   ///< other lists, structs, maps, binary, times of day: named in the schema, not
                 ///< readable
};

/// "int64", "float64", "string", "timestamp", "date", "boolean", "floats", "null",
/// "unsupported".
HR_API std::string_view type_name(Type type);

struct Field {
  std::string name = {};
  Type type = Type::null;
  /// For timestamps: "" = local time without a zone, else "UTC", "+02:00", "Europe/Berlin", ...
  /// Values with a zone are instants (UTC microseconds), values without count local wall time.
  std::string zone = {};
  std::string file_type = {};  ///< the type in the file's own words, e.g. "decimal128(10, 2)"
  int32_t width = 0;           ///< of floats: values in a row; 0: each row's own, as files are read
  bool partition = false;      ///< the value comes from the folder's name ("year=2015")

  bool operator==(const Field& other) const = default;
};

using Schema = std::vector<Field>;

/// Index of the column `name`, or -1.
HR_API int64_t find_field(const Schema& schema, std::string_view name);
/// `not_found`, listing the names that are there.
HR_API Error missing_column(const Schema& schema, std::string_view name, std::string_view where);

/// One value: timestamps and dates as int64 (microseconds, days). monostate is null.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string>;

/// Values of one column, one vector in use according to `field.type`.
struct HR_API Column {
  Field field = {};
  std::vector<int64_t> integers = {};        ///< int64, timestamp_us, date, boolean
  std::vector<double> reals = {};            ///< float64
  std::vector<float> lists = {};             ///< floats: the rows' values after one another
  std::vector<int64_t> ends = {};            ///< floats of width 0: where each row ends in `lists`
  std::vector<int32_t> codes = {};           ///< string: index into `dictionary`, -1 = null
  std::vector<std::string> dictionary = {};  ///< string: distinct values; every row's is there
  std::vector<uint8_t> validity = {};  ///< 1 = a value, 0 = null; empty = no nulls; not for string
  int64_t null_rows = 0;               ///< rows of a column of type null

  int64_t rows() const;
  bool is_null(int64_t row) const;
  /// The values of one row of floats; none of a null.
  std::span<const float> list(int64_t row) const;
  Value value(int64_t row) const;
  /// The value as text, in CSV's form; "" for null.
  std::string text(int64_t row) const;

 private:
  std::string list_text(int64_t row) const;  // values with a space between them
};

/// Rows: columns of one length.
struct HR_API Batch {
  std::vector<Column> columns;

  int64_t rows() const { return columns.empty() ? 0 : columns.front().rows(); }
  Schema schema() const;
  const Column* find(std::string_view name) const;
};

/// Append the rows of `more` (of the same type, or of type null) to `column`.
HR_API Result<void> append_column(Column* column, const Column& more);
/// Append the rows of `more`, whose columns have the same names in the same order.
HR_API Result<void> append_batch(Batch* batch, const Batch& more);
/// The rows of `batch` whose index is in `rows`, in that order.
HR_API Batch take_rows(const Batch& batch, const std::vector<int64_t>& rows);

}  // namespace headrace::lake
