// SPDX-License-Identifier: Apache-2.0
// A bounded thread pool sized by what this process may use: the affinity mask and the cgroup quota.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::base {

/// Cores this process may use: min(affinity mask, cgroup v1/v2 CPU quota rounded up), at least 1.
HR_API int usable_cores();

/// Fixed number of threads, work stealing between their deques. Thread-safe.
class HR_API Pool {
 public:
  /// `threads` >= 1; 0 means usable_cores(). The bound of queued tasks is `queue_max` (submit
  /// blocks above it).
  explicit Pool(int threads = 0, int64_t queue_max = 1 << 20);
  ~Pool();  ///< runs what is queued, then joins
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const;
  void submit(std::function<void()> task);

  /// Call `body(i)` once for each i in [0, costs.size()), costliest first (ties by index), on all
  /// threads, and wait. `stop`, when given, is asked before each call; true ends early (calls
  /// already begun finish).
  void for_each_by_cost(std::span<const double> costs, const std::function<void(int64_t)>& body,
                        const std::function<bool()>& stop = {});
  /// The same in index order.
  void for_each(int64_t count, const std::function<void(int64_t)>& body,
                const std::function<bool()>& stop = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace::base
