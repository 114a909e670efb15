// SPDX-License-Identifier: Apache-2.0
// What is counted and recorded of the operations of an ordered process set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/comm/algo/shm_quick_internal.h"
#include "headrace/comm/comm_metrics_internal.h"
#include "headrace/comm/flight_recorder_internal.h"
#include "headrace/comm/work_internal.h"

namespace headrace::comm {

/// All but submitted(), moved_mail(), failed() and flush() are for whoever drives the set.
class SetObserver {
 public:
  SetObserver(std::shared_ptr<SetFlight> flight, const std::shared_ptr<CommMetrics>& metrics,
              bool tcp, std::vector<int> world_ranks, int rank)
      : flight_(std::move(flight)),
        ring_(flight_->ring()),
        tally_(metrics, tcp),
        world_ranks_(std::move(world_ranks)),
        rank_(rank) {}

  /// It waits for its turn.
  void submitted(const WorkState& work);
  /// A small one that was over in the call, with at most `bytes` of a rank: no clock, and nothing
  /// that another core has to see.
  void ended_at_once(const Call& call, uint64_t sequence, uint64_t bytes, Algorithm algorithm) {
    if (call.kind == Kind::all_reduce && !call.negotiates) [[likely]] {
      tally_.add_all_reduce(bytes);
    } else {
      bytes = count_other(call);
    }
    ring_.ended_at_once(sequence, what_of(call), bytes, algorithm);
    if (!call.name.empty()) [[unlikely]] {
      ring_.name(sequence, call.name);
    }
    if (sequence % kBatch == kBatch - 1) [[unlikely]] {
      flush();
    }
  }
  /// The same, of one that has no Call.
  void ended_at_once(const QuickReduce& what, uint64_t sequence, uint64_t bytes) {
    tally_.add_all_reduce(bytes);
    ring_.ended_at_once(
        sequence, flight_what(Kind::all_reduce, what.averages ? Op::average : what.op, what.dtype),
        bytes, bytes <= kInlineBytes ? Algorithm::inline_line : Algorithm::one_shot);
    if (sequence % kBatch == kBatch - 1) [[unlikely]] {
      flush();
    }
  }
  /// A small one that was not: as if it had been submitted and started now.
  void begun_late(const WorkState& work, Algorithm algorithm);
  void started(const WorkState& work, Algorithm algorithm);
  /// The driver is about to sleep, or has, until that rank of the set does its part.
  void stuck(const WorkState& work, int missing);
  /// It is not stuck any more.
  void moved(const WorkState& work) {
    if (stuck_since_ != base::Micros{}) {
      end_wait(work);
    }
  }
  void ended(const WorkState& work, FlightState how);

  /// A message, which is beside the set's order.
  void moved_mail(const Call& call) {
    tally_.metrics().ended(counted_kind(call), 1, moved_bytes_of(call, rank_), true);
  }
  /// All of the set; false: it had failed before.
  bool failed(const Error& error);
  void flush() { tally_.flush(); }
  std::string_view advice() const { return flight_->advice(); }

 private:
  static constexpr uint64_t kBatch = 256;  // operations that the board may be behind
  /// What is told of it.
  uint64_t count_other(const Call& call);
  /// flight_what() in one load.
  static uint32_t what_of(const Call& call) {
    static_assert(offsetof(Call, kind) == 0 && offsetof(Call, op) == 1 &&
                  offsetof(Call, dtype) == 2);
    uint32_t what = 0;
    std::memcpy(&what, &call.kind, sizeof what);
    return what & 0xFFFFFFU;
  }
  FlightCall told_of(const Call& call) const;
  void end_wait(const WorkState& work);

  const std::shared_ptr<SetFlight> flight_;
  FlightRing ring_;  // the same as the flight's
  SetTally tally_;
  const std::vector<int> world_ranks_;
  const int rank_;
  base::Micros started_{};      // the operation under way
  base::Micros stuck_since_{};  // and counted to here; zero: it is not
  int stuck_on_ = -1;
};

}  // namespace headrace::comm
