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

enum class Cut : uint8_t { none, begin, end };

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

/// The same with secrets hidden. At a border that `cut` says is none of the file's, as many bytes
/// are left out as a part of a secret may have there.
Result<void> copy_masked(int from, int to, int64_t begin, int64_t count, const LogPrivacy& privacy,
                         const base::Path& path, Cut cut) {
  constexpr int64_t kPieceBytes = int64_t{64} << 10;
  SecretStream stream(privacy.secrets);
  size_t drop = cut == Cut::begin ? privacy.secrets.bytes_max() : 0;
  const auto write = [&](std::string_view out) {
    const size_t dropped = std::min(drop, out.size());
    drop -= dropped;
    return base::write_all(to, out.substr(dropped), path);
  };
  std::string piece;
  std::string out;
  for (int64_t at = begin; at < begin + count;) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, begin + count - at)));
    const ssize_t got = ::pread(from, piece.data(), piece.size(), at);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return errno_error(got == 0 ? EIO : errno, "reading what goes to " + path.string());
    }
    at += got;
    out.clear();
    stream.add(std::string_view(piece).substr(0, static_cast<size_t>(got)), &out);
    HR_TRY(write(out));
  }
  out.clear();
  if (cut != Cut::end) {
    stream.finish(&out);
  }
  return write(out);
}

/// "sales-1a2b3c4d.json": what `headrace forecast train` writes before its run begins.
bool is_written_document(std::string_view name) {
  constexpr std::string_view kEnd = ".json";
  constexpr size_t kDigits = 8;
  if (!name.ends_with(kEnd) || name.size() < kEnd.size() + kDigits + 2) {
    return false;
  }
  name.remove_suffix(kEnd.size());
  const std::string_view digits = name.substr(name.size() - kDigits);
  return name[name.size() - kDigits - 1] == '-' &&
         digits.find_first_not_of("0123456789abcdef") == digits.npos;
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
  constexpr std::string_view kOurs[] = {"lock",         "journal",      "cancel",
                                        "cancel.taken", "secrets.json", "secrets.outputs",
                                        "workers",      "registries"};
  std::error_code code;
  if (std::filesystem::exists(journal_path(run_folder), code)) {
    return {};  // a run's, whatever else it holds
  }
  for (const auto& entry : std::filesystem::directory_iterator(run_folder, code)) {
    const std::string name = entry.path().filename().string();
    const bool ours =
        is_written_document(name) || std::ranges::any_of(kOurs, [&](std::string_view one) {
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

Result<bool> move_output_to_log(int output_fd, const base::Path& log, const LogPrivacy& privacy) {
  struct stat info = {};
  if (::fstat(output_fd, &info) != 0 || info.st_size == 0) {
    return false;
  }
  HR_TRY(base::make_folders(log.parent_path()));
  HR_TRY(auto fd, base::open_file(log, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  // sendfile needs a source that can be read; the worker's own descriptor only appends.
  HR_TRY(auto source, base::open_file(fmt::format("/proc/self/fd/{}", output_fd), O_RDONLY));
  const int64_t size = info.st_size;
  const auto copy = [&](int64_t begin, int64_t count, Cut cut) {
    return privacy.secrets.empty()
               ? copy_range(source.get(), fd.get(), begin, count, log)
               : copy_masked(source.get(), fd.get(), begin, count, privacy, log, cut);
  };
  if (privacy.secure_output) {
    HR_TRY(base::write_all(fd.get(), "headrace: the output is secure and not kept\n", log));
  } else if (size <= kLogBytesMax) {
    HR_TRY(copy(0, size, Cut::none));
  } else {
    constexpr int64_t kHalf = kLogBytesMax / 2;
    HR_TRY(copy(0, kHalf, Cut::end));
    HR_TRY(base::write_all(fd.get(),
                           fmt::format("\n... {} bytes left out ...\n", size - kLogBytesMax), log));
    HR_TRY(copy(size - kHalf, kHalf, Cut::begin));
  }
  if (::ftruncate(output_fd, 0) != 0) {
    return errno_error(errno, "emptying a worker's output");
  }
  return true;
}

}  // namespace headrace::flow
