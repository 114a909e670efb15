// SPDX-License-Identifier: Apache-2.0
// What a rank finds in its environment, and which cores it gets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/run/placement.h"

namespace headrace::run {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What all ranks of a job have in common on one host.
struct JobFacts {
  std::string job;             ///< id
  std::string store;           ///< endpoint, as it is reached from this host
  std::string secret_file;     ///< on this host
  std::string guard;           ///< id of this host's guard
  std::string master_address;  ///< of rank 0, as it is reached from this host
  uint16_t master_port = 0;
  int64_t start_timeout_s = 30;
  std::vector<int> host_sizes;  ///< ranks of each host that has any
  Variables settings;           ///< of the engine: what flags and the configuration file gave
};

/// Variables to set on top of the caller's (docs/reference/environment.md lists them).
HR_API Variables rank_variables(const Place& place, const JobFacts& facts);

/// The cores and threads of each rank of a host.
struct CoreShare {
  std::vector<int> cores;  ///< to be pinned to; empty: no pinning
  int threads = 1;
};

/// Cores of this process's affinity mask.
HR_API std::vector<int> own_cores();

/// Divide `cores` among `ranks`, in blocks. `wanted` cores for each, or 0: an equal part. With more
/// ranks than cores they share all of them, with one thread each. `quota` is the number of cores
/// that the control group pays for. `invalid_argument` when wanted * ranks is above the cores.
HR_API Result<std::vector<CoreShare>> divide_cores(const std::vector<int>& cores, int quota,
                                                   int ranks, int wanted);

/// Thread counts of the usual libraries, without those that the user has set.
HR_API Variables thread_variables(int threads, const std::function<bool(const char*)>& is_set);

}  // namespace headrace::run
