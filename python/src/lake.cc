// SPDX-License-Identifier: Apache-2.0
// Tables of headrace.lake: convert and call.
#include "python/src/arrow.h"
#include "python/src/border.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/lake/table.h"
#include "headrace/lake/write.h"

namespace headrace::python {

namespace {

/// Rows in memory, given out as often as asked.
struct Rows {
  std::shared_ptr<const lake::Batch> batch;
  lake::ReadStats stats;
};

/// A stream that can be taken once.
struct Stream {
  std::unique_ptr<lake::BatchReader> reader;
};

using Where = std::vector<nb::tuple>;

lake::Value value_of(const nb::handle& value) {
  if (value.is_none()) {
    throw Raised(Error(Errc::invalid_argument, "a condition cannot compare with None"));
  }
  if (nb::isinstance<nb::bool_>(value)) {
    return nb::cast<bool>(value);
  }
  if (nb::isinstance<nb::int_>(value)) {
    return nb::cast<int64_t>(value);
  }
  if (nb::isinstance<nb::float_>(value)) {
    return nb::cast<double>(value);
  }
  if (nb::hasattr(value, "isoformat")) {  // datetime, date, pandas.Timestamp
    return nb::cast<std::string>(value.attr("isoformat")());
  }
  return nb::cast<std::string>(nb::str(value));
}

lake::Op op_of(const std::string& text) {
  constexpr std::pair<std::string_view, lake::Op> kKnown[] = {
      {"==", lake::Op::equal},      {"=", lake::Op::equal},   {"<", lake::Op::less},
      {"<=", lake::Op::less_equal}, {">", lake::Op::greater}, {">=", lake::Op::greater_equal},
      {"in", lake::Op::in}};
  for (const auto& [name, op] : kKnown) {
    if (name == text) {
      return op;
    }
  }
  throw Raised(
      Error(Errc::invalid_argument, "operator \"" + text + "\": expected one of == < <= > >= in"));
}

lake::Predicate predicate_of(const Where& where) {
  lake::Predicate out;
  for (const nb::tuple& condition : where) {
    if (condition.size() != 3) {
      throw Raised(Error(Errc::invalid_argument,
                         "a condition is (column, operator, value); found a tuple of " +
                             std::to_string(condition.size())));
    }
    lake::Condition one;
    one.column = nb::cast<std::string>(condition[0]);
    one.op = op_of(nb::cast<std::string>(condition[1]));
    if (one.op == lake::Op::in) {
      for (const nb::handle value : nb::iter(condition[2])) {
        one.values.push_back(value_of(value));
      }
    } else {
      one.values.push_back(value_of(condition[2]));
    }
    out.push_back(std::move(one));
  }
  return out;
}

lake::ReadOptions read_options(const std::vector<std::string>& columns, const Where& where,
                               int64_t rows_max, int64_t batch_rows) {
  return {.columns = columns,
          .predicate = predicate_of(where),
          .batch_rows = batch_rows,
          .rows_max = rows_max};
}

template <typename Enum, typename Name>
Enum enum_of(const std::string& text, std::initializer_list<Enum> all, const Name& name,
             const char* what) {
  std::string known;
  for (const Enum one : all) {
    if (name(one) == text) {
      return one;
    }
    known += (known.empty() ? "" : ", ") + std::string(name(one));
  }
  throw Raised(Error(Errc::invalid_argument,
                     std::string(what) + " \"" + text + "\": expected one of " + known));
}

lake::Type type_of(const std::string& text) {
  using lake::Type;
  return enum_of(
      text,
      {Type::int64, Type::float64, Type::string, Type::timestamp_us, Type::date, Type::boolean},
      lake::type_name, "type");
}

lake::Table open_table(const std::string& url, const std::string& format,
                       const std::map<std::string, std::string>& types, const std::string& zone,
                       bool allow_missing_columns) {
  using lake::Format;
  lake::TableOptions options;
  options.format = enum_of(
      format,
      {Format::automatic, Format::parquet, Format::csv, Format::wide_csv, Format::json_lines},
      lake::format_name, "format");
  for (const auto& [name, type] : types) {
    options.types[name] = type_of(type);
  }
  options.zone = zone;
  options.allow_missing_columns = allow_missing_columns;
  const nb::gil_scoped_release release;
  return or_throw(lake::Table::open(url, options));
}

nb::dict dict_of(const lake::ReadStats& stats) {
  nb::dict out;
  out["files_total"] = stats.files_total;
  out["files_read"] = stats.files_read;
  out["row_groups_total"] = stats.row_groups_total;
  out["row_groups_read"] = stats.row_groups_read;
  out["bytes_read"] = stats.bytes_read;
  out["rows_read"] = stats.rows_read;
  out["rows_returned"] = stats.rows_returned;
  return out;
}

nb::list list_of(const lake::Schema& schema) {
  nb::list out;
  for (const lake::Field& field : schema) {
    out.append(nb::make_tuple(field.name, std::string(lake::type_name(field.type)), field.zone,
                              field.file_type, field.partition));
  }
  return out;
}

nb::object object_of(const lake::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return nb::cast(*text);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return nb::cast(*real);
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return nb::cast(*flag);
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return nb::cast(*whole);
  }
  return nb::none();
}

Rows read_rows(const lake::Table& table, const std::vector<std::string>& columns,
               const Where& where, int64_t rows_max) {
  const lake::ReadOptions options = read_options(columns, where, rows_max, 65536);
  const nb::gil_scoped_release release;
  Rows out;
  out.batch = std::make_shared<lake::Batch>(or_throw(table.read(options, &out.stats)));
  return out;
}

nb::list distinct_values(const lake::Table& table, const std::string& column) {
  const lake::Distinct found = [&] {
    const nb::gil_scoped_release release;
    return or_throw(table.distinct(column));
  }();
  nb::list out;
  for (int64_t row = 0; row < found.values.rows(); ++row) {
    out.append(
        nb::make_tuple(object_of(found.values.value(row)), found.counts[static_cast<size_t>(row)]));
  }
  if (found.nulls > 0) {
    out.append(nb::make_tuple(nb::none(), found.nulls));
  }
  return out;
}

lake::Batch batch_of_object(const nb::object& table) {
  const std::unique_ptr<lake::BatchReader> reader = reader_of_object(table);
  const nb::gil_scoped_release release;
  return or_throw(lake::read_all(*reader));
}

void bind_rows(nb::module_& m) {
  nb::class_<Rows>(m, "LakeRows")
      .def("__len__", [](const Rows& self) { return self.batch->rows(); })
      .def("schema", [](const Rows& self) { return list_of(self.batch->schema()); })
      .def("stats", [](const Rows& self) { return dict_of(self.stats); })
      .def(
          "stream",
          [](const Rows& self) { return capsule_of_reader(lake::reader_of(*self.batch)); },
          "A capsule with the rows, as __arrow_c_stream__ gives it.");
  nb::class_<Stream>(m, "LakeStream").def("stream", [](Stream& self) {
    if (self.reader == nullptr) {
      throw Raised(Error(Errc::invalid_argument, "the stream was taken already; scan again"));
    }
    return capsule_of_reader(std::move(self.reader));
  });
}

}  // namespace

void bind_lake(nb::module_& m) {
  bind_rows(m);
  nb::class_<lake::Table>(m, "LakeTable")
      .def_static("open", &open_table, "url"_a, "format"_a, "types"_a, "zone"_a,
                  "allow_missing_columns"_a)
      .def("url", &lake::Table::url)
      .def("format",
           [](const lake::Table& self) { return std::string(format_name(self.format())); })
      .def("schema", [](const lake::Table& self) { return list_of(self.schema()); })
      .def("rows", &lake::Table::rows)
      .def("files",
           [](const lake::Table& self) {
             nb::list out;
             for (const lake::FileInfo& file : self.files()) {
               out.append(nb::make_tuple(file.name, file.bytes, file.rows, file.row_groups,
                                         file.written_by));
             }
             return out;
           })
      .def("sorted_by", &lake::Table::sorted_by)
      .def(
          "digest", [](const lake::Table& self) { return or_throw(self.snapshot()).digest; },
          release_gil())
      .def("read", &read_rows, "columns"_a, "where"_a, "rows_max"_a)
      .def(
          "scan",
          [](const lake::Table& self, const std::vector<std::string>& columns, const Where& where,
             int64_t rows_max, int64_t batch_rows) {
            return Stream{or_throw(self.scan(read_options(columns, where, rows_max, batch_rows)))};
          },
          "columns"_a, "where"_a, "rows_max"_a, "batch_rows"_a)
      .def("distinct", &distinct_values, "column"_a);
  m.def(
      "lake_write_parquet",
      [](const std::string& path, const nb::object& table, const std::string& compression,
         int64_t row_group_rows, const std::string& group_by) {
        const lake::Batch batch = batch_of_object(table);
        const nb::gil_scoped_release release;
        or_throw(lake::write_parquet(
            path, batch,
            {.row_group_rows = row_group_rows, .compression = compression, .group_by = group_by}));
      },
      "path"_a, "table"_a, "compression"_a, "row_group_rows"_a, "group_by"_a);
  m.def(
      "lake_write_csv",
      [](const std::string& path, const nb::object& table) {
        const lake::Batch batch = batch_of_object(table);
        const nb::gil_scoped_release release;
        or_throw(lake::write_csv(path, batch));
      },
      "path"_a, "table"_a);
}

}  // namespace headrace::python
