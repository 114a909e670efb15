// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/run_registries.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "headrace/base/checksum.h"
#include "headrace/flow/run_state.h"
#include "headrace/registry/registry.h"

namespace headrace::jobs {

namespace {

constexpr const char* kFile = "registries";
constexpr int64_t kBytesMax = 1 << 20;
constexpr int64_t kDocumentBytesMax = int64_t{64} << 20;

}  // namespace

Result<void> note_registry(const base::Path& run_folder, const base::Path& registry) {
  std::error_code code;
  const std::string line = std::filesystem::absolute(registry, code).string() + "\n";
  // One short write with O_APPEND: lines of several workers do not mix.
  HR_TRY(const auto fd,
         base::open_file(run_folder / kFile, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  return base::write_all(fd.get(), line, run_folder / kFile);
}

std::vector<base::Path> run_registries(const base::Path& run_folder) {
  const std::string text = base::read_file(run_folder / kFile, kBytesMax).value_or("");
  std::vector<base::Path> folders;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const base::Path folder = text.substr(begin, end - begin);
    if (!folder.empty() && std::ranges::find(folders, folder) == folders.end()) {
      folders.push_back(folder);
    }
    begin = end + 1;
  }
  return folders;
}

Result<void> note_run_end(const base::Path& run_folder, std::span<const base::Path> registries) {
  HR_TRY(const flow::RunState run, flow::load_run(run_folder));
  registry::RunEnd end{.run = run.run_id,
                       .status = std::string(flow::status_name(run.status)),
                       .started = run.started,
                       .ended = run.ended.value_or(run.last_event)};
  if (const auto document = base::read_file(run.pipeline_path, kDocumentBytesMax); document.ok()) {
    base::Blake2b256 digest;
    digest.update(std::as_bytes(std::span(*document)));
    end.pipeline_digest = base::hex(digest.finish());
  }
  for (const base::Path& folder : registries) {
    HR_TRY(auto opened,
           registry::Registry::open(folder, {.create = false, .command = "headrace flow run"}));
    HR_TRY(opened.end_run(end));
  }
  return {};
}

}  // namespace headrace::jobs
