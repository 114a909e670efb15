// SPDX-License-Identifier: Apache-2.0
#include "headrace/run/rank_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>

namespace headrace::run {

Variables rank_variables(const Place& place, const JobFacts& facts) {
  Variables all = facts.settings;
  const auto both = [&all](const char* name, const std::string& value) {
    all.emplace_back(std::string("HOROVOD_") + name, value);
    all.emplace_back(std::string("HEADRACE_") + name, value);
  };
  both("RANK", fmt::to_string(place.rank));
  both("SIZE", fmt::to_string(place.size));
  both("LOCAL_RANK", fmt::to_string(place.local_rank));
  both("LOCAL_SIZE", fmt::to_string(place.local_size));
  both("CROSS_RANK", fmt::to_string(place.cross_rank));
  both("CROSS_SIZE", fmt::to_string(place.cross_size));
  both("HOSTNAME", place.host_name);
  both("START_TIMEOUT", fmt::to_string(facts.start_timeout_s));
  all.emplace_back("RANK", fmt::to_string(place.rank));
  all.emplace_back("WORLD_SIZE", fmt::to_string(place.size));
  all.emplace_back("LOCAL_RANK", fmt::to_string(place.local_rank));
  all.emplace_back("LOCAL_WORLD_SIZE", fmt::to_string(place.local_size));
  all.emplace_back("MASTER_ADDR", facts.master_address);
  all.emplace_back("MASTER_PORT", fmt::to_string(facts.master_port));
  all.emplace_back("HEADRACE_STORE", facts.store);
  all.emplace_back("HEADRACE_JOB", facts.job);
  all.emplace_back("HEADRACE_SECRET_FILE", facts.secret_file);
  all.emplace_back("HEADRACE_GUARD", facts.guard);
  all.emplace_back("HEADRACE_HOST_SIZES", fmt::format("{}", fmt::join(facts.host_sizes, ",")));
  return all;
}

std::vector<int> own_cores() {
  std::vector<int> cores;
  for (int cpus = 1024; cpus <= (1 << 20) && cores.empty(); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    if (::sched_getaffinity(0, bytes, set) == 0) {
      for (int core = 0; core < cpus; ++core) {
        if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set)) {
          cores.push_back(core);
        }
      }
    }
    CPU_FREE(set);
  }
  return cores;
}

Result<std::vector<CoreShare>> divide_cores(const std::vector<int>& cores, int quota, int ranks,
                                            int wanted) {
  const auto count = static_cast<int>(cores.size());
  if (wanted > 0 && int64_t{wanted} * ranks > count) {
    return Error{Errc::invalid_argument,
                 fmt::format("{} ranks with {} cores each need {} cores, and there are {} here; "
                             "give a smaller --cpus-per-rank",
                             ranks, wanted, int64_t{wanted} * ranks, count)};
  }
  std::vector<CoreShare> shares(static_cast<size_t>(ranks));
  const int block = wanted > 0 ? wanted : count / std::max(ranks, 1);
  if (block == 0) {
    return shares;
  }
  // A control group that pays for fewer cores than may be used: threads by what is paid.
  const int paid = std::max(1, quota / ranks);
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(rank) * block;
    shares[rank].cores.assign(begin, begin + block);
    shares[rank].threads = wanted > 0 ? wanted : std::min(block, paid);
  }
  return shares;
}

Variables thread_variables(int threads, const std::function<bool(const char*)>& is_set) {
  Variables all;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                           "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"}) {
    if (!is_set(name)) {
      all.emplace_back(name, fmt::to_string(threads));
    }
  }
  if (!is_set("TF_NUM_INTEROP_THREADS")) {
    all.emplace_back("TF_NUM_INTEROP_THREADS", "1");
  }
  return all;
}

}  // namespace headrace::run
