// SPDX-License-Identifier: Apache-2.0
// The one place that makes a process: clone, set it up, exec. Everything is prepared before.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/proc/child.h"

namespace headrace::proc {

/// All a new process needs, as plain strings and descriptors of this process.
struct SpawnPlan {
  std::string program;  ///< path, as execve takes it
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::string folder;                    ///< "" = ours
  std::vector<std::pair<int, int>>
      fds;  ///< {ours, the child's}, with 0, 1 and 2 where not inherited
  std::vector<ResourceLimit> limits;
  int nice = 0;
  std::vector<unsigned long> cores;  ///< a core_mask(); empty = ours
  bool die_with_parent = true;
  GroupNotice* notice = nullptr;
};

struct Spawned {
  int64_t pid = -1;
  base::Fd pidfd;
};

/// Start `plan`. An error that the child meets before its exec comes back here.
Result<Spawned> spawn_process(const SpawnPlan& plan);

/// Environment of the child: ours with the options applied; sorted, without doubles.
std::vector<std::string> child_environment(const ChildOptions& options);

/// Bits of sched_setaffinity(2), as many words as the highest core needs; empty for no cores.
std::vector<unsigned long> core_mask(const std::vector<int>& cores);

/// Path of the program `name`: itself with a slash in it, else found in `environment`'s PATH.
Result<std::string> find_program(const std::string& name,
                                 const std::vector<std::string>& environment);

}  // namespace headrace::proc
