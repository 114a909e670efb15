// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "headrace/base/file_lock.h"
#include "headrace/flow/run_folder_internal.h"

namespace headrace::flow {

namespace {

constexpr int64_t kLogBytesMax = int64_t{16} << 20;

/// Copy [begin, begin + count) of one file to the end of another.
Result<void> copy_range(int from, int to, int64_t begin, int64_t count, const base::Path& path) {
  off_t at = begin;
  while (count > 0) {
    const ssize_t sent = ::sendfile(to, from, &at, static_cast<size_t>(count));
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return errno_error(sent == 0 ? EIO : errno, "writing " + path.string());
    }
    count -= sent;
  }
  return {};
}

}  // namespace

Result<base::FileLock> lock_run(const base::Path& run_folder, std::string_view command) {
  // A second is for those who only look whether it is taken.
  return base::FileLock::acquire(run_folder / "lock", 1000, base::holder_description(command));
}

std::optional<std::string> lock_holder(const base::Path& run_folder) {
  const base::Path path = run_folder / "lock";
  const auto fd = base::open_file(path, O_RDONLY);
  if (!fd.ok()) {
    return std::nullopt;
  }
  if (::flock(fd->get(), LOCK_SH | LOCK_NB) == 0) {
    return std::nullopt;  // closing the descriptor gives it back
  }
  const std::string holder = base::read_file(path, 4096).value_or("");
  return holder.empty() ? "another process" : holder;
}

base::Path cancel_path(const base::Path& run_folder) { return run_folder / "cancel"; }

Result<void> request_cancel(const base::Path& run_folder, std::string_view item) {
  const base::Path path = cancel_path(run_folder);
  HR_TRY(auto fd, base::open_file(path, O_WRONLY | O_CREAT | O_APPEND));
  return base::write_all(fd.get(), std::string(item) + "\n", path);  // one write: one line
}

void drop_cancel_requests(const base::Path& run_folder) {
  ::unlink(cancel_path(run_folder).c_str());
}

std::vector<std::string> take_cancel_requests(const base::Path& run_folder) {
  const base::Path path = cancel_path(run_folder);
  const base::Path taken = path.string() + ".taken";
  std::vector<std::string> keys;
  if (::rename(path.c_str(), taken.c_str()) != 0) {
    return keys;
  }
  const std::string text = base::read_file(taken, 1 << 20).value_or("");
  ::unlink(taken.c_str());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    keys.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return keys;
}

Result<void> check_unused(const base::Path& run_folder, const base::Path& document) {
  constexpr std::string_view kOurs[] = {"lock",         "journal", "cancel",    "cancel.taken",
                                        "secrets.json", "workers", "registries"};
  std::error_code code;
  if (std::filesystem::exists(journal_path(run_folder), code)) {
    return {};  // a run's, whatever else it holds
  }
  for (const auto& entry : std::filesystem::directory_iterator(run_folder, code)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::ranges::any_of(kOurs, [&](std::string_view one) {
      return name == one || name.starts_with(std::string(one) + ".");
    });
    if (!ours && !std::filesystem::equivalent(entry.path(), document, code)) {
      return Error{Errc::invalid_argument,
                   fmt::format("{} holds what is no part of a run, such as {}; nothing was written "
                               "into it: name a new folder, or an empty one",
                               run_folder.string(), name)};
    }
  }
  return {};
}

base::Path worker_output_path(const base::Path& run_folder, int slot) {
  return run_folder / "workers" / fmt::format("{}.log", slot);
}

Result<bool> move_output_to_log(int output_fd, const base::Path& log) {
  struct stat info = {};
  if (::fstat(output_fd, &info) != 0 || info.st_size == 0) {
    return false;
  }
  HR_TRY(base::make_folders(log.parent_path()));
  HR_TRY(auto fd, base::open_file(log, O_WRONLY | O_CREAT | O_TRUNC));
  // sendfile needs a source that can be read; the worker's own descriptor only appends.
  HR_TRY(auto source, base::open_file(fmt::format("/proc/self/fd/{}", output_fd), O_RDONLY));
  const int64_t size = info.st_size;
  if (size <= kLogBytesMax) {
    HR_TRY(copy_range(source.get(), fd.get(), 0, size, log));
  } else {
    constexpr int64_t kHalf = kLogBytesMax / 2;
    HR_TRY(copy_range(source.get(), fd.get(), 0, kHalf, log));
    HR_TRY(base::write_all(fd.get(),
                           fmt::format("\n... {} bytes left out ...\n", size - kLogBytesMax), log));
    HR_TRY(copy_range(source.get(), fd.get(), size - kHalf, kHalf, log));
  }
  if (::ftruncate(output_fd, 0) != 0) {
    return errno_error(errno, "emptying a worker's output");
  }
  return true;
}

}  // namespace headrace::flow
