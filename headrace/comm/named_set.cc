// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/named_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "headrace/base/futex.h"
#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/named_set_internal.h"

namespace headrace::comm {

namespace {

constexpr base::Micros kSleepMost = std::chrono::seconds(1);  // nobody forgets to wake
constexpr uint64_t kBytesMax = uint64_t{1} << 60;
constexpr size_t kNameMax = 64U << 10U;

Error bad(const NamedTensor& tensor, const std::string& what) {
  return {
      Errc::invalid_argument,
      fmt::format("comm: {} \"{}\": {}", named_kind_name(tensor.request.kind), tensor.name, what)};
}

Result<void> check_shape(const NamedTensor& call) {
  uint64_t bytes = dtype_bytes(call.request.dtype);
  for (const int64_t dimension : call.request.shape) {
    if (dimension < 0) {
      return bad(call,
                 fmt::format("shape {} has a negative dimension", shape_text(call.request.shape)));
    }
    bytes *= std::max<uint64_t>(static_cast<uint64_t>(dimension), 1);
    if (static_cast<uint64_t>(dimension) > kBytesMax || bytes > kBytesMax) {
      return bad(call, fmt::format("shape {} is too large", shape_text(call.request.shape)));
    }
  }
  return {};
}

/// Splits of an alltoall, equal ones where there are none.
Result<void> complete_splits(NamedTensor& tensor, size_t ranks) {
  Request& request = tensor.request;
  if (request.splits.empty()) {
    if (request.rows() % ranks != 0) {
      return bad(tensor, fmt::format("{} rows are not divisible among {} ranks; give splits",
                                     request.rows(), ranks));
    }
    request.splits.assign(ranks, static_cast<int64_t>(request.rows() / ranks));
  }
  if (request.splits.size() != ranks) {
    return bad(tensor, fmt::format("{} splits for {} ranks", request.splits.size(), ranks));
  }
  uint64_t sum = 0;
  for (const int64_t one : request.splits) {
    if (one < 0 || static_cast<uint64_t>(one) > request.rows()) {
      return bad(tensor, fmt::format("a split of {} rows of {}", one, request.rows()));
    }
    sum += static_cast<uint64_t>(one);
  }
  if (sum > request.rows()) {
    return bad(tensor, fmt::format("the sum of the splits, {}, is greater than the rows, {}", sum,
                                   request.rows()));
  }
  return {};
}

}  // namespace

void Doorbell::begin_wait() {
  base::MutexLock lock(mutex_);
  if (waiters_.fetch_add(1) == 0) {
    waiting_since_ = base::system_clock().monotonic();
  }
  if (set_ != nullptr) {
    set_->wake();
  }
}

void Doorbell::end_wait() {
  base::MutexLock lock(mutex_);
  if (waiters_.fetch_sub(1) == 1) {
    waited_ += base::system_clock().monotonic() - waiting_since_;
  }
}

double Doorbell::waited_seconds() {
  base::MutexLock lock(mutex_);
  const base::Micros open =
      has_waiters() ? base::system_clock().monotonic() - waiting_since_ : base::Micros{};
  return std::chrono::duration<double>(waited_ + open).count();
}

void Doorbell::ring() {
  base::MutexLock lock(mutex_);
  if (set_ != nullptr) {
    set_->wake();
  }
}

void Doorbell::close() {
  base::MutexLock lock(mutex_);
  set_ = nullptr;
}

void NamedState::complete(Result<void> how) {
  outcome = std::move(how);
  status.store(1, std::memory_order_release);
  base::futex_wake_all(status);
}

bool NamedWork::done() const { return state_->done(); }

Result<void> NamedWork::wait(std::optional<std::chrono::milliseconds> limit) const {
  const auto deadline = limit ? base::Deadline::in(*limit) : base::Deadline::never();
  if (state_->done()) {
    return state_->outcome;
  }
  if (state_->mark.forked()) {
    return forked_error();
  }
  state_->doorbell->begin_wait();
  while (!state_->done() && !deadline.passed()) {
    base::futex_wait(state_->status, 0, std::min(kSleepMost, deadline.left()));
  }
  state_->doorbell->end_wait();
  if (!state_->done()) {
    return Error{Errc::timeout, fmt::format("comm: {} \"{}\" is not done after {} ms; it goes on",
                                            named_kind_name(state_->call.tensor->request.kind),
                                            state_->call.tensor->name, limit->count())};
  }
  return state_->outcome;
}

std::span<std::byte> NamedWork::output() const {
  return {state_->owned.get(), state_->owned_bytes};
}
uint64_t NamedWork::rows() const { return state_->rows; }
const std::vector<int64_t>& NamedWork::received_splits() const { return state_->received_splits; }
int NamedWork::last_joined() const { return state_->last_joined; }
std::unique_ptr<ProcessSet> NamedWork::take_new_set() const { return std::move(state_->new_set); }

std::unique_ptr<NamedSet> NamedSet::make(Context& context, std::unique_ptr<ProcessSet> set,
                                         const NamedOptions& options) {
  return std::make_unique<NamedSet>(std::make_unique<State>(
      context, std::move(set), options, context.flight_recorder(), context.metrics()));
}

NamedSet::NamedSet(std::unique_ptr<State> state) : state_(std::move(state)) {}
NamedSet::~NamedSet() {
  if (state_->mark.forked()) {
    static_cast<void>(state_.release());  // its thread and what it shares are the parent's
  } else {
    shutdown("closed");
  }
}

int NamedSet::rank() const { return state_->set->rank(); }
int NamedSet::size() const { return state_->set->size(); }
std::span<const int> NamedSet::world_ranks() const { return state_->set->world_ranks(); }

Result<std::shared_ptr<const NamedTensor>> NamedSet::prepare(std::string name,
                                                             Request request) const {
  NamedTensor tensor{std::move(name), std::move(request), {}};
  const Request& what = tensor.request;
  if (tensor.name.empty() || tensor.name.size() > kNameMax) {
    return bad(tensor, fmt::format("a name has 1 to {} bytes", kNameMax));
  }
  HR_TRY(check_shape(tensor));
  if (what.root < 0 || what.root >= size()) {
    return bad(tensor, fmt::format("root {} is not in [0, {})", what.root, size()));
  }
  if (is_reduction(what.kind)) {
    HR_TRY(check_reducible(what.dtype, what.op));
  }
  if (what.kind == NamedKind::adasum && !is_floating(what.dtype)) {
    return bad(tensor,
               fmt::format("Adasum is for floating types, not for {}", dtype_name(what.dtype)));
  }
  if (what.kind == NamedKind::add_set || what.kind == NamedKind::remove_set) {
    std::vector<int64_t> ranks = what.splits;
    std::sort(ranks.begin(), ranks.end());
    if (ranks.empty() || ranks.front() < 0 || ranks.back() >= size() ||
        std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
      return bad(tensor, fmt::format("the ranks {} are not different numbers in [0, {})",
                                     shape_text(what.splits), size()));
    }
  }
  if (what.kind == NamedKind::all_to_all && !what.shape.empty()) {
    HR_TRY(complete_splits(tensor, static_cast<size_t>(size())));
  }
  tensor.encoded = encode(what);
  return std::shared_ptr<const NamedTensor>(std::make_shared<NamedTensor>(std::move(tensor)));
}

Result<NamedWork> NamedSet::submit(NamedCall call) {
  std::vector<NamedCall> calls;
  calls.push_back(std::move(call));
  HR_TRY(auto works, state_->push(std::move(calls)));
  return std::move(works.front());
}

Result<std::vector<NamedWork>> NamedSet::submit_all(std::vector<NamedCall> calls) {
  return state_->push(std::move(calls));
}

Result<NamedWork> NamedSet::join() { return state_->push_join(); }

void NamedSet::set_timeline(std::shared_ptr<Timeline> timeline) {
  base::MutexLock lock(state_->mutex);
  state_->timeline.swap(timeline);
}

void NamedSet::shutdown(std::string_view reason, std::chrono::milliseconds most) {
  if (state_->mark.forked()) {
    return;
  }
  {
    base::MutexLock lock(state_->mutex);
    if (state_->ended) {
      return;
    }
    state_->shutdown_reason = std::string(reason);
    state_->has_incoming = true;
  }
  state_->doorbell->begin_wait();
  const auto deadline = base::Deadline::in(most);
  while (state_->has_ended.load() == 0 && !deadline.passed()) {
    base::futex_wait(state_->has_ended, 0, std::min(kSleepMost, deadline.left()));
  }
  state_->doorbell->end_wait();
}

Result<std::vector<NamedWork>> NamedSet::State::push(std::vector<NamedCall> calls) {
  if (mark.forked()) {
    return forked_error();
  }
  std::vector<NamedPending> states;
  for (NamedCall& call : calls) {
    auto state = std::make_shared<NamedState>();
    state->call = std::move(call);
    state->doorbell = doorbell;
    states.push_back(std::move(state));
  }
  std::vector<NamedWork> works;
  {
    base::MutexLock lock(mutex);
    for (size_t i = 0; i < states.size(); ++i) {
      const std::string& name = states[i]->call.tensor->name;
      if (!pending.try_emplace(name, states[i]).second) {
        for (size_t k = 0; k < i; ++k) {
          pending.erase(states[k]->call.tensor->name);
        }
        return Error{
            Errc::invalid_argument,
            fmt::format("comm: a tensor with the same name is being processed: \"{}\"; wait "
                        "for it, or give this one another name",
                        name)};
      }
    }
    for (NamedPending& state : states) {
      works.emplace_back(state);
      if (ended) {
        pending.erase(state->call.tensor->name);
        state->complete(*ended);
        continue;
      }
      record_submitted(*state);
      if (incoming.empty()) {
        oldest = base::system_clock().monotonic();
      }
      incoming.push_back(std::move(state));
    }
    has_incoming = !incoming.empty() || has_incoming;
  }
  if (is_drowsy.exchange(false)) {
    set->wake();
  }
  return works;
}

Result<NamedWork> NamedSet::State::push_join() {
  if (mark.forked()) {
    return forked_error();
  }
  auto state = std::make_shared<NamedState>();
  state->call.tensor = std::make_shared<const NamedTensor>(NamedTensor{"join", {}, {}});
  state->doorbell = doorbell;
  {
    base::MutexLock lock(mutex);
    if (ended) {
      state->complete(*ended);
      return NamedWork(std::move(state));
    }
    if (joining != nullptr) {
      return Error{Errc::invalid_argument, "comm: this rank has joined already; wait for that"};
    }
    joining = state;
    join_is_new = true;
    has_incoming = true;
    oldest = base::Micros{};  // no company to wait for
  }
  set->wake();
  return NamedWork(std::move(state));
}

}  // namespace headrace::comm
