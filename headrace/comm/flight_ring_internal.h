// SPDX-License-Identifier: Apache-2.0
// The last operations of a process set: a ring that is written while they run and read at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/comm/algo/operation.h"

namespace headrace::comm {

enum class FlightState : uint8_t { none, queued, running, done, failed };
std::string_view flight_state_name(FlightState state);

/// What is told of an operation. `kind`: a Kind in ordered sets, a NamedKind in named ones.
struct FlightCall {
  uint32_t what = 0;  ///< flight_what()
  uint64_t bytes = 0;
  std::string_view name = {};
};

/// The first three bytes of an entry.
template <class AnyKind, class AnyOp, class AnyDtype>
uint32_t flight_what(AnyKind kind, AnyOp op, AnyDtype dtype) {
  return static_cast<uint32_t>(kind) | static_cast<uint32_t>(op) << 8U |
         static_cast<uint32_t>(dtype) << 16U;
}

/// An operation as it is read. Times are monotonic; zero: not taken.
struct FlightEntry {
  uint64_t sequence = 0;
  FlightState state = FlightState::none;
  Algorithm algorithm = Algorithm::unknown;
  uint8_t kind = 0;
  uint8_t op = 0;
  uint8_t dtype = 0;
  uint64_t bytes = 0;
  base::Micros submitted{};
  base::Micros started{};
  base::Micros ended{};
  int waits_for = -1;  ///< rank of the set that it waited for when a thread last slept for it
  std::string name;    ///< cut off after 87 bytes
};

/// Only relaxed loads and stores: writing never waits, and a reader may find an entry half of one
/// operation and half of the one 1024 later, which it leaves out where it can tell. Whoever writes
/// an entry is the only one that does so at this moment; different entries may be written at once.
///
/// Two words of an operation are apart from the rest, so that what ends at once and has no name
/// touches 16 bytes only. Memory that was never written is none.
class FlightRing {
 public:
  static constexpr uint64_t kOperations = 1024;

  FlightRing();  ///< copies are the same ring

  /// It waits for its turn.
  void submitted(uint64_t sequence, const FlightCall& call, base::Micros at);
  void started(uint64_t sequence, Algorithm algorithm, base::Micros at);
  void waits(uint64_t sequence, int rank);
  void ended(uint64_t sequence, FlightState how, base::Micros at);
  /// All of an operation that was over before anybody looked at a clock.
  void ended_at_once(uint64_t sequence, uint32_t what, uint64_t bytes, Algorithm algorithm) {
    put_head(sequence, what | progress_of(FlightState::done, algorithm), bytes);
  }
  /// And its name, if it has one.
  void name(uint64_t sequence, std::string_view name) { put_rest(sequence, name, {}); }

  /// What is there, in the order of the sequence.
  std::vector<FlightEntry> read() const;

 private:
  using Cell = std::atomic_ref<uint64_t>;
  static constexpr size_t kHeadWords = 2;  // what it is and how far, with its lap; bytes
  // Number + 1, whom it waits for + 1, three times, name.
  static constexpr size_t kRestWords = 16;
  static constexpr size_t kNameAt = 5;
  static constexpr size_t kNameBytes = (kRestWords - kNameAt) * sizeof(uint64_t);

  static uint32_t progress_of(FlightState state, Algorithm algorithm) {
    return static_cast<uint32_t>(state) << 24U | static_cast<uint32_t>(algorithm) << 28U;
  }
  /// The numbers of the lap that an operation is in, above what it is.
  static uint64_t lap_of(uint64_t sequence) { return (sequence / kOperations + 1) << 32U; }

  uint64_t* head(uint64_t sequence) const {
    return words_.get() + sequence % kOperations * kHeadWords;
  }
  uint64_t* rest(uint64_t sequence) const {
    return words_.get() + kOperations * kHeadWords + sequence % kOperations * kRestWords;
  }
  static void put(uint64_t& word, uint64_t value) {
    Cell(word).store(value, std::memory_order_relaxed);
  }
  static uint64_t get(uint64_t& word) { return Cell(word).load(std::memory_order_relaxed); }
  void put_head(uint64_t sequence, uint32_t what, uint64_t bytes) {
    uint64_t* const to = head(sequence);
    put(to[0], lap_of(sequence) | what);
    put(to[1], bytes);
  }
  void put_rest(uint64_t sequence, std::string_view name, base::Micros submitted);
  /// The entry is that operation's still; its head.
  bool holds(uint64_t sequence, uint64_t* what) const;
  FlightEntry entry(uint64_t what, uint64_t place) const;

  std::shared_ptr<uint64_t[]> words_;
};

}  // namespace headrace::comm
