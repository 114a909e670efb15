// SPDX-License-Identifier: Apache-2.0
// What a NamedSet is made of: calls that wait, the thread that negotiates and runs them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/thread.h"
#include "headrace/comm/comm_metrics_internal.h"
#include "headrace/comm/flight_recorder_internal.h"
#include "headrace/comm/forks_internal.h"
#include "headrace/comm/named_set.h"
#include "headrace/comm/named_trace_internal.h"
#include "headrace/comm/negotiate/negotiator.h"

namespace headrace::comm {

/// How works reach the engine that they belong to; they may outlive it.
class Doorbell {
 public:
  explicit Doorbell(const ProcessSet& set) : set_(&set) {}
  /// Somebody waits for a work: do not wait for company.
  void begin_wait() HR_EXCLUDES(mutex_);
  void end_wait() HR_EXCLUDES(mutex_);
  /// In which somebody waited, so far.
  double waited_seconds() HR_EXCLUDES(mutex_);
  bool has_waiters() const { return waiters_.load() > 0; }
  void ring() HR_EXCLUDES(mutex_);
  void close() HR_EXCLUDES(mutex_);

 private:
  std::atomic<int> waiters_ = 0;
  base::Mutex mutex_;
  const ProcessSet* set_ HR_GUARDED_BY(mutex_);
  base::Micros waiting_since_ HR_GUARDED_BY(mutex_){};
  base::Micros waited_ HR_GUARDED_BY(mutex_){};
};

/// What a NamedWork points at. `status` is what waiters sleep on: 0 under way, 1 done.
struct NamedState {
  NamedCall call;
  std::shared_ptr<Doorbell> doorbell;
  std::optional<uint64_t> number;  ///< in the flight recorder
  const ForkMark mark;
  std::atomic<uint32_t> status = 0;

  // Written by the engine before status is 1, read by others after.
  Result<void> outcome;
  std::unique_ptr<std::byte[]> owned;
  size_t owned_bytes = 0;
  uint64_t rows = 0;
  std::vector<int64_t> received_splits;
  int last_joined = -1;
  std::unique_ptr<ProcessSet> new_set;

  bool done() const { return status.load(std::memory_order_acquire) != 0; }
  void complete(Result<void> how);
};

/// After this an operation is left to the progress thread, and who is late can be told.
inline constexpr std::chrono::seconds kDriveMost{10};

using NamedPending = std::shared_ptr<NamedState>;

struct NamedSet::State {
  State(Context& context_in, std::unique_ptr<ProcessSet> set_in, const NamedOptions& options_in,
        std::shared_ptr<FlightRecorder> recorder, std::shared_ptr<CommMetrics> metrics_in);
  ~State();

  // ---- what others see of it ----
  void record_submitted(NamedState& state);
  void record_started(const std::vector<NamedPending>& ours);
  void record_ended(const NamedState& state, bool good);
  /// Around a sleep until another rank has something to say. It counts as waiting if somebody waits
  /// for a work meanwhile.
  struct Wait {
    size_t kind = 0;
    int world_rank = -1;
    base::Micros since{};  // zero: nobody
  };
  Wait begin_wait() HR_EXCLUDES(mutex);
  void end_wait(const Wait& wait) const;

  /// Put them among the pending ones, all or none.
  Result<std::vector<NamedWork>> push(std::vector<NamedCall> calls) HR_EXCLUDES(mutex);
  Result<NamedWork> push_join() HR_EXCLUDES(mutex);

  // ---- the engine's thread ----
  void run();
  /// There is something to do, but for what other ranks have called to.
  bool is_due() HR_EXCLUDES(mutex);
  base::Micros nap_time() HR_EXCLUDES(mutex);
  /// Exchange what is new and do what all are ready for; the error that ends the set.
  Result<void> turn() HR_EXCLUDES(mutex);
  /// Look for better settings with what is submitted; tell the others of those found.
  void tune(const NamedTensor& tensor);
  Result<std::vector<Response>> exchange(const std::string& message);
  Result<void> finish(const Work& work, std::string_view what);
  bool looks_for_stalls() const;
  void inspect_stalls();
  void end(const Error& error) HR_EXCLUDES(mutex);
  NamedPending take_pending(const std::string& name) HR_EXCLUDES(mutex);

  // ---- doing it ----
  Result<void> run_response(const Response& response) HR_EXCLUDES(mutex);
  Result<void> run_all_reduce(const ReadyTensor& tensor, NamedState* ours);
  Result<void> run_fused(const Response& response, const std::vector<NamedPending>& ours);
  Result<void> run_adasum(const ReadyTensor& tensor, NamedState& ours);
  Result<void> run_all_gather(const ReadyTensor& tensor, NamedState& ours);
  Result<void> run_broadcast(const ReadyTensor& tensor, NamedState& ours);
  Result<void> run_all_to_all(const ReadyTensor& tensor, NamedState& ours);
  Result<void> run_reduce_scatter(const ReadyTensor& tensor, NamedState& ours);
  Result<void> run_add_set(const ReadyTensor& tensor, NamedState& ours);
  Result<void> run_one(const ReadyTensor& tensor, NamedState& ours);
  Options options_of(const ReadyTensor& tensor) const;
  Op op_of(const ReadyTensor& tensor, Options& options) const;
  /// "SHM_ALLREDUCE"
  std::string transfer_name(NamedKind kind) const;

  const ForkMark mark;
  Context& context;
  std::unique_ptr<ProcessSet> set;
  const NamedOptions options;
  const std::shared_ptr<CommMetrics> metrics;
  const std::shared_ptr<SetFlight> flight;
  std::shared_ptr<Doorbell> doorbell;

  base::Mutex mutex;  // leaf
  std::vector<NamedPending> incoming HR_GUARDED_BY(mutex);
  std::unordered_map<std::string, NamedPending> pending HR_GUARDED_BY(mutex);
  NamedPending joining HR_GUARDED_BY(mutex);
  bool join_is_new HR_GUARDED_BY(mutex) = false;
  std::optional<std::string> shutdown_reason HR_GUARDED_BY(mutex);  // not sent yet
  std::optional<Error> ended HR_GUARDED_BY(mutex);
  std::shared_ptr<Timeline> timeline HR_GUARDED_BY(mutex);
  base::Micros oldest HR_GUARDED_BY(mutex){};  // of what is incoming

  std::atomic<bool> has_incoming = false;
  std::atomic<bool> is_drowsy =
      false;  // asleep without anything incoming: to be woken by the first
  std::atomic<uint32_t> has_ended = 0;  // shutdown() sleeps on it
  std::atomic<bool> stop = false;

  // The engine's own.
  Negotiator negotiator;
  std::chrono::microseconds cycle_time;
  std::optional<Autotuner> tuner;  // rank 0's
  NamedTrace trace;
  std::vector<std::byte> fusion;
  bool is_shut_down = false;  // by a rank, and all have heard of it
  base::Micros warn_at{};     // of the next look at stalls
  base::Micros warn_every{};

  base::Thread thread;  // last: stops before what it uses goes
};

}  // namespace headrace::comm
