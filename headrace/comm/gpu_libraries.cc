// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu_libraries.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/environment.h"
#include "headrace/comm/gpu/gpu_setup.h"

namespace headrace::comm {

std::vector<std::string> folders_of(std::string_view list) {
  std::vector<std::string> folders;
  while (!list.empty()) {
    const size_t end = std::min(list.find(':'), list.size());
    if (end > 0) {
      folders.emplace_back(list.substr(0, end));
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return folders;
}

GpuLibraries find_gpu_libraries(std::span<const std::string> folders) {
  auto all = folders_of(base::environment("HEADRACE_GPU_LIBRARIES").value_or(""));
  all.insert(all.end(), folders.begin(), folders.end());
  const auto means = GpuMeans::load(all);
  return {
      .nccl = means.nccl.ok(),
      .nccl_found = means.nccl.ok() ? fmt::format("NCCL {}, {}", (*means.nccl)->version_text(),
                                                  (*means.nccl)->path)
                                    : means.nccl.error().message(),
      .cuda = means.cuda.ok(),
      .cuda_found = means.cuda.ok() ? (*means.cuda)->path() : means.cuda.error().message(),
  };
}

}  // namespace headrace::comm
