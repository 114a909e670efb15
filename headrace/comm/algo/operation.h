// SPDX-License-Identifier: Apache-2.0
// A collective on its way, whatever carries its bytes: steps that never block.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace::comm {

enum class Step : uint8_t { stuck, moved, done, failed };

/// How an operation goes, for those who look at it.
enum class Algorithm : uint8_t {
  unknown,
  inline_line,  ///< shared memory, in the cache line of the flag
  one_shot,     ///< shared memory, in one piece
  chunked,      ///< shared memory, chunk by chunk
  tcp,
  nodes,  ///< within nodes and between them
};
std::string_view algorithm_name(Algorithm algorithm);

/// Run by one thread at a time. step() does what can be done without waiting; `failed` when the
/// ranks do not agree or the set has failed, see `error`.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual Step step() = 0;
  virtual Algorithm algorithm() const { return Algorithm::unknown; }
  const Error& error() const { return *error_; }
  /// The rank that the last step() which was `stuck` waited for.
  int missing() const { return missing_; }

 protected:
  std::optional<Error> error_;
  int missing_ = -1;
};

}  // namespace headrace::comm
