// SPDX-License-Identifier: Apache-2.0
// The thread of a NamedSet: sleep, exchange what is new, do what all are ready for.
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

#include "headrace/base/futex.h"
#include "headrace/base/log.h"
#include "headrace/comm/named_set_internal.h"

namespace headrace::comm {

namespace {

constexpr base::Micros kIdleMost = std::chrono::hours(1);  // no tick: somebody wakes us
// A message of a turn: how long it is, and as much of it as goes into one cache line.
struct Opening {
  uint64_t bytes = 0;
  std::array<char, 48> head{};
};
static_assert(sizeof(Opening) == 56);

base::Micros now() { return base::system_clock().monotonic(); }

/// Keep this thread on one core.
void stay_on(int core) {
  if (core < 0) {
    return;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  if (core < CPU_SETSIZE) {
    CPU_SET(static_cast<size_t>(core), &one);
  }
  if (const int error = ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one); error != 0) {
    base::log_error(
        errno_error(error, fmt::format("comm: the engine's thread cannot stay on core {}", core))
            .message());
  }
}

/// What must be the same on all ranks, as it is told when it is not.
std::string settings_text(const NamedOptions& options) {
  return fmt::format("fusion_bytes {}, cache_capacity {}, group_fusion {}, join_active {}",
                     options.fusion_bytes, options.cache_capacity, options.group_fusion,
                     options.join_active);
}

}  // namespace

NamedSet::State::State(Context& context_in, std::unique_ptr<ProcessSet> set_in,
                       const NamedOptions& options_in, std::shared_ptr<FlightRecorder> recorder,
                       std::shared_ptr<CommMetrics> metrics_in)
    : context(context_in),
      set(std::move(set_in)),
      options(options_in),
      metrics(std::move(metrics_in)),
      flight(recorder->add(set->id(), true,
                           std::vector<int>(set->world_ranks().begin(), set->world_ranks().end()),
                           set->rank())),
      doorbell(std::make_shared<Doorbell>(*set)),
      negotiator(set->rank(),
                 std::vector<int>(set->world_ranks().begin(), set->world_ranks().end()),
                 {.fusion_bytes = options_in.fusion_bytes,
                  .cache_capacity = options_in.cache_capacity,
                  .group_fusion = options_in.group_fusion,
                  .settings = settings_text(options_in)}),
      cycle_time(options_in.cycle_time),
      warn_every(options_in.stall_warn),
      thread("hr-named", [this] { run(); }) {}

NamedSet::State::~State() {
  stop = true;
  bool is_over = false;
  {
    base::MutexLock lock(mutex);
    is_over = ended.has_value();
  }
  if (!is_over) {
    set->abort("closed");  // an operation under way ends with this
  }
  set->wake();
  thread.join();
  doorbell->close();
}

bool NamedSet::State::is_due() {
  if (stop || set->failure()) {
    return true;
  }
  if (!has_incoming) {
    return false;
  }
  base::MutexLock lock(mutex);
  return shutdown_reason || doorbell->has_waiters() || now() >= oldest + cycle_time;
}

/// All ranks know the same; one tells it.
bool NamedSet::State::looks_for_stalls() const {
  return set->rank() == 0 && (options.stall_warn.count() > 0 || options.stall_fail.count() > 0);
}

base::Micros NamedSet::State::nap_time() {
  if (has_incoming) {
    base::MutexLock lock(mutex);
    return std::clamp(oldest + cycle_time - now(), base::Micros(1), kIdleMost);
  }
  if (negotiator.waiting() && looks_for_stalls()) {
    return std::clamp(warn_at - now(), base::Micros(1000), kIdleMost);
  }
  return kIdleMost;
}

void NamedSet::State::run() {
  stay_on(options.core);
  if (options.autotune && set->rank() == 0) {
    tuner.emplace(*options.autotune, set->size(), Tuned{options.fusion_bytes, options.cycle_time});
  }
  while (!stop) {
    const bool drowsy = !has_incoming;
    is_drowsy = drowsy;
    if (!is_due() && !set->called()) {
      const Wait wait = begin_wait();
      // What comes in before this thread is seen to sleep changes how long it may.
      set->wait_called(nap_time(), [this, drowsy] { return is_due() || (drowsy && has_incoming); });
      end_wait(wait);
    }
    is_drowsy = false;
    if (stop) {
      break;
    }
    Result<void> good;
    if (auto failed = set->failure()) {
      good = *std::move(failed);
    } else if (is_due() || set->called()) {
      good = turn();
    }
    if (!good.ok()) {
      if (!is_shut_down) {  // the others may not know of it
        set->abort(good.error().message());
      }
      end(good.error());
      return;
    }
    inspect_stalls();
  }
  end({Errc::cancelled, "comm: the process set was closed"});
}

Result<void> NamedSet::State::turn() {
  std::vector<NamedPending> submitted;
  {
    base::MutexLock lock(mutex);
    for (const NamedPending& one : incoming) {
      negotiator.submit(one->call.tensor->name, one->call.tensor->encoded);
    }
    submitted.swap(incoming);
    if (std::exchange(join_is_new, false)) {
      negotiator.join();
    }
    if (const auto reason = std::exchange(shutdown_reason, std::nullopt)) {
      negotiator.shutdown(Errc::cancelled, *reason);
    }
    has_incoming = false;
    trace.set_timeline(timeline);
  }
  trace.cycle();
  negotiator.observe(trace.is_on() ? [this](const std::string& name, NamedKind kind,
                                            int rank) { trace.ready(name, kind, rank); }
                                   : Negotiator::Observer());
  for (const NamedPending& one : submitted) {
    tune(*one->call.tensor);
  }
  HR_TRY(const auto responses, exchange(negotiator.message()));
  if (const auto tuned = negotiator.take_tuned()) {
    cycle_time = tuned->cycle_time;
  }
  for (const Response& response : responses) {
    trace.decided(response);
  }
  for (const Response& response : responses) {
    HR_TRY(run_response(response));
    trace.done(response);
  }
  return {};
}

void NamedSet::State::tune(const NamedTensor& tensor) {
  if (!tuner || tuner->done()) {
    return;
  }
  const Request& what = tensor.request;
  const uint64_t bytes = what.elements() * dtype_bytes(what.dtype);
  if (const auto tuned = tuner->submitted(tensor.name, bytes, doorbell->waited_seconds())) {
    negotiator.tune(*tuned);
  }
}

Result<std::vector<Response>> NamedSet::State::exchange(const std::string& message) {
  const auto ranks = static_cast<size_t>(set->size());
  Opening ours;
  ours.bytes = message.size();
  std::copy_n(message.begin(), std::min(message.size(), ours.head.size()), ours.head.begin());
  std::vector<Opening> openings(ranks);
  const Options how = {
      .name = "negotiation", .blocking = true, .blocking_limit = kDriveMost, .negotiates = true};
  set->call_others();
  HR_TRY(finish(set->all_gather(ConstBuffer(&ours, sizeof ours, Dtype::u8),
                                Buffer{openings.data(), sizeof(Opening) * ranks, Dtype::u8}, how),
                "to exchange what is ready"));
  std::vector<std::string_view> messages;
  std::vector<uint64_t> counts;
  for (const Opening& one : openings) {
    counts.push_back(one.bytes);
    messages.emplace_back(one.head.data(), std::min<size_t>(one.bytes, one.head.size()));
  }
  const bool is_short = std::all_of(counts.begin(), counts.end(),
                                    [&](uint64_t bytes) { return bytes <= ours.head.size(); });
  std::string all;
  if (!is_short) {
    all.resize(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
    HR_TRY(finish(set->all_gather_v(ConstBuffer(message.data(), message.size(), Dtype::u8), counts,
                                    Buffer{all.data(), all.size(), Dtype::u8}, how),
                  "to exchange what is ready"));
    size_t at = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
      messages[rank] = std::string_view(all).substr(at, counts[rank]);
      at += counts[rank];
    }
  }
  return negotiator.receive(messages, now());
}

Result<void> NamedSet::State::finish(const Work& work, std::string_view what) {
  if (work.done() || options.stall_warn.count() == 0) {
    return work.wait();
  }
  auto warn_after =
      std::max<std::chrono::milliseconds>(options.stall_warn - kDriveMost, kDriveMost);
  while (true) {
    auto outcome = work.wait(warn_after);
    if (work.done()) {
      return outcome;
    }
    const int late = set->waits_for();
    const auto ranks = set->world_ranks();
    const std::string whom =
        late < 0 ? "another rank" : fmt::format("rank {}", ranks[static_cast<size_t>(late)]);
    base::log_warning(
        fmt::format("comm: rank {} waits for {} {}; that process is alive but does not answer",
                    ranks[static_cast<size_t>(set->rank())], whom, what));
    warn_after *= 2;
  }
}

void NamedSet::State::inspect_stalls() {
  if (!negotiator.waiting() || !looks_for_stalls()) {
    warn_at = {};
    return;
  }
  const base::Micros smallest =
      options.stall_warn.count() > 0 ? options.stall_warn : options.stall_fail;
  if (warn_at == base::Micros{}) {
    warn_at = now() + smallest;
    warn_every = smallest;
    return;
  }
  if (now() < warn_at) {
    return;
  }
  const auto stalls = negotiator.stalled(now() - smallest);
  if (!stalls.empty() && options.stall_warn.count() > 0) {
    std::istringstream report(negotiator.stall_report(stalls, now()));
    for (std::string line; std::getline(report, line);) {
      base::log_warning("comm: " + line);
    }
    warn_every *= 2;
  }
  warn_at = now() + warn_every;
  if (options.stall_fail.count() > 0) {
    const auto fatal = negotiator.stalled(now() - options.stall_fail);
    if (!fatal.empty()) {
      base::MutexLock lock(mutex);
      shutdown_reason = negotiator.stall_report(fatal, now());
      has_incoming = true;
    } else {
      warn_at = std::min(warn_at, now() + options.stall_fail);
    }
  }
}

void NamedSet::State::end(const Error& error) {
  std::vector<NamedPending> all;
  {
    base::MutexLock lock(mutex);
    ended = error;
    for (auto& [name, state] : pending) {
      all.push_back(std::move(state));
    }
    pending.clear();
    incoming.clear();
    if (joining != nullptr) {
      all.push_back(std::exchange(joining, nullptr));
    }
  }
  flight->set_failure(error);
  for (const NamedPending& one : all) {
    record_ended(*one, false);
    one->complete(error);
  }
  has_ended = 1;
  base::futex_wake_all(has_ended);
}

NamedPending NamedSet::State::take_pending(const std::string& name) {
  base::MutexLock lock(mutex);
  auto found = pending.extract(name);
  return found.empty() ? nullptr : std::move(found.mapped());
}

}  // namespace headrace::comm
