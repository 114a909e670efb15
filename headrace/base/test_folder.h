// SPDX-License-Identifier: Apache-2.0
// For tests: a folder of one's own that goes away, to be in, or with a tiny file system to fill.
#pragma once

#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <system_error>

#include "headrace/base/file.h"

namespace headrace::base {

/// A new empty folder, removed with all it holds at the end.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "headrace-test-XXXXXX").string();
    HR_CHECK(::mkdtemp(pattern.data()) != nullptr, "no temporary folder can be made");
    path_ = pattern;
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    if (mounted_) {
      ::umount2(path_.c_str(), MNT_DETACH);
    }
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const Path& path() const { return path_; }
  Path operator/(std::string_view name) const { return path_ / name; }

  /// Put a file system of `bytes` into the folder; false when that is not allowed here.
  bool mount_tiny(int64_t bytes) {
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    return mounted_;
  }

 private:
  Path path_;
  bool mounted_ = false;
};

/// Be in `folder` for the object's life.
class WorkingFolder {
 public:
  explicit WorkingFolder(const Path& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;
  ~WorkingFolder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }

 private:
  const Path before_;
};

}  // namespace headrace::base
