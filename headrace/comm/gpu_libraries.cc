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
  int gpus = 0;
  std::string cuda_found;
  if (!means.cuda.ok()) {
    cuda_found = means.cuda.error().message();
  } else {
    const auto counted = (*means.cuda)->devices();
    gpus = counted.value_or(0);
    cuda_found = fmt::format(
        "{}, {}", (*means.cuda)->path(),
        counted.ok() ? fmt::format("{} GPUs", gpus) : "no GPU: " + counted.error().message());
  }
  return {
      .nccl = means.nccl.ok(),
      .nccl_found = means.nccl.ok() ? fmt::format("NCCL {}, {}", (*means.nccl)->version_text(),
                                                  (*means.nccl)->path)
                                    : means.nccl.error().message(),
      .cuda = gpus > 0,
      .cuda_found = cuda_found,
  };
}

}  // namespace headrace::comm
