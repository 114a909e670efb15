// SPDX-License-Identifier: Apache-2.0
// Frames between the engine and its workers. Layout: docs/formats/flow-worker.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"

namespace headrace::flow {

enum class FrameType : uint8_t {
  hello = 1,    ///< engine -> worker, once: what all calls share
  call = 2,     ///< engine -> worker
  stop = 3,     ///< engine -> worker: end the command that runs
  result = 16,  ///< worker -> engine
  group = 17,   ///< worker -> engine: a command's process group began (its id) or ended (0)
  ready = 18    ///< worker -> engine, once: it takes calls
};

struct HelloFrame {
  std::string run_id;
  std::string run_folder;
  std::string pipeline_folder;
  int64_t grace_ms = 10'000;
  bool metrics = false;  ///< the engine keeps what a worker counts on a board of its own
};

struct CallFrame {
  uint64_t attempt = 0;
  int32_t number = 1;
  std::string activity;
  std::string type;
  std::string item_key;
  std::string log;         ///< relative to the run folder
  std::string properties;  ///< JSON text
  bool secure_input = false;
  bool secure_output = false;
  std::vector<std::string> secrets;  ///< texts to be hidden in whatever is written
};

struct ResultFrame {
  uint64_t attempt = 0;
  bool ok = true;
  std::string output;  ///< JSON text
  std::string error_code;
  std::string error_message;
  std::string exit;  ///< of a command that failed: "exit code 3"
  double cpu_seconds = 0.0;
  double seconds = 0.0;
  int64_t peak_rss_bytes = 0;
};

std::string encode(const HelloFrame& frame);
std::string encode(const CallFrame& frame);
std::string encode(const ResultFrame& frame);
std::string encode_stop();
std::string encode_ready();
std::string encode_group(int64_t group);
std::optional<HelloFrame> decode_hello(std::string_view payload);
std::optional<CallFrame> decode_call(std::string_view payload);
std::optional<ResultFrame> decode_result(std::string_view payload);
std::optional<int64_t> decode_group(std::string_view payload);

/// Longest payload of a frame: outputs above it fail.
inline constexpr int64_t kFrameBytesMax = int64_t{64} << 20;

/// Cuts a byte stream into frames.
class FrameReader {
 public:
  struct Frame {
    FrameType type = FrameType::hello;
    std::string_view payload;  ///< valid until the next call
  };

  enum class Read : uint8_t { data, nothing, closed };
  /// Read once from `fd` (never blocks when the descriptor does not).
  Result<Read> read_from(int fd);
  /// The next whole frame; nullopt when more bytes are needed. `corrupt` for a length or type that
  /// no frame has.
  Result<std::optional<Frame>> next();

 private:
  std::string bytes_;
  size_t used_ = 0;   // bytes of `bytes_` that hold data
  size_t taken_ = 0;  // of these, already handed out
};

/// Write all of `bytes` to a blocking socket.
Result<void> send_all(int fd, std::string_view bytes);
/// Write what fits; the rest stays in `bytes`.
Result<void> send_some(int fd, std::string* bytes);

}  // namespace headrace::flow
