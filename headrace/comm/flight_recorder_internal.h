// SPDX-License-Identifier: Apache-2.0
// What the process sets of a context did last, and how others get to see it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/base/thread.h"
#include "headrace/comm/flight_ring_internal.h"

namespace headrace::comm {

/// One set's part of the recorder. Thread-safe, but see FlightRing.
class SetFlight {
 public:
  SetFlight(uint64_t id, bool is_named, std::vector<int> world_ranks, int rank,
            std::string_view advice = {})
      : id_(id),
        is_named_(is_named),
        world_ranks_(std::move(world_ranks)),
        rank_(rank),
        advice_(advice) {}

  FlightRing& ring() { return ring_; }
  /// For the end of a message about a timeout: how to know more the next time. May be empty.
  std::string_view advice() const { return advice_; }
  /// Number of the next operation, for those that number none themselves.
  uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }
  /// The first one counts; false: there was one.
  bool set_failure(const Error& error) HR_EXCLUDES(mutex_);
  Json json() const HR_EXCLUDES(mutex_);

 private:
  Json json_of(const FlightEntry& entry) const;

  const uint64_t id_;
  const bool is_named_;
  const std::vector<int> world_ranks_;
  const int rank_;
  const std::string_view advice_;
  FlightRing ring_;
  std::atomic<uint64_t> next_ = 0;
  mutable base::Mutex mutex_;  // leaf
  std::optional<Error> failure_ HR_GUARDED_BY(mutex_);
};

/// Of a context. Thread-safe.
class FlightRecorder {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::string job;
    uint64_t generation = 0;
    base::Path folder;      ///< for files; empty: failures write none
    bool has_user = false;  ///< who reads messages, and has given no folder, is told of that
  };
  explicit FlightRecorder(Options options) : options_(std::move(options)) {}

  /// A set that is recorded for as long as somebody holds this.
  std::shared_ptr<SetFlight> add(uint64_t id, bool is_named, std::vector<int> world_ranks, int rank)
      HR_EXCLUDES(mutex_);
  bool writes_failures() const { return !options_.folder.empty(); }
  /// All there is, as JSON; docs/internals/comm.md has its members.
  std::string text(std::string_view reason) const HR_EXCLUDES(mutex_);
  /// The same into a new file of the folder, or of the working folder, and say so in the log.
  void write(std::string_view reason, uint64_t number) const HR_EXCLUDES(mutex_);

 private:
  const Options options_;
  mutable base::Mutex mutex_;
  std::vector<std::weak_ptr<SetFlight>> sets_ HR_GUARDED_BY(mutex_);
};

}  // namespace headrace::comm
