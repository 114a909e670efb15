// SPDX-License-Identifier: Apache-2.0
// The door to files: descriptors that close themselves, whole-file reads, durable replacement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::base {

using Path = std::filesystem::path;

/// Own one file descriptor. Move-only; closes at destruction.
class HR_API Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// Open a regular file, or with O_DIRECTORY a folder; O_CLOEXEC is added, and the error names the
/// path. `invalid_argument` for anything else there (a pipe, a socket, a device): it is not waited
/// for.
HR_API Result<Fd> open_file(const Path& path, int flags, unsigned mode = 0644);
/// open(2) as it is, but for O_CLOEXEC: a pipe waits for its other end. For what a person names,
/// and for devices.
HR_API Result<Fd> open_any_file(const Path& path, int flags, unsigned mode = 0644);

/// Write all of `bytes`, retrying short writes and EINTR. `path` is for the message only.
HR_API Result<void> write_all(int fd, std::span<const std::byte> bytes, const Path& path);
HR_API Result<void> write_all(int fd, std::string_view text, const Path& path);

/// fdatasync the file, fsync the folder; errors name the path.
HR_API Result<void> sync_data(int fd, const Path& path);
HR_API Result<void> sync_folder(const Path& folder);

/// Read a whole regular file; `bytes_max` bounds it (`invalid_argument` above).
HR_API Result<std::string> read_file(const Path& path, int64_t bytes_max = int64_t{1} << 32);
/// The same of what a person names, which may be a pipe or a device (/dev/stdin).
HR_API Result<std::string> read_input(const Path& path, int64_t bytes_max = int64_t{1} << 32);

/// Whether `path` can be replaced, for commands to ask before long work: the regular file that
/// would be replaced, with symbolic links followed, or where there is none yet the place it would
/// take. `invalid_argument` for devices, pipes, sockets and folders: renaming over them destroys
/// them.
HR_API Result<Path> check_replaceable(const Path& path);

/// Replace `path` durably, as check_replaceable() allows: write a temporary file beside it,
/// fdatasync, rename, fsync the folder. Afterwards the file is the old one or the new one, never a
/// part, whatever happens in between.
HR_API Result<void> replace_file(const Path& path, std::string_view text, unsigned mode = 0644);

/// A file under way to take the place of `path` (see check_replaceable()): written beside it under
/// another name, which commit() makes durable and renames. Without commit() nothing is left.
/// Move-only.
class HR_API FileReplacement {
 public:
  static Result<FileReplacement> begin(const Path& path, unsigned mode = 0644);
  FileReplacement(FileReplacement&& other) noexcept;
  FileReplacement& operator=(FileReplacement&&) = delete;
  ~FileReplacement();

  int fd() const { return fd_.get(); }
  const Path& temporary() const { return temporary_; }
  Result<void> write(std::string_view text) { return write_all(fd(), text, temporary_); }
  /// fdatasync, rename, fsync of the folder. Once.
  Result<void> commit();

 private:
  FileReplacement(Fd fd, Path path, Path temporary)
      : fd_(std::move(fd)), path_(std::move(path)), temporary_(std::move(temporary)) {}
  Fd fd_;
  Path path_;
  Path temporary_;  // empty once it is renamed
};

/// mkdir -p; the error names the folder that could not be made.
HR_API Result<void> make_folders(const Path& folder);

}  // namespace headrace::base
