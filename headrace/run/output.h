// SPDX-License-Identifier: Apache-2.0
// What the ranks print, on its way to the launcher's own streams: whole lines with the rank in
// front, and files of each rank.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::run {

enum class Stream : uint8_t { out, err };

/// Cut bytes into lines that keep their ends. An end is \n, \r\n or a lone \r, as progress bars
/// write it. Bytes are not looked at otherwise, so any encoding comes through. A line above
/// `bytes_max` is cut, between two characters of UTF-8 where it is UTF-8.
class HR_API LineCutter {
 public:
  explicit LineCutter(size_t bytes_max = size_t{4} << 20) : bytes_max_(bytes_max) {}
  /// The whole lines that these bytes complete, each with its end.
  std::vector<std::string> feed(std::string_view bytes);
  /// The stream is over: what is left, with a \n where it has no end; empty when nothing is.
  std::string finish();

 private:
  const size_t bytes_max_;
  std::string line_;
};

/// Texts for two descriptors in one order. Writes what they take without waiting, in whole lines as
/// long as these are short.
class HR_API OutputQueue {
 public:
  /// Above this many bytes the ranks' output is left in their pipes until the reader has caught up.
  static constexpr size_t kBytesFull = size_t{8} << 20;

  OutputQueue(int out_fd, int err_fd) : fds_{out_fd, err_fd} {}
  void put(Stream stream, std::string_view text);
  /// Write what can be written now.
  void flush();
  bool empty() const { return pieces_.empty(); }
  bool full() const { return bytes_ > kBytesFull; }
  /// To wait for POLLOUT on; -1 when nothing waits.
  int waiting_fd() const;
  /// The reader has gone (EPIPE), or the disk is full: the rest was thrown away.
  bool broken() const { return broken_; }

 private:
  struct Piece {
    Stream stream;
    std::string text;
    size_t written = 0;
  };
  bool write_front();

  const std::array<int, 2> fds_;
  std::deque<Piece> pieces_;
  size_t bytes_ = 0;
  bool broken_ = false;
};

struct RankOutputOptions {
  bool timestamps = false;
  base::Path folder;  ///< rank.N/stdout and stderr below it; empty: no files
  int ranks = 1;
};

/// The streams of all ranks.
class HR_API RankOutput {
 public:
  /// Makes the files. Errors name the path.
  static Result<RankOutput> make(const RankOutputOptions& options, OutputQueue* queue);

  void on_bytes(int rank, Stream stream, std::string_view bytes);
  /// The rank has ended.
  void finish(int rank);
  /// Put another file beside the rank's; nothing where there are none.
  void keep(int rank, std::string_view name, std::string_view text);
  /// At most the 20 last lines that the rank wrote on stderr, without ends.
  std::vector<std::string> last_errors(int rank) const;
  /// The first file that could not be written, in words; empty when all could.
  const std::string& file_problem() const { return file_problem_; }

 private:
  struct RankStream {
    LineCutter cutter;
    base::Fd file;
    base::Path path;
  };
  struct RankState {
    std::array<RankStream, 2> streams;
    std::deque<std::string> last_errors;
    std::array<std::string, 2> prefixes;
  };
  explicit RankOutput(const RankOutputOptions& options, OutputQueue* queue)
      : options_(options), queue_(queue) {}
  void put(RankState* state, Stream stream, std::string_view line);

  RankOutputOptions options_;
  OutputQueue* queue_;
  std::vector<RankState> ranks_;
  std::string file_problem_;
};

}  // namespace headrace::run
