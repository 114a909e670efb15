// SPDX-License-Identifier: Apache-2.0
// A folder of its own for one test, removed at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace headrace::registry {

class TestFolder {
 public:
  /// In memory where the machine has such a place: for tests that wait for the disk thousands of
  /// times to show something that the disk has no part in.
  static std::filesystem::path memory() {
    std::error_code code;
    return std::filesystem::is_directory("/dev/shm", code) ? std::filesystem::path("/dev/shm")
                                                           : std::filesystem::temp_directory_path();
  }

  explicit TestFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "headrace-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace headrace::registry
