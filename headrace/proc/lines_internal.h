// SPDX-License-Identifier: Apache-2.0
// Bytes of a pipe cut into lines, with bounds on the length of a line and on what is kept.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::proc {

/// Cut one stream into lines. A line longer than `bytes_max` is given once, cut, with a mark that
/// tells how many bytes are missing.
class LineSplitter {
 public:
  explicit LineSplitter(int64_t bytes_max) : bytes_max_(static_cast<size_t>(bytes_max)) {}
  using OnLine = std::function<void(std::string_view line)>;
  void feed(std::string_view bytes, const OnLine& on_line);
  /// The stream is over: what is left is a line without an end.
  void finish(const OnLine& on_line);

 private:
  void add(std::string_view piece);
  void emit(const OnLine& on_line);

  const size_t bytes_max_;
  std::string line_;
  int64_t missing_ = 0;
  bool begun_ = false;
};

/// Remember the last lines, at most 20 and 4 KiB.
class LastLines {
 public:
  void add(std::string_view line);
  std::vector<std::string> take() const;

 private:
  std::deque<std::string> lines_;  ///< as they came, cut
};

}  // namespace headrace::proc
