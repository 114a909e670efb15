// SPDX-License-Identifier: Apache-2.0
// The 32 bytes that the processes of a job share and that nobody else may see.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::wire {

/// A key of 32 bytes. Move-only, so that a copy is visible in the code; wiped when it goes. There
/// is no text form on purpose: a secret belongs into no log, message or command line. A file of it
/// is the 32 bytes and nothing else.
class HR_API Secret {
 public:
  static constexpr size_t kBytes = 32;

  /// New, from the kernel's generator.
  static Secret generate();
  static Secret from_bytes(std::span<const std::byte, kBytes> bytes);
  /// Read a file. `invalid_argument` when group or others may touch it, when it belongs to somebody
  /// else than this user or root, or when it does not hold exactly 32 bytes; `not_found`, `io`.
  static Result<Secret> read_file(const base::Path& path);
  /// Read 32 bytes and the end from a descriptor that a parent handed down (pipe, socket or memfd),
  /// and close it. The writer has closed its end or does so soon: waits at most 10 s (`timeout`).
  static Result<Secret> read_descriptor(base::Fd fd);
  /// Write a file with mode 0600 in the place of `path`, durably.
  Result<void> write_file(const base::Path& path) const;

  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();
  /// An equal one of its own.
  Secret copy() const { return from_bytes(bytes()); }

  /// Another secret, which tells nothing of this one and is the same for everybody who knows this
  /// one and the same purpose.
  Secret derive(std::string_view purpose) const;

  /// Valid as long as the object is and has not been moved from.
  std::span<const std::byte, kBytes> bytes() const { return bytes_; }
  /// Compare in constant time.
  bool equals(const Secret& other) const;

 private:
  Secret() = default;
  std::array<std::byte, kBytes> bytes_ = {};
};

}  // namespace headrace::wire
