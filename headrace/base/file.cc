// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "headrace/base/clock.h"

namespace headrace::base {

void Fd::reset() {
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

namespace {

/// What a file that is no regular one is, for messages.
std::string kind_text(mode_t mode) {
  switch (mode & static_cast<mode_t>(S_IFMT)) {
    case S_IFDIR: return "a folder";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "no regular file";
  }
}

Error not_regular(const Path& path, mode_t mode) {
  return Error{Errc::invalid_argument,
               path.string() + " is " + kind_text(mode) +
                   (S_ISDIR(mode) ? "; a file is needed" : "; a regular file is needed")};
}

}  // namespace

Result<Fd> open_any_file(const Path& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    return errno_error(errno, "opening " + path.string());
  }
  return Fd(fd);
}

Result<Fd> open_file(const Path& path, int flags, unsigned mode) {
  // O_NONBLOCK: a pipe without its other end is not waited for. It changes nothing for regular
  // files, and no terminal may come to control this process.
  auto fd = open_any_file(path, flags | O_NONBLOCK | O_NOCTTY, mode);
  struct stat info = {};
  if (!fd.ok()) {  // a socket, a pipe nobody reads, a folder to be written: errno tells less
    const bool odd =
        ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) &&
        (S_ISDIR(info.st_mode) ? (flags & (O_WRONLY | O_RDWR)) != 0 : (flags & O_DIRECTORY) == 0);
    return odd ? Result<Fd>(not_regular(path, info.st_mode)) : std::move(fd);
  }
  if (::fstat(fd->get(), &info) != 0) {
    return errno_error(errno, "opening " + path.string());
  }
  if (!S_ISREG(info.st_mode) && (flags & O_DIRECTORY) == 0) {
    return not_regular(path, info.st_mode);
  }
  return fd;
}

Result<void> write_all(int fd, std::string_view text, const Path& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno_error(errno,
                         "writing " + std::to_string(text.size()) + " bytes to " + path.string());
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Result<void> write_all(int fd, std::span<const std::byte> bytes, const Path& path) {
  return write_all(fd, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                   path);
}

Result<void> sync_data(int fd, const Path& path) {
  if (::fdatasync(fd) != 0) {
    return errno_error(errno, "syncing " + path.string());
  }
  return {};
}

Result<void> sync_folder(const Path& folder) {
  const Path where = folder.empty() ? Path(".") : folder;
  HR_TRY(auto fd, open_file(where, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {  // EINVAL: the file system has no folder sync
    return errno_error(errno, "syncing folder " + where.string());
  }
  return {};
}

namespace {

Result<std::string> read_whole(const Fd& fd, const Path& path, int64_t bytes_max) {
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return errno_error(errno, "reading " + path.string());
  }
  if (S_ISDIR(info.st_mode)) {
    return not_regular(path, info.st_mode);
  }
  const auto too_large = [&] {
    return Error{Errc::invalid_argument, path.string() + " holds more than the " +
                                             std::to_string(bytes_max) + " bytes allowed here"};
  };
  if (info.st_size > bytes_max) {
    return too_large();
  }
  std::string text;
  const auto room_max = static_cast<size_t>(bytes_max) + 1;  // one more shows that there is more
  text.resize(std::min(static_cast<size_t>(std::max<int64_t>(info.st_size + 1, 4096)), room_max));
  size_t used = 0;
  for (;;) {
    if (used == text.size()) {
      text.resize(std::min(text.size() * 2, room_max));
    }
    const ssize_t count = ::read(fd.get(), text.data() + used, text.size() - used);
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno_error(errno, "reading " + path.string());
    }
    if (count == 0) {
      break;
    }
    used += static_cast<size_t>(count);
    if (static_cast<int64_t>(used) > bytes_max) {
      return too_large();
    }
  }
  text.resize(used);
  return text;
}

constexpr int kLinksMax = 40;  // as the kernel

}  // namespace

Result<std::string> read_file(const Path& path, int64_t bytes_max) {
  HR_TRY(const auto fd, open_file(path, O_RDONLY));
  return read_whole(fd, path, bytes_max);
}

Result<std::string> read_input(const Path& path, int64_t bytes_max) {
  HR_TRY(const auto fd, open_any_file(path, O_RDONLY));
  return read_whole(fd, path, bytes_max);
}

Result<Path> check_replaceable(const Path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Error{Errc::invalid_argument, path.string() + " is " + kind_text(info.st_mode) +
                                             ", which cannot be replaced; name a regular file"};
  }
  // By hand, since a link may lead to what is not there yet.
  Path target = path;
  for (int links = 0; links < kLinksMax; ++links) {
    std::error_code code;
    const Path next = std::filesystem::read_symlink(target, code);
    if (code) {
      return target;  // no link; other problems tell themselves when the file is made
    }
    target = target.parent_path() / next;
  }
  return errno_error(ELOOP, "following the links of " + path.string());
}

Result<FileReplacement> FileReplacement::begin(const Path& path, unsigned mode) {
  HR_TRY(const Path target, check_replaceable(path));
  std::string pattern = target.string() + ".XXXXXX";
  Fd fd(::mkostemp(pattern.data(), O_CLOEXEC));
  if (!fd.valid()) {
    return errno_error(errno, "creating a temporary file beside " + target.string());
  }
  FileReplacement out(std::move(fd), target, pattern);
  if (::fchmod(out.fd(), mode) != 0) {
    return errno_error(errno, "setting the mode of " + pattern);
  }
  return out;
}

FileReplacement::FileReplacement(FileReplacement&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, Path())) {}

FileReplacement::~FileReplacement() {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

Result<void> FileReplacement::commit() {
  HR_TRY(sync_data(fd(), temporary_));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return errno_error(errno, "renaming " + temporary_.string() + " to " + path_.string());
  }
  temporary_.clear();
  return sync_folder(path_.parent_path());
}

Result<void> replace_file(const Path& path, std::string_view text, unsigned mode) {
  HR_TRY(auto file, FileReplacement::begin(path, mode));
  HR_TRY(file.write(text));
  return file.commit();
}

Result<void> make_folders(const Path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) {
    return errno_error(code.value(), "making folder " + folder.string());
  }
  return {};
}

}  // namespace headrace::base
