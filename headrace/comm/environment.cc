// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "headrace/base/random.h"

namespace headrace::comm {

namespace {

constexpr size_t kKeyBytesMax = 200;  // a job's id has at most 255

/// The value and the name that it was found under.
struct Found {
  std::string name;
  std::string value;
};

class Reader {
 public:
  explicit Reader(const Lookup& lookup) : lookup_(lookup) {}

  std::optional<Found> first(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (auto value = lookup_(name)) {
        return Found{name, *std::move(value)};
      }
    }
    return std::nullopt;
  }
  std::string text(std::initializer_list<const char*> names) const {
    const auto found = first(names);
    return found ? found->value : std::string();
  }
  bool has(const char* name) const { return lookup_(name).has_value(); }
  /// Absent is not wrong.
  Result<std::optional<int>> optional_number(std::initializer_list<const char*> names) const {
    const auto found = first(names);
    if (!found) {
      return std::optional<int>();
    }
    int number = 0;
    const char* end = found->value.data() + found->value.size();
    const auto [stop, code] = std::from_chars(found->value.data(), end, number);
    if (code != std::errc() || stop != end || number < 0) {
      return Error{Errc::invalid_argument,
                   fmt::format("comm: {} is \"{}\", not a whole number of at least 0", found->name,
                               found->value)};
    }
    return std::optional(number);
  }
  Result<int> number(std::initializer_list<const char*> names) const {
    HR_TRY(const auto found, optional_number(names));
    if (!found) {
      return Error{Errc::invalid_argument,
                   fmt::format("comm: {} is not set, though other variables of its launcher are; "
                               "start the ranks with headrace run, torchrun, srun or mpirun",
                               *names.begin())};
    }
    return *found;
  }

 private:
  const Lookup& lookup_;
};

Starter starter_of(const Reader& reader) {
  // A torchrun that runs as a rank of ours starts ranks of its own, which inherit our variables.
  const bool inside = reader.has("TORCHELASTIC_RUN_ID") &&
                      (reader.text({"RANK"}) != reader.text({"HEADRACE_RANK"}) ||
                       reader.text({"WORLD_SIZE"}) != reader.text({"HEADRACE_SIZE"}));
  if (reader.has("HEADRACE_STORE") && !inside) {
    return Starter::headrace;
  }
  if (reader.has("OMPI_COMM_WORLD_RANK") && reader.has("OMPI_COMM_WORLD_SIZE")) {
    return Starter::open_mpi;
  }
  if (reader.has("RANK") && reader.has("WORLD_SIZE")) {
    return Starter::torchrun;
  }
  // A batch script has the job's variables too, but only srun's processes are ranks of a step.
  if (reader.has("SLURM_PROCID") && reader.has("SLURM_STEP_ID") &&
      (reader.has("SLURM_NTASKS") || reader.has("SLURM_STEP_NUM_TASKS"))) {
    return Starter::slurm;
  }
  if (reader.has("PMI_RANK") && reader.has("PMI_SIZE")) {
    return Starter::pmi;
  }
  return Starter::nobody;
}

Result<void> read_host_sizes(const Reader& reader, JobEnvironment* out) {
  const std::string text = reader.text({"HEADRACE_HOST_SIZES"});
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    int size = 0;
    const auto [stop, code] = std::from_chars(rest.data(), rest.data() + comma, size);
    if (code != std::errc() || stop != rest.data() + comma) {
      return Error{Errc::invalid_argument,
                   fmt::format("comm: HEADRACE_HOST_SIZES is \"{}\", not numbers with commas "
                               "between",
                               text)};
    }
    out->host_sizes.push_back(size);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {};
}

Result<void> read_headrace(const Reader& reader, JobEnvironment* out) {
  HR_TRY(out->rank, reader.number({"HEADRACE_RANK", "HOROVOD_RANK"}));
  HR_TRY(out->size, reader.number({"HEADRACE_SIZE", "HOROVOD_SIZE"}));
  HR_TRY(out->local_rank, reader.optional_number({"HEADRACE_LOCAL_RANK", "HOROVOD_LOCAL_RANK"}));
  HR_TRY(out->local_size, reader.optional_number({"HEADRACE_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE"}));
  HR_TRY(out->cross_rank, reader.optional_number({"HEADRACE_CROSS_RANK", "HOROVOD_CROSS_RANK"}));
  HR_TRY(out->cross_size, reader.optional_number({"HEADRACE_CROSS_SIZE", "HOROVOD_CROSS_SIZE"}));
  HR_TRY(read_host_sizes(reader, out));
  out->host = reader.text({"HEADRACE_HOSTNAME", "HOROVOD_HOSTNAME"});
  out->job = reader.text({"HEADRACE_JOB"});
  auto store = wire::Endpoint::parse(reader.text({"HEADRACE_STORE"}));
  if (!store.ok()) {
    return store.error().add_context("comm: HEADRACE_STORE");
  }
  out->store = *std::move(store);
  return {};
}

/// The store that rank 0 serves. On one host by a name in Linux' abstract space: no port to choose,
/// and the kernel says whose the peers are. `key` tells jobs of one user on one host apart.
Result<void> serve_store(const Reader& reader, const std::string& key, const std::string& address,
                         std::optional<int> port, JobEnvironment* out) {
  out->serves_store = out->rank == 0;
  out->job = fmt::format("{}-{}", starter_name(out->starter), key.substr(0, kKeyBytesMax));
  if (out->local_size && *out->local_size == out->size) {
    out->store = wire::Endpoint::unix_name(
        fmt::format("headrace-{}-{:016x}", ::geteuid(), base::derive_seed(0, out->job)));
    return {};
  }
  HR_TRY(const auto offset, reader.optional_number({"HEADRACE_PORT_OFFSET"}));
  if (address.empty() || !port) {
    return Error{
        Errc::invalid_argument,
        fmt::format("comm: {} started ranks on several hosts, and {} is not set; set "
                    "MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port "
                    "there, the same for all ranks",
                    starter_name(out->starter), address.empty() ? "MASTER_ADDR" : "MASTER_PORT")};
  }
  const int number = *port + offset.value_or(1);
  if (number < 1 || number > 65535) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: MASTER_PORT {} and HEADRACE_PORT_OFFSET {} give no port", *port,
                             offset.value_or(1))};
  }
  out->store = wire::Endpoint::tcp(address, static_cast<uint16_t>(number));
  return {};
}

Result<void> read_torchrun(const Reader& reader, JobEnvironment* out) {
  HR_TRY(out->rank, reader.number({"RANK"}));
  HR_TRY(out->size, reader.number({"WORLD_SIZE"}));
  HR_TRY(out->local_rank, reader.optional_number({"LOCAL_RANK"}));
  HR_TRY(out->local_size, reader.optional_number({"LOCAL_WORLD_SIZE"}));
  HR_TRY(const auto port, reader.optional_number({"MASTER_PORT"}));
  const std::string address = reader.text({"MASTER_ADDR"});
  if (!out->local_size && wire::Endpoint::tcp(address, 1).is_loopback()) {
    out->local_size = out->size;
  }
  const std::string key =
      fmt::format("{}-{}-{}", port.value_or(0), reader.text({"TORCHELASTIC_RUN_ID"}),
                  reader.text({"TORCHELASTIC_RESTART_COUNT"}));
  return serve_store(reader, key, address, port, out);
}

Result<void> read_slurm(const Reader& reader, JobEnvironment* out) {
  HR_TRY(out->rank, reader.number({"SLURM_PROCID"}));
  HR_TRY(out->size, reader.number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}));
  HR_TRY(out->local_rank, reader.optional_number({"SLURM_LOCALID"}));
  HR_TRY(const auto nodes,
         reader.optional_number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}));
  const std::string list =
      reader.text({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  const bool one_node = nodes ? *nodes == 1 : list.find_first_of(",[") == std::string::npos;
  if (one_node) {
    out->local_size = out->size;
  }
  HR_TRY(const auto job, reader.optional_number({"SLURM_JOB_ID", "SLURM_JOBID"}));
  HR_TRY(auto port, reader.optional_number({"MASTER_PORT"}));
  std::string address = reader.text({"MASTER_ADDR"});
  if (address.empty()) {
    address = first_of_nodelist(list);
  }
  if (!port && job) {
    port = 20000 + *job % 10000;  // the same on all ranks, another for another job
  }
  const std::string key = fmt::format("{}.{}", job.value_or(0), reader.text({"SLURM_STEP_ID"}));
  return serve_store(reader, key, address, port, out);
}

Result<void> read_open_mpi(const Reader& reader, JobEnvironment* out) {
  HR_TRY(out->rank, reader.number({"OMPI_COMM_WORLD_RANK"}));
  HR_TRY(out->size, reader.number({"OMPI_COMM_WORLD_SIZE"}));
  HR_TRY(out->local_rank, reader.optional_number({"OMPI_COMM_WORLD_LOCAL_RANK"}));
  HR_TRY(out->local_size, reader.optional_number({"OMPI_COMM_WORLD_LOCAL_SIZE"}));
  HR_TRY(const auto port, reader.optional_number({"MASTER_PORT"}));
  const std::string key =
      reader.text({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"});
  return serve_store(reader, key, reader.text({"MASTER_ADDR"}), port, out);
}

Result<void> read_pmi(const Reader& reader, JobEnvironment* out) {
  HR_TRY(out->rank, reader.number({"PMI_RANK"}));
  HR_TRY(out->size, reader.number({"PMI_SIZE"}));
  HR_TRY(out->local_rank, reader.optional_number({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}));
  HR_TRY(out->local_size, reader.optional_number({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}));
  HR_TRY(const auto port, reader.optional_number({"MASTER_PORT"}));
  // mpirun of MPICH hands each process a descriptor of its own; their parent is one on each host.
  const std::string key = fmt::format("{}", ::getppid());
  return serve_store(reader, key, reader.text({"MASTER_ADDR"}), port, out);
}

Result<void> read_rest(const Reader& reader, JobEnvironment* out) {
  out->secret_file = reader.text({"HEADRACE_SECRET_FILE"});
  HR_TRY(out->secret_descriptor, reader.optional_number({"HEADRACE_SECRET_FD"}));
  out->insecure = reader.text({"HEADRACE_INSECURE"}) == "1";
  HR_TRY(const auto seconds,
         reader.optional_number({"HEADRACE_START_TIMEOUT", "HOROVOD_START_TIMEOUT"}));
  if (seconds) {
    out->start_timeout = std::chrono::seconds(std::max(1, *seconds));
  }
  if (out->size < 1 || out->rank >= out->size) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: {} says that this is rank {} of {} ranks",
                             starter_name(out->starter), out->rank, out->size)};
  }
  return {};
}

}  // namespace

std::string_view starter_name(Starter starter) {
  switch (starter) {
    case Starter::nobody: return "nobody";
    case Starter::headrace: return "headrace";
    case Starter::torchrun: return "torchrun";
    case Starter::slurm: return "slurm";
    case Starter::open_mpi: return "open_mpi";
    case Starter::pmi: return "pmi";
  }
  return "";
}

std::string first_of_nodelist(std::string_view list) {
  const size_t bracket = list.find('[');
  const size_t comma = std::min(list.find(','), list.size());
  if (bracket == std::string_view::npos || comma < bracket) {
    return std::string(list.substr(0, comma));
  }
  const std::string_view inside = list.substr(bracket + 1);
  const size_t close = std::min(inside.find(']'), inside.size());
  const std::string_view rest = inside.substr(std::min(close + 1, inside.size()));
  return std::string(list.substr(0, bracket)) +
         std::string(inside.substr(0, std::min(inside.find_first_of(",-]"), close))) +
         std::string(rest.substr(0, std::min(rest.find(','), rest.size())));
}

Result<JobEnvironment> read_job_environment(const Lookup& lookup) {
  const Reader reader(lookup);
  JobEnvironment out;
  out.starter = starter_of(reader);
  switch (out.starter) {
    case Starter::headrace: HR_TRY(read_headrace(reader, &out)); break;
    case Starter::torchrun: HR_TRY(read_torchrun(reader, &out)); break;
    case Starter::slurm: HR_TRY(read_slurm(reader, &out)); break;
    case Starter::open_mpi: HR_TRY(read_open_mpi(reader, &out)); break;
    case Starter::pmi: HR_TRY(read_pmi(reader, &out)); break;
    case Starter::nobody: break;
  }
  HR_TRY(read_rest(reader, &out));
  return out;
}

Place place_of(const JobEnvironment& environment, const Topology& topology, int rank) {
  Place place;
  place.rank = rank;
  place.size = static_cast<int>(topology.node_of.size());
  const bool whole = place.size == environment.size && rank == environment.rank;
  if (whole && environment.starter == Starter::headrace && environment.local_rank &&
      environment.local_size && environment.cross_rank && environment.cross_size) {
    place.local_rank = *environment.local_rank;
    place.local_size = *environment.local_size;
    place.cross_rank = *environment.cross_rank;
    place.cross_size = *environment.cross_size;
    const std::vector<int>& sizes = environment.host_sizes;
    place.is_homogeneous =
        std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes.front(); });
    return place;
  }
  std::vector<int> sizes(static_cast<size_t>(topology.nodes), 0);
  for (const int node : topology.node_of) {
    ++sizes[static_cast<size_t>(node)];
  }
  place.local_rank = topology.local_rank;
  place.local_size = topology.local_world_size;
  place.cross_size = 0;
  for (int node = 0; node < topology.nodes; ++node) {
    const bool has_peer = sizes[static_cast<size_t>(node)] > place.local_rank;
    place.cross_rank += has_peer && node < topology.node_rank ? 1 : 0;
    place.cross_size += has_peer ? 1 : 0;
    place.is_homogeneous = place.is_homogeneous && sizes[static_cast<size_t>(node)] == sizes[0];
  }
  return place;
}

}  // namespace headrace::comm
