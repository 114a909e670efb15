// SPDX-License-Identifier: Apache-2.0
// Find and open a shared library at run time that nothing of ours links.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"

namespace headrace::comm {

/// Where to look. Earlier ones win.
struct LibraryPlace {
  std::string path;          ///< a file, or a name that the system's loader looks up
  std::string told_by;       ///< for messages: who named this place
  bool mapped_only = false;  ///< only a copy that this process has loaded already
};

/// `names` as they lie in this process, then in each of `folders`, then where the system's loader
/// looks. A process must not have two copies of such a library, so one that is there already wins.
std::vector<LibraryPlace> library_places(std::span<const std::string_view> names,
                                         std::span<const std::string> folders);

/// An open library. It stays in the process: these libraries have threads and state of their own.
class OpenLibrary {
 public:
  /// The first place that can be opened. `unsupported`: none can; the text has each place with what
  /// the loader said.
  static Result<OpenLibrary> open(std::string_view what, std::span<const LibraryPlace> places);

  /// Null when it has no such function.
  void* symbol(const char* name) const;
  /// The file that was opened, and who named it.
  const std::string& path() const { return path_; }
  const std::string& told_by() const { return told_by_; }

  /// Put the function into `*function`. `unsupported`: it is not there.
  template <typename Function>
  Result<void> bind(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(symbol(name));
    return *function != nullptr ? Result<void>() : missing(name);
  }

 private:
  OpenLibrary(void* handle, std::string path, std::string told_by)
      : handle_(handle), path_(std::move(path)), told_by_(std::move(told_by)) {}
  Error missing(const char* name) const;

  void* handle_;
  std::string path_;
  std::string told_by_;
};

}  // namespace headrace::comm
