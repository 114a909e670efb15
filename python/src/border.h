// SPDX-License-Identifier: Apache-2.0
// What every binding file needs at the border: an Error becomes a Python exception, the GIL is let
// go.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "headrace/base/result.h"

namespace headrace::python {

namespace nb = nanobind;
using namespace nb::literals;  // "name"_a

/// Carries an Error to the translator in module.cc, which raises the class of headrace._errors that
/// has its code. The GIL need not be held to throw it.
class Raised final : public std::exception {
 public:
  explicit Raised(Error error) : error_(std::move(error)) {}
  const char* what() const noexcept override { return error_.message().c_str(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

/// An instance of the class of headrace._errors that has its code, with its origin. Needs the GIL.
nb::object exception_of(const Error& error);

/// The value, or a Python exception.
template <typename T>
T or_throw(Result<T> result) {
  if (!result.ok()) {
    throw Raised(std::move(result).error());
  }
  return std::move(result).value();
}
inline void or_throw(Result<void> result) {
  if (!result.ok()) {
    throw Raised(std::move(result).error());
  }
}

/// Extra of `def`: the call runs without the GIL. Arguments are converted before and the result
/// after, so the body must touch no Python object.
using release_gil = nb::call_guard<nb::gil_scoped_release>;

// One per file; module.cc calls those that are there.
void bind_comm(nb::module_& m);
void bind_job(nb::module_& m);
void bind_lake(nb::module_& m);
void bind_forecast(nb::module_& m);
void bind_forecast_network(nb::module_& m);
void bind_registry(nb::module_& m);
void bind_flow(nb::module_& m);

}  // namespace headrace::python
