// SPDX-License-Identifier: Apache-2.0
// How a process finds its job: by what headrace run, torchrun, Slurm or MPI put in its environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/comm/context.h"
#include "headrace/wire/endpoint.h"

namespace headrace::comm {

/// Who started this process.
enum class Starter : uint8_t { nobody, headrace, torchrun, slurm, open_mpi, pmi };
HR_API std::string_view starter_name(Starter starter);

/// What the environment says of this process and its job.
struct JobEnvironment {
  Starter starter = Starter::nobody;
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank = {};
  std::optional<int> local_size = {};
  std::optional<int> cross_rank = {};
  std::optional<int> cross_size = {};
  std::vector<int> host_sizes = {};  ///< ranks of each host, when the launcher told
  std::string host = {};             ///< this host, as the launcher calls it
  std::string job = {};              ///< the same on all ranks, and of no other job
  wire::Endpoint store = {};         ///< where the job's store is
  bool serves_store = false;         ///< this process is to serve it
  std::string secret_file = {};      ///< empty: none
  std::optional<int> secret_descriptor = {};
  bool insecure = false;  ///< HEADRACE_INSECURE: a store of the network without a secret
  std::chrono::milliseconds start_timeout{std::chrono::seconds(30)};
};

using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Read the variables; HEADRACE_STORE comes first, then Open MPI's and Slurm's step, then
/// torchrun's RANK and WORLD_SIZE, then PMI's. Pure. `invalid_argument` names the variable that is
/// missing or wrong.
HR_API Result<JobEnvironment> read_job_environment(const Lookup& lookup);

/// The first host of Slurm's list ("node[03-05,9],login" -> "node03"). Pure.
HR_API std::string first_of_nodelist(std::string_view list);

/// What the fronts tell users. Local: on this host; cross: among the hosts that have a rank with
/// this local rank.
struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool is_homogeneous = true;  ///< all hosts have as many ranks
};

/// The launcher's word for all ranks of its job, else what the ranks found out of one another.
HR_API Place place_of(const JobEnvironment& environment, const Topology& topology, int rank);

struct JoinOptions {
  /// Ranks of the launcher's world that form this one, ascending; empty: all. The others must not
  /// join it.
  std::vector<int> ranks = {};
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of an operation
  std::optional<std::chrono::milliseconds> start_timeout = {};  ///< default: the environment's
};

struct Joined {
  std::unique_ptr<Context> context;
  Place place;
  JobEnvironment environment;
};

/// For ranks that are processes: count on this process's board, which is made at the first call,
/// and take SIGUSR2 for the flight recorder. Where no board can be made that is one warning.
HR_API void observe_process(Config* config);
/// What the board of this process says, by name, times in seconds, as base::board_values has it;
/// empty when it has none.
HR_API Json process_metrics();
/// Context::flight_record() of each membership of this process that observe_process was asked for.
HR_API std::vector<std::string> flight_records();

/// Become a rank of the job that the environment names. Repeatable: the n-th call with the same
/// `ranks` meets the n-th of the others. Errors: of read_job_environment, of Context::init
/// (`timeout` names the ranks that did not come), of the store (`auth_failed`, `io`).
///
/// Where no store is there yet, rank 0 serves one until its process ends.
HR_API Result<Joined> join_job(const JoinOptions& options = {});

}  // namespace headrace::comm
