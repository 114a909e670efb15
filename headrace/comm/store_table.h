// SPDX-License-Identifier: Apache-2.0
// The meeting point as the caller hands it in: our own store, torch's, or a map in a test.
#pragma once

#include <functional>
#include <string>

#include "headrace/base/clock.h"
#include "headrace/base/result.h"

namespace headrace::comm {

/// A key-value service that all ranks share. Called from the thread that calls Context::init only.
struct StoreTable {
  std::function<Result<void>(const std::string& key, const std::string& value)> set;
  /// Wait until the key is there; `timeout` when the deadline passes.
  std::function<Result<std::string>(const std::string& key, base::Deadline)> get;
};

}  // namespace headrace::comm
