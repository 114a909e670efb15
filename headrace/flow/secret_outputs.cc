// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "headrace/base/json.h"
#include "headrace/base/random.h"
#include "headrace/flow/secret_outputs_internal.h"

namespace headrace::flow {

namespace {

constexpr int64_t kFileBytesMax = int64_t{1} << 30;

base::Path outputs_path(const base::Path& run_folder) { return run_folder / "secrets.outputs"; }

}  // namespace

Result<std::string> keep_secret_output(const base::Path& run_folder, const std::string& output) {
  uint64_t words[2] = {};
  base::random_bytes(std::as_writable_bytes(std::span(words)));
  std::string key = fmt::format("{:016x}{:016x}", words[0], words[1]);
  // A line that a crash cut short ends before ours begins.
  const std::string line = "\n" + Json(Json::Array{Json(key), Json(output)}).dump() + "\n";
  const base::Path path = outputs_path(run_folder);
  HR_TRY(const auto file, base::open_file(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  HR_TRY(base::write_all(file.get(), line, path));
  if (::fdatasync(file.get()) != 0) {
    return errno_error(errno, "syncing " + path.string());
  }
  return key;
}

Result<std::map<std::string, std::string>> read_secret_outputs(const base::Path& run_folder) {
  std::map<std::string, std::string> outputs;
  const auto text = base::read_file(outputs_path(run_folder), kFileBytesMax);
  if (!text.ok() && text.error().code() == Errc::not_found) {
    return outputs;
  }
  if (!text.ok()) {
    return text.error();
  }
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const auto line = parse_json(std::string_view(*text).substr(begin, end - begin));
    if (line.ok() && line->is_array() && line->items().size() == 2 &&
        line->items()[0].is_string() && line->items()[1].is_string()) {
      outputs[line->items()[0].string()] = line->items()[1].string();
    }
    begin = end + 1;
  }
  return outputs;
}

}  // namespace headrace::flow
