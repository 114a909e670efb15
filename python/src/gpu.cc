// SPDX-License-Identifier: Apache-2.0
// What of the collectives concerns GPUs alone: groups of operations, barriers, the libraries.
#include "python/src/comm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "headrace/comm/gpu_libraries.h"

namespace headrace::python {

namespace {

namespace hc = headrace::comm;
using Set = hc::ProcessSet;

nb::dict libraries(const std::vector<std::string>& folders) {
  hc::GpuLibraries found;
  {
    const nb::gil_scoped_release release;
    found = hc::find_gpu_libraries(folders);
  }
  nb::dict out;
  out["nccl"] = found.nccl;
  out["nccl_found"] = found.nccl_found;
  out["cuda"] = found.cuda;
  out["cuda_found"] = found.cuda_found;
  return out;
}

}  // namespace

void bind_gpu(nb::module_& m, nb::class_<Set>& set) {
  set.def(
         "begin_group",
         [](Set& s, std::optional<double> timeout) {
           s.begin_group({.timeout = optional_milliseconds(timeout)});
         },
         "timeout"_a = nb::none(), release_gil())
      .def("end_group", &Set::end_group, release_gil())
      .def(
          "barrier_on_gpu",
          [](Set& s, int gpu, uintptr_t stream, const std::string& name, bool blocking,
             std::optional<double> timeout) {
            hc::ConstBuffer where;
            where.device = hc::Device::cuda;
            where.device_index = gpu;
            where.stream = stream;
            return s.barrier(
                where,
                {.name = name, .timeout = optional_milliseconds(timeout), .blocking = blocking});
          },
          "gpu"_a, "stream"_a, "name"_a = "", "blocking"_a = true, "timeout"_a = nb::none(),
          release_gil());
  m.def("gpu_libraries", &libraries, "folders"_a = std::vector<std::string>(),
        "Open NCCL and CUDA's runtime: whether each is usable, and the file or why not.");
}

}  // namespace headrace::python
