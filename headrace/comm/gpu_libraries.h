// SPDX-License-Identifier: Apache-2.0
// What of NCCL and CUDA can be used on this machine, for whoever tells users.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"

namespace headrace::comm {

struct GpuLibraries {
  bool nccl = false;
  std::string nccl_found;  ///< "NCCL 2.21.5, PATH", or why it cannot be used
  bool cuda = false;
  std::string cuda_found;  ///< "PATH, 8 GPUs", or why there is none
};

/// Open them as the first collective on a GPU would, and leave them open. `folders` come after
/// those of HEADRACE_GPU_LIBRARIES.
HR_API GpuLibraries find_gpu_libraries(std::span<const std::string> folders);

/// Of a list with colons between, as PATH has them.
HR_API std::vector<std::string> folders_of(std::string_view list);

}  // namespace headrace::comm
