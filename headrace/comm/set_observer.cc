// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/set_observer_internal.h"

namespace headrace::comm {

namespace {

base::Micros now() { return base::system_clock().monotonic(); }

}  // namespace

FlightCall SetObserver::told_of(const Call& call) const {
  const MovedBytes bytes = moved_bytes_of(call, rank_);
  return {what_of(call), std::max(bytes.in, bytes.out), call.name};
}

uint64_t SetObserver::count_other(const Call& call) {
  const MovedBytes bytes = moved_bytes_of(call, rank_);
  tally_.add(counted_kind(call), bytes);
  return std::max(bytes.in, bytes.out);
}

void SetObserver::submitted(const WorkState& work) {
  ring_.submitted(work.sequence, told_of(work.call), now());
}

void SetObserver::begun_late(const WorkState& work, Algorithm algorithm) {
  started_ = now();
  ring_.submitted(work.sequence, told_of(work.call), started_);
  ring_.started(work.sequence, algorithm, started_);
}

void SetObserver::started(const WorkState& work, Algorithm algorithm) {
  started_ = now();
  ring_.started(work.sequence, algorithm, started_);
}

void SetObserver::stuck(const WorkState& work, int missing) {
  const bool is_new = stuck_since_ == base::Micros{};
  if (!is_new) {
    end_wait(work);
  }
  if (is_new || stuck_on_ != missing) {
    ring_.waits(work.sequence, missing);
    flush();
  }
  stuck_since_ = now();
  stuck_on_ = missing;
}

void SetObserver::end_wait(const WorkState& work) {
  const int peer = stuck_on_ >= 0 ? world_ranks_[static_cast<size_t>(stuck_on_)] : -1;
  tally_.metrics().waited(counted_kind(work.call), peer, now() - stuck_since_);
  stuck_since_ = {};
}

void SetObserver::ended(const WorkState& work, FlightState how) {
  moved(work);
  const base::Micros at = now();
  ring_.ended(work.sequence, how, at);
  if (how == FlightState::done) {
    tally_.add(counted_kind(work.call), moved_bytes_of(work.call, rank_));
    tally_.metrics().took(counted_kind(work.call), at - started_);
    flush();
  }
}

bool SetObserver::failed(const Error& error) {
  const bool is_first = flight_->set_failure(error);
  if (is_first) {
    tally_.metrics().failed(error.code());
  }
  return is_first;
}

}  // namespace headrace::comm
