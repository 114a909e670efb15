// SPDX-License-Identifier: Apache-2.0
// Files in a file system that Arrow knows, as plain calls; every byte that is read is counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"

namespace headrace::lake::scan {

struct Entry {
  std::string path;
  bool folder = false;
  int64_t bytes = 0;
  int64_t modified_us = 0;
};

/// Bytes read from storage; shared by the files of one read, whose decoders may use threads.
using ByteCounter = std::shared_ptr<std::atomic<int64_t>>;

/// Bytes of a file in order, unpacked when asked.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `out.size()` bytes; 0 at the end.
  virtual Result<int64_t> read(std::span<char> out) = 0;
};

/// Bytes that go somewhere in order.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual Result<void> write(std::string_view bytes) = 0;
  /// Nothing more comes. Once.
  virtual Result<void> finish() = 0;
};
/// Packs with gzip and hands on to `below`, which it does not finish.
Result<std::unique_ptr<ByteSink>> gzip_sink(ByteSink* below);

/// A file system and a place in it. Copies share the connection. Thread-safe.
class Storage {
 public:
  /// `url`: a local path, or a URL with a scheme ("file", "s3", "gs", "abfs", "hdfs", ...).
  static Result<Storage> open(const std::string& url);
  const std::string& path() const { return path_; }

  /// nullopt when nothing is there.
  Result<std::optional<Entry>> find(const std::string& path) const;
  /// Everything below a folder, in no order.
  Result<std::vector<Entry>> list(const std::string& folder) const;
  /// `packed`: gzip.
  Result<std::unique_ptr<ByteStream>> stream(const std::string& path, bool packed,
                                             ByteCounter counter) const;

  /// For the other files of this folder alone.
  struct State;
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<const State> state_;
  std::string path_;
};

}  // namespace headrace::lake::scan
