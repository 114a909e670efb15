// SPDX-License-Identifier: Apache-2.0
// Arrow arrays and scalars into plain columns and values.
#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/util/decimal.h>
#include <arrow/util/float16.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "headrace/lake/builder_internal.h"
#include "headrace/lake/scan/arrow_internal.h"
#include "headrace/lake/stamp.h"

namespace headrace::lake::scan {

namespace {

/// Microseconds of `value` in `unit`; nullopt when they do not fit. Nanoseconds are cut downwards.
std::optional<int64_t> micros_of(int64_t value, arrow::TimeUnit::type unit) {
  int64_t out = 0;
  switch (unit) {
    case arrow::TimeUnit::SECOND:
      return __builtin_mul_overflow(value, 1000000, &out) ? std::nullopt : std::optional(out);
    case arrow::TimeUnit::MILLI:
      return __builtin_mul_overflow(value, 1000, &out) ? std::nullopt : std::optional(out);
    case arrow::TimeUnit::MICRO: return value;
    case arrow::TimeUnit::NANO: {
      const int64_t cut = value / 1000;
      return value % 1000 < 0 ? cut - 1 : cut;
    }
  }
  return std::nullopt;
}

bool holds_lists(arrow::Type::type id) {
  return id == arrow::Type::LIST || id == arrow::Type::LARGE_LIST ||
         id == arrow::Type::FIXED_SIZE_LIST;
}

Type type_of(const arrow::DataType& type) {
  if (holds_lists(type.id())) {
    const auto id = static_cast<const arrow::BaseListType&>(type).value_type()->id();
    return id == arrow::Type::FLOAT || id == arrow::Type::DOUBLE ? Type::floats : Type::unsupported;
  }
  switch (type.id()) {
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64: return Type::int64;
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL32:
    case arrow::Type::DECIMAL64:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256: return Type::float64;
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW: return Type::string;
    case arrow::Type::TIMESTAMP: return Type::timestamp_us;
    case arrow::Type::DATE32:
    case arrow::Type::DATE64: return Type::date;
    case arrow::Type::BOOL: return Type::boolean;
    case arrow::Type::NA: return Type::null;
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryType&>(type);
      return type_of(*dictionary.value_type()) == Type::string ? Type::string : Type::unsupported;
    }
    default: return Type::unsupported;
  }
}

/// Fill integers or reals of `out` from an array whose values are all there.
template <typename Array, typename Convert, typename Out>
void fill(const arrow::Array& array, const Convert& convert, std::vector<Out>* out) {
  const auto& typed = static_cast<const Array&>(array);
  out->resize(static_cast<size_t>(typed.length()));
  for (int64_t i = 0; i < typed.length(); ++i) {
    (*out)[static_cast<size_t>(i)] = convert(typed, i);
  }
}

template <typename Array>
void fill_integers(const arrow::Array& array, Column* out) {
  fill<Array>(
      array, [](const Array& a, int64_t i) { return static_cast<int64_t>(a.Value(i)); },
      &out->integers);
}

template <typename Array>
void fill_texts(const arrow::Array& array, ColumnBuilder* out) {
  const auto& typed = static_cast<const Array&>(array);
  for (int64_t i = 0; i < typed.length(); ++i) {
    if (typed.IsNull(i)) {
      out->add_null();
    } else {
      out->add_text(typed.GetView(i));
    }
  }
}

Result<void> fill_stamps(const arrow::Array& array, Column* out) {
  const auto& typed = static_cast<const arrow::TimestampArray&>(array);
  const auto unit = static_cast<const arrow::TimestampType&>(*array.type()).unit();
  out->integers.resize(static_cast<size_t>(typed.length()));
  for (int64_t i = 0; i < typed.length(); ++i) {
    if (typed.IsNull(i)) {
      continue;
    }
    const auto us = micros_of(typed.Value(i), unit);
    if (!us) {
      return Error{Errc::invalid_argument,
                   fmt::format("column \"{}\" ({}): the value {} in row {} does not fit "
                               "microseconds in 64 bits",
                               out->field.name, array.type()->ToString(), typed.Value(i), i)};
    }
    out->integers[static_cast<size_t>(i)] = *us;
  }
  return {};
}

Result<void> fill_unsigned(const arrow::Array& array, Column* out) {
  const auto& typed = static_cast<const arrow::UInt64Array&>(array);
  out->integers.resize(static_cast<size_t>(typed.length()));
  for (int64_t i = 0; i < typed.length(); ++i) {
    const uint64_t value = typed.IsNull(i) ? 0 : typed.Value(i);
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Error{
          Errc::invalid_argument,
          fmt::format("column \"{}\" (uint64): the value {} in row {} does not fit a signed "
                      "integer of 64 bits",
                      out->field.name, value, i)};
    }
    out->integers[static_cast<size_t>(i)] = static_cast<int64_t>(value);
  }
  return {};
}

template <typename Array, typename Decimal>
void fill_decimals(const arrow::Array& array, Column* out) {
  const int32_t scale = static_cast<const arrow::DecimalType&>(*array.type()).scale();
  fill<Array>(
      array,
      [scale](const Array& a, int64_t i) {
        return a.IsNull(i) ? 0.0 : Decimal(a.GetValue(i)).ToDouble(scale);
      },
      &out->reals);
}

/// Codes of a dictionary array; texts get their code at first use, so that unused ones vanish.
Result<void> fill_codes(const arrow::Array& array, ColumnBuilder* out) {
  const auto& typed = static_cast<const arrow::DictionaryArray&>(array);
  Field field = out->field();
  HR_TRY(const Column words, column_of(field, *typed.dictionary()));
  for (int64_t i = 0; i < typed.length(); ++i) {
    const int64_t code = typed.IsNull(i) ? -1 : typed.GetValueIndex(i);
    if (code >= words.rows()) {
      return Error{Errc::corrupt, fmt::format("column \"{}\": code {} in a dictionary of {}",
                                              field.name, code, words.rows())};
    }
    if (code < 0 || words.is_null(code)) {
      out->add_null();
    } else {
      out->add_text(words.dictionary[static_cast<size_t>(words.codes[static_cast<size_t>(code)])]);
    }
  }
  return {};
}

Result<Column> text_column(const Field& field, const arrow::Array& array) {
  ColumnBuilder builder(field);
  switch (array.type_id()) {
    case arrow::Type::STRING: fill_texts<arrow::StringArray>(array, &builder); break;
    case arrow::Type::LARGE_STRING: fill_texts<arrow::LargeStringArray>(array, &builder); break;
    case arrow::Type::STRING_VIEW: fill_texts<arrow::StringViewArray>(array, &builder); break;
    default: HR_TRY(fill_codes(array, &builder));
  }
  return builder.take();
}

Result<void> fill_numbers(const arrow::Array& array, Column* out) {
  switch (array.type_id()) {
    case arrow::Type::INT8: fill_integers<arrow::Int8Array>(array, out); return {};
    case arrow::Type::INT16: fill_integers<arrow::Int16Array>(array, out); return {};
    case arrow::Type::INT32: fill_integers<arrow::Int32Array>(array, out); return {};
    case arrow::Type::INT64: fill_integers<arrow::Int64Array>(array, out); return {};
    case arrow::Type::UINT8: fill_integers<arrow::UInt8Array>(array, out); return {};
    case arrow::Type::UINT16: fill_integers<arrow::UInt16Array>(array, out); return {};
    case arrow::Type::UINT32: fill_integers<arrow::UInt32Array>(array, out); return {};
    case arrow::Type::UINT64: return fill_unsigned(array, out);
    case arrow::Type::BOOL: fill_integers<arrow::BooleanArray>(array, out); return {};
    case arrow::Type::DATE32: fill_integers<arrow::Date32Array>(array, out); return {};
    case arrow::Type::TIMESTAMP: return fill_stamps(array, out);
    case arrow::Type::DATE64:
      fill<arrow::Date64Array>(
          array,
          [](const arrow::Date64Array& a, int64_t i) {
            return (a.Value(i) - (a.Value(i) < 0 ? 86399999 : 0)) / 86400000;
          },
          &out->integers);
      return {};
    case arrow::Type::HALF_FLOAT:
      fill<arrow::HalfFloatArray>(
          array,
          [](const arrow::HalfFloatArray& a, int64_t i) {
            return static_cast<double>(arrow::util::Float16::FromBits(a.Value(i)).ToFloat());
          },
          &out->reals);
      return {};
    case arrow::Type::FLOAT:
      fill<arrow::FloatArray>(
          array, [](const auto& a, int64_t i) { return static_cast<double>(a.Value(i)); },
          &out->reals);
      return {};
    case arrow::Type::DOUBLE:
      fill<arrow::DoubleArray>(
          array, [](const auto& a, int64_t i) { return a.Value(i); }, &out->reals);
      return {};
    case arrow::Type::DECIMAL32:
      fill_decimals<arrow::Decimal32Array, arrow::Decimal32>(array, out);
      return {};
    case arrow::Type::DECIMAL64:
      fill_decimals<arrow::Decimal64Array, arrow::Decimal64>(array, out);
      return {};
    case arrow::Type::DECIMAL128:
      fill_decimals<arrow::Decimal128Array, arrow::Decimal128>(array, out);
      return {};
    case arrow::Type::DECIMAL256:
      fill_decimals<arrow::Decimal256Array, arrow::Decimal256>(array, out);
      return {};
    default:
      return Error{Errc::unsupported, fmt::format("column \"{}\" has type {}, which cannot be read",
                                                  out->field.name, array.type()->ToString())};
  }
}

template <typename Values>
Result<void> add_floats(const arrow::Array& array, int64_t begin, int64_t end, Column* out) {
  const auto& values = static_cast<const Values&>(array);
  for (int64_t i = begin; i < end; ++i) {
    const auto value = static_cast<double>(values.Value(i));
    if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max()) {
      return Error{Errc::invalid_argument,
                   fmt::format("column \"{}\" ({}): the value {} in row {} does not fit a float of "
                               "32 bits",
                               out->field.name, out->field.file_type, value, out->ends.size())};
    }
    out->lists.push_back(values.IsNull(i) ? std::numeric_limits<float>::quiet_NaN()
                                          : static_cast<float>(value));
  }
  return {};
}

/// Lists of any lengths; a null in one is NaN.
template <typename Lists>
Result<Column> list_column(const Field& field, const arrow::Array& array) {
  const auto& lists = static_cast<const Lists&>(array);
  const arrow::Array& values = *lists.values();
  const bool wide = values.type_id() == arrow::Type::DOUBLE;
  Column out;
  out.field = field;
  for (int64_t row = 0; row < lists.length(); ++row) {
    if (!lists.IsNull(row)) {
      const int64_t begin = lists.value_offset(row);
      const int64_t end = begin + lists.value_length(row);
      HR_TRY(wide ? add_floats<arrow::DoubleArray>(values, begin, end, &out)
                  : add_floats<arrow::FloatArray>(values, begin, end, &out));
    }
    out.ends.push_back(std::ssize(out.lists));
    if (lists.null_count() > 0) {
      out.validity.push_back(lists.IsNull(row) ? 0 : 1);
    }
  }
  return out;
}

Result<Column> floats_column(const Field& field, const arrow::Array& array) {
  switch (array.type_id()) {
    case arrow::Type::LARGE_LIST: return list_column<arrow::LargeListArray>(field, array);
    case arrow::Type::FIXED_SIZE_LIST: return list_column<arrow::FixedSizeListArray>(field, array);
    default: return list_column<arrow::ListArray>(field, array);
  }
}

}  // namespace

Field field_of(const arrow::Field& field) {
  Field out;
  out.name = field.name();
  out.type = type_of(*field.type());
  out.file_type = field.type()->ToString();
  if (field.type()->id() == arrow::Type::TIMESTAMP) {
    out.zone = static_cast<const arrow::TimestampType&>(*field.type()).timezone();
  }
  return out;
}

Result<Column> column_of(const Field& field, const arrow::Array& array) {
  if (type_of(*array.type()) == Type::string) {
    return text_column(field, array);
  }
  if (type_of(*array.type()) == Type::floats) {
    return floats_column(field, array);
  }
  Column out;
  out.field = field;
  if (array.type_id() == arrow::Type::NA) {
    ColumnBuilder nulls(field);
    nulls.add_null(array.length());
    return nulls.take();
  }
  HR_TRY(fill_numbers(array, &out));
  if (array.null_count() > 0) {
    out.validity.resize(static_cast<size_t>(array.length()), 1);
    for (int64_t i = 0; i < array.length(); ++i) {
      if (array.IsNull(i)) {
        const auto at = static_cast<size_t>(i);
        out.validity[at] = 0;
        if (out.field.type == Type::float64) {
          out.reals[at] = std::numeric_limits<double>::quiet_NaN();
        } else {
          out.integers[at] = 0;  // what lies under a null is not ours to show
        }
      }
    }
  }
  return out;
}

Result<Batch> batch_of(const Schema& schema, const arrow::RecordBatch& batch) {
  Batch out;
  out.columns.reserve(schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    HR_TRY(auto column, column_of(schema[i], *batch.column(static_cast<int>(i))));
    out.columns.push_back(std::move(column));
  }
  return out;
}

namespace {

Value number_of(const arrow::Scalar& scalar) {
  switch (scalar.type->id()) {
    case arrow::Type::INT8: return int64_t{static_cast<const arrow::Int8Scalar&>(scalar).value};
    case arrow::Type::INT16: return int64_t{static_cast<const arrow::Int16Scalar&>(scalar).value};
    case arrow::Type::INT32: return int64_t{static_cast<const arrow::Int32Scalar&>(scalar).value};
    case arrow::Type::INT64: return static_cast<const arrow::Int64Scalar&>(scalar).value;
    case arrow::Type::UINT8: return int64_t{static_cast<const arrow::UInt8Scalar&>(scalar).value};
    case arrow::Type::UINT16: return int64_t{static_cast<const arrow::UInt16Scalar&>(scalar).value};
    case arrow::Type::UINT32: return int64_t{static_cast<const arrow::UInt32Scalar&>(scalar).value};
    case arrow::Type::UINT64: {
      const uint64_t value = static_cast<const arrow::UInt64Scalar&>(scalar).value;
      return value >> 63U == 0 ? Value(static_cast<int64_t>(value)) : Value();
    }
    case arrow::Type::FLOAT: return double{static_cast<const arrow::FloatScalar&>(scalar).value};
    case arrow::Type::DOUBLE: return static_cast<const arrow::DoubleScalar&>(scalar).value;
    case arrow::Type::DATE32: return int64_t{static_cast<const arrow::Date32Scalar&>(scalar).value};
    case arrow::Type::BOOL: return static_cast<const arrow::BooleanScalar&>(scalar).value;
    case arrow::Type::TIMESTAMP: {
      const auto us = micros_of(static_cast<const arrow::TimestampScalar&>(scalar).value,
                                static_cast<const arrow::TimestampType&>(*scalar.type).unit());
      return us ? Value(*us) : Value();
    }
    default: return {};
  }
}

}  // namespace

Value value_of(const arrow::Scalar& scalar) {
  if (!scalar.is_valid) {
    return {};
  }
  switch (scalar.type->id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY:
      return std::string(static_cast<const arrow::BaseBinaryScalar&>(scalar).view());
    default: {
      Value value = number_of(scalar);
      const auto* real = std::get_if<double>(&value);
      return real != nullptr && std::isnan(*real) ? Value() : value;
    }
  }
}

}  // namespace headrace::lake::scan
