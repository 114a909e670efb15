// SPDX-License-Identifier: Apache-2.0
// A whole file as bytes: mapped read-only, or copied into memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::registry {

/// Immutable after `open`; unmaps at destruction. A mapped file that somebody shortens raises
/// SIGBUS at the next access: objects of a registry are never written in place, for other files
/// there is `copy`.
class Mapping {
 public:
  static Result<std::shared_ptr<const Mapping>> open(const base::Path& path, bool copy);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  Mapping() = default;
  std::span<const std::byte> bytes_;
  std::vector<std::byte> copy_;
  void* address_ = nullptr;
};

}  // namespace headrace::registry
