// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a node share: one makes it and tells how to get at it, the others open
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/base/result.h"
#include "headrace/base/shm_segment.h"

namespace headrace::comm {

/// How to get at the memory. Crosses processes as bytes.
struct MemoryOffer {
  int64_t pid = 0;
  int64_t fd = 0;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> token = {};  ///< stands at its beginning too
};

/// Zeros at first, the same bytes in all processes that have it. It is the kernel's: when the last
/// of them ends, however it does, it is gone. Others reach it as /proc/PID/fd/FD, which needs the
/// same user and the same view of processes and no socket; the token proves that it is the one
/// meant.
class NodeMemory {
 public:
  static Result<NodeMemory> make(size_t bytes);
  /// `unsupported` when it cannot be reached from here.
  static Result<NodeMemory> open(const MemoryOffer& offer);

  std::byte* data() const;
  MemoryOffer offer() const;
  /// All who need it have opened it: close the descriptor, keep the mapping.
  void settle() { segment_fd_.reset(); }
  base::ShmMapping take_mapping() && { return std::move(mapping_); }

 private:
  NodeMemory(base::Fd fd, base::ShmMapping mapping)
      : segment_fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  base::Fd segment_fd_;
  base::ShmMapping mapping_;
};

/// Which processes can share memory: equal for those that see the same kernel, processes and user.
std::string node_identity();

}  // namespace headrace::comm
