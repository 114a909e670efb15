// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "headrace/comm/named_set_internal.h"
#include "headrace/comm/named_trace_internal.h"

namespace headrace::comm {

namespace {

base::Micros now() { return base::system_clock().monotonic(); }

size_t counted_kind(NamedKind kind) {
  switch (kind) {
    case NamedKind::all_reduce:
    case NamedKind::adasum: return static_cast<size_t>(Kind::all_reduce);
    case NamedKind::all_gather: return static_cast<size_t>(Kind::all_gather);
    case NamedKind::broadcast: return static_cast<size_t>(Kind::broadcast);
    case NamedKind::all_to_all: return static_cast<size_t>(Kind::all_to_all);
    case NamedKind::reduce_scatter: return static_cast<size_t>(Kind::reduce_scatter);
    case NamedKind::barrier: return static_cast<size_t>(Kind::barrier);
    case NamedKind::add_set:
    case NamedKind::remove_set: break;
  }
  return kCountedKinds - 1;
}

}  // namespace

void NamedTrace::set_timeline(std::shared_ptr<Timeline> timeline) {
  if (timeline != timeline_) {
    timeline_ = std::move(timeline);
    negotiating_.clear();
    decided_.clear();
    active_.clear();
  }
}

void NamedTrace::cycle() {
  if (is_on()) {
    timeline_->mark_cycle(now());
  }
}

void NamedTrace::ready(const std::string& name, NamedKind kind, int rank) {
  const base::Micros at = now();
  if (negotiating_.insert(name).second) {
    timeline_->begin(name, "NEGOTIATE_" + upper_name(kind), at);
  }
  timeline_->mark(name, std::to_string(rank), at);
}

void NamedTrace::decided(const Response& response) {
  if (!is_on()) {
    return;
  }
  const base::Micros at = now();
  for (const ReadyTensor& tensor : response.tensors) {
    if (negotiating_.erase(tensor->name) == 0) {
      continue;  // it began before the timeline
    }
    timeline_->end(tensor->name, at);
    if (response.what == Response::What::run) {
      timeline_->begin(tensor->name, upper_name(tensor->any().kind), at);
      timeline_->begin(tensor->name, "QUEUE", at);
      decided_.insert(tensor->name);
      active_.insert(tensor->name);
    }
  }
}

void NamedTrace::activity(const Response& response, std::string_view what) {
  if (!is_on()) {
    return;
  }
  const base::Micros at = now();
  for (const ReadyTensor& tensor : response.tensors) {
    if (!decided_.contains(tensor->name)) {
      continue;
    }
    if (active_.erase(tensor->name) != 0) {
      timeline_->end(tensor->name, at);
    }
    if (!what.empty()) {
      timeline_->begin(tensor->name, what, at);
      active_.insert(tensor->name);
    }
  }
}

void NamedTrace::done(const Response& response) {
  activity(response, {});
  for (const ReadyTensor& tensor : response.tensors) {
    if (decided_.erase(tensor->name) != 0) {
      const Request& request = tensor->any();
      timeline_->end(tensor->name, now(), dtype_name(request.dtype), shape_text(request.shape));
    }
  }
}

void NamedSet::State::record_submitted(NamedState& state) {
  const NamedTensor& tensor = *state.call.tensor;
  const Request& request = tensor.request;
  state.number = flight->next();
  flight->ring().submitted(*state.number,
                           {flight_what(request.kind, request.op, request.dtype),
                            request.elements() * dtype_bytes(request.dtype), tensor.name},
                           now());
}

void NamedSet::State::record_started(const std::vector<NamedPending>& ours) {
  const base::Micros at = now();
  for (const NamedPending& one : ours) {
    if (one != nullptr) {
      flight->ring().started(*one->number, Algorithm::unknown, at);
    }
  }
  if (ours.size() > 1) {
    metrics->fused(ours.size());
  }
}

void NamedSet::State::record_ended(const NamedState& state, bool good) {
  if (state.number) {  // a join has none
    flight->ring().ended(*state.number, good ? FlightState::done : FlightState::failed, now());
  }
}

NamedSet::State::Wait NamedSet::State::begin_wait() {
  const auto first = negotiator.waiting() ? negotiator.oldest_wait() : std::nullopt;
  if (!first) {
    return {};
  }
  {
    base::MutexLock lock(mutex);
    const auto found = pending.find(*first->name);
    if (found != pending.end() && found->second->number) {
      flight->ring().waits(*found->second->number, first->missing);
    }
  }
  return {counted_kind(first->kind), set->world_ranks()[static_cast<size_t>(first->missing)],
          doorbell->has_waiters() ? now() : base::Micros{}};
}

void NamedSet::State::end_wait(const Wait& wait) const {
  if (wait.since != base::Micros{}) {
    metrics->waited(wait.kind, wait.world_rank, now() - wait.since);
  }
}

}  // namespace headrace::comm
