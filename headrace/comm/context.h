// SPDX-License-Identifier: Apache-2.0
// This process as one of the ranks of a job.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/board.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/comm/process_set.h"
#include "headrace/comm/store_table.h"
#include "headrace/wire/secret.h"

namespace headrace::comm {

class CommMetrics;
class FlightRecorder;

/// What carries tensors. `automatic`: shared memory between ranks of a node, TCP between nodes.
enum class Transport : uint8_t { automatic, shm, tcp };
HR_API std::string_view transport_name(Transport transport);
/// "auto", "shm" or "tcp"; `invalid_argument` for anything else.
HR_API Result<Transport> transport_of_name(std::string_view name);

/// Ports that a rank may listen at, both ends included; 0: any.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;
};

/// Who this process is and how it takes part. All but `rank`, `iface`, `ports`, `spin`,
/// `gpu_folders`, `node`, `board` and `flight_*` must be equal on all ranks.
struct Config {
  int rank = 0;
  int world_size = 1;
  std::string job = "headrace";  ///< keys in the store begin with it
  uint64_t generation = 0;       ///< so do keys of each new membership
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};      ///< of an operation
  std::chrono::milliseconds init_timeout{std::chrono::minutes(5)};  ///< to meet all ranks
  Transport transport = Transport::automatic;
  std::string iface =
      {};  ///< which interfaces others may reach this rank at: wire::InterfaceFilter
  /// A host from which the kernel hears nothing for hb_ms * hb_miss (at least a second) is lost.
  std::chrono::milliseconds hb_ms{500};
  int hb_miss = 4;
  int streams = 1;   ///< TCP connections that carry the tensors between two ranks of a set, up to 8
  bool crc = false;  ///< what goes over TCP has checksums of its own: `corrupt` where one is wrong
  /// Of operations through a node's memory: bytes that a rank moves at once, and up to which one
  /// goes in a single piece (over TCP: without a second exchange). 0: by the number of ranks. They
  /// have no effect on results.
  uint64_t chunk_bytes = 0;
  uint64_t small_bytes = 0;
  /// How long a thread looks for other ranks before it sleeps; default: by cores and transport.
  std::optional<std::chrono::microseconds> spin = {};
  PortRange ports = {};          ///< every rank of a host takes one of them
  Wire16 wire16 = Wire16::none;  ///< of reductions whose options do not say it
  /// Of the job: who does not know it is turned away. Without one, rank 0 makes one for this
  /// membership and hands it out through the store, which is as safe as the store is.
  std::shared_ptr<const wire::Secret> secret = {};
  std::shared_ptr<base::Board> board = {};  ///< comm.* is counted on it; none: nowhere
  /// Of the flight recorder: where a failure, and SIGUSR2 with `flight_signal`, writes it to.
  /// Without a folder failures write nothing, and the signal writes to the working folder. That
  /// signal is only taken while its disposition is the default.
  base::Path flight_folder = {};
  bool flight_signal = false;
  /// Tensors on GPUs go through host memory where NCCL is not there, instead of `unsupported`.
  bool gpu_staging = false;
  /// Folders in which libnccl.so.2 and CUDA's runtime are looked for, before the system's; copies
  /// that this process has loaded already come first.
  std::vector<std::string> gpu_folders = {};
  /// Ranks that say the same here count as those of one node; empty: what the kernel says. For
  /// ranks that could share memory and shall not, and for tests.
  std::string node = {};
};

/// Where the ranks are. A node is a set of ranks that share memory.
struct Topology {
  int node_rank = 0;
  int nodes = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::vector<std::string> hosts;  ///< by rank
  std::vector<int> node_of;        ///< by rank

  /// Of a rank among those of its node.
  HR_API int place_of(int rank) const;
};

/// Membership in a job: made by all ranks together, closed by each for itself. A process may have
/// several, one after the other or at once. Thread-safe but for init and close.
///
/// In a child of fork() every call fails with `invalid_argument`, and closing it there changes
/// nothing for the ranks.
class HR_API Context {
 public:
  struct State;

  /// Meet the other ranks in `store`, share memory and agree. Errors: `timeout` names the ranks
  /// that did not come, `mismatch` what differs between ranks, `unsupported` when ranks cannot
  /// share memory and shall not use TCP, `out_of_memory`; where ranks cannot reach one another over
  /// TCP, those of wire::Channel::connect, with who cannot reach whom.
  static Result<std::unique_ptr<Context>> init(const Config& config, const StoreTable& store);
  explicit Context(std::unique_ptr<State> state);
  /// Others that still wait for this rank are told that it has closed.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ProcessSet& world() const;
  const Topology& topology() const;
  const Config& config() const;

  /// Process sets of the ranks of `parent` with the same color, in the order of (key, rank). All
  /// ranks of `parent` call it at the same place among its operations. A negative color gets none.
  Result<std::unique_ptr<ProcessSet>> split(ProcessSet& parent, int color, int key);

  /// The last 1024 operations of each process set, as JSON: which, since when, how far, and which
  /// rank they wait for. At any time, on any thread. docs/internals/comm.md has its members.
  std::string flight_record() const;
  /// Bring the counters on the board up to date: of operations that ended at once up to 255 of each
  /// set may be missing there otherwise.
  void flush_metrics() const;

  /// End all operations of all sets, here and on all ranks, with this error.
  void fail(const Error& error);

  /// For layers on top that record and count what they do themselves.
  const std::shared_ptr<FlightRecorder>& flight_recorder() const;
  const std::shared_ptr<CommMetrics>& metrics() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace headrace::comm
