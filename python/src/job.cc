// SPDX-License-Identifier: Apache-2.0
// Joining the job that the environment names, and the launcher's store for functions that are
// called on ranks.
#include "python/src/comm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/environment.h"
#include "headrace/comm/environment.h"

namespace headrace::python {

namespace {

namespace hc = headrace::comm;

nb::tuple join(std::vector<int> ranks, double timeout, std::optional<double> start_timeout) {
  hc::JoinOptions options;
  options.ranks = std::move(ranks);
  options.timeout = milliseconds_of(timeout);
  if (start_timeout) {
    options.start_timeout = milliseconds_of(*start_timeout);
  }
  std::optional<Result<hc::Joined>> joined;
  {
    const nb::gil_scoped_release release;
    joined = hc::join_job(options);
  }
  hc::Joined value = or_throw(*std::move(joined));
  return nb::make_tuple(nb::cast(ContextHolder(std::move(value.context))), value.place);
}

}  // namespace

void bind_job(nb::module_& parent) {
  nb::module_ m = parent.attr("comm");
  nb::class_<hc::Place>(m, "Place", "Where this process is among the ranks of its job.")
      .def_ro("rank", &hc::Place::rank)
      .def_ro("size", &hc::Place::size)
      .def_ro("local_rank", &hc::Place::local_rank)
      .def_ro("local_size", &hc::Place::local_size)
      .def_ro("cross_rank", &hc::Place::cross_rank)
      .def_ro("cross_size", &hc::Place::cross_size)
      .def_ro("is_homogeneous", &hc::Place::is_homogeneous);
  m.def("join", &join, "ranks"_a = std::vector<int>(), "timeout"_a = 1800.0,
        "start_timeout"_a = nb::none(),
        nb::sig("def join(ranks: Sequence[int] = [], timeout: float = 1800.0, start_timeout: float "
                "| None = None) -> tuple[Context, Place]"),
        "Become a rank of the job that the environment names.");
}

}  // namespace headrace::python
