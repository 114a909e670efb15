// SPDX-License-Identifier: Apache-2.0
// Tables across the border of Python: anything with __arrow_c_stream__ in, capsules out.
#pragma once

#include "python/src/border.h"

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>

#include "headrace/lake/arrow_c.h"

namespace headrace::python {

/// The rows of a pandas or polars frame, a pyarrow table or reader, or whatever else gives an Arrow
/// stream. The GIL is held.
inline std::unique_ptr<lake::BatchReader> reader_of_object(const nb::object& table) {
  if (!nb::hasattr(table, "__arrow_c_stream__")) {
    const std::string type = nb::cast<std::string>(table.type().attr("__name__"));
    throw Raised(Error(Errc::invalid_argument,
                       "expected a table with __arrow_c_stream__, such as a pandas or polars frame "
                       "(pandas needs pyarrow for it) or a pyarrow table; found " +
                           type));
  }
  const nb::object capsule = table.attr("__arrow_c_stream__")();
  auto* stream =
      static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
  if (stream == nullptr) {
    throw nb::python_error();
  }
  return or_throw(lake::import_stream(stream));  // takes it over: the capsule is empty then
}

/// A capsule that owns the stream of `reader`; the GIL is held.
inline nb::object capsule_of_reader(std::unique_ptr<lake::BatchReader> reader) {
  auto stream = std::make_unique<ArrowArrayStream>();
  or_throw(lake::export_stream(std::move(reader), stream.get()));
  return nb::capsule(stream.release(), "arrow_array_stream", [](void* pointer) noexcept {
    const std::unique_ptr<ArrowArrayStream> owned(static_cast<ArrowArrayStream*>(pointer));
    if (owned->release != nullptr) {
      owned->release(owned.get());
    }
  });
}

}  // namespace headrace::python
