// SPDX-License-Identifier: Apache-2.0
// The module headrace._native: the exception translator, then one binding function per plane.
#include "python/src/border.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

namespace headrace::python {

nb::object exception_of(const Error& error) {
  const nb::object errors = nb::module_::import_("headrace._errors");
  const std::string code(errc_name(error.code()));
  const nb::object type = errors.attr("BY_CODE")[code.c_str()];
  nb::object exception = type(error.message());
  if (error.origin().has_value()) {
    nb::dict origin;
    origin["rank"] = error.origin()->rank;
    origin["host"] = error.origin()->host;
    origin["pid"] = error.origin()->pid;
    origin["exit"] = error.origin()->exit;
    exception.attr("origin") = origin;
  }
  return exception;
}

namespace {

void raise(const Error& error) {
  const nb::object exception = exception_of(error);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
}

void translate(const std::exception_ptr& pointer, void* /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Raised& raised) {
    raise(raised.error());
  }
}

/// For tests of the border: raise the error with this code, as a plane's function would.
void raise_for_test(const std::string& code, const std::string& message, bool with_origin) {
  for (int i = 0; i <= static_cast<int>(Errc::internal); ++i) {
    const auto candidate = static_cast<Errc>(i);
    if (errc_name(candidate) == code) {
      Error error(candidate, message);
      if (with_origin) {
        error.set_origin({.rank = 3, .host = "b", .pid = 17, .exit = "SIGKILL"});
      }
      or_throw(Result<void>(std::move(error)));
    }
  }
  or_throw(Result<void>(
      Error(Errc::invalid_argument, "raise_for_test: there is no code \"" + code + "\"")));
}

}  // namespace

}  // namespace headrace::python

NB_MODULE(_native, m) {
  namespace hp = headrace::python;
  m.doc() = "The core of headrace; use the modules of the package, which document it.";
  m.attr("__version__") = HEADRACE_VERSION;
  nanobind::register_exception_translator(hp::translate);
  m.def("_raise_for_test", &hp::raise_for_test, nanobind::arg("code"), nanobind::arg("message"),
        nanobind::arg("with_origin") = false);
#ifdef HEADRACE_PYTHON_COMM
  hp::bind_comm(m);
#endif
#ifdef HEADRACE_PYTHON_JOB
  hp::bind_job(m);
#endif
#ifdef HEADRACE_PYTHON_LAKE
  hp::bind_lake(m);
#endif
#ifdef HEADRACE_PYTHON_FORECAST
  hp::bind_forecast(m);
#endif
#ifdef HEADRACE_PYTHON_FORECAST_NETWORK
  hp::bind_forecast_network(m);
#endif
#ifdef HEADRACE_PYTHON_REGISTRY
  hp::bind_registry(m);
#endif
#ifdef HEADRACE_PYTHON_FLOW
  hp::bind_flow(m);
#endif
}
