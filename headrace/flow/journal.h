// SPDX-License-Identifier: Apache-2.0
// The journal of a run: what was started, then every event the engine took, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/append_log.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"
#include "headrace/flow/engine.h"

namespace headrace::flow {

/// Layout: docs/formats/journal.md.
enum class RecordType : uint8_t {
  run = 1,      ///< RunHeader as JSON; the first record
  restart = 2,  ///< the same: from here on a new pipeline document, or failed work again
  started = 3,
  items_part = 4,  ///< some of a ForEach's items
  items = 5,       ///< the parts before it were all
  attempt = 6,
  tick = 7,
  cancel = 8,
  resumed = 9
};

/// Grows when a replay by older or newer code would give another state.
inline constexpr int kEngineVersion = 5;
/// The oldest whose journals replay as they did: version 2 had no circuit breaker, 3 no bound on
/// live items, and their headers say so by saying nothing; up to 4 a restart forgot the attempts
/// before it.
inline constexpr int kEngineVersionMin = 2;

/// What a run is: enough to build its engine again without any other file.
struct RunHeader {
  std::string run_id;
  base::Path pipeline_path;  ///< where the document came from, absolute
  std::string pipeline_name;
  std::string document;  ///< the JSON text
  Json parameters;       ///< bound; secure ones are null, secure values inside of others "***"
  base::Micros started{0};
  bool shared_variables = false;
  FailureBudget budget = {};
  bool circuit_breaker = true;
  int64_t live_items_max = kLiveItemsMax;  ///< see EngineOptions
  bool has_secrets = false;                ///< RUN/secrets.json belongs to it
  bool attempts_go_on = true;              ///< after a restart; false up to engine version 4
  int engine_version = kEngineVersion;
  std::string made_by;  ///< version of headrace and host, for people

  Json to_json() const;
  /// `corrupt` when a field is absent, `mismatch` for another engine version.
  static Result<RunHeader> from_json(const Json& json);
};

/// Record of an event. Items are too many for one record: `encode_items` gives several.
std::string encode_event(const Event& event, std::string_view attempt_path, RecordType* type);
void encode_items(base::Micros now, const ItemsKnown& items,
                  const std::function<void(RecordType type, std::string_view payload)>& emit);

/// Collects records into events.
class EventDecoder {
 public:
  /// The event that this record completes; nullopt for a part of one. `corrupt` for bytes that no
  /// record of this type has.
  Result<std::optional<Event>> decode(RecordType type, std::string_view payload);
  /// Path of the attempt that the last event ended.
  const std::string& attempt_path() const { return attempt_path_; }

 private:
  uint64_t items_run_ = 0;
  ItemList items_;
  std::string attempt_path_;
};

/// Writer. One engine at a time drives a run: the journal is locked while this lives.
class Journal {
 public:
  /// Create RUN/journal, its first record durable on return (`already_exists` when there is one
  /// with a record, which can be asked alone), or open it and replay it.
  static Result<void> check_absent(const base::Path& run_folder);
  static Result<Journal> create(const base::Path& run_folder, const RunHeader& header);
  static Result<Journal> open(
      const base::Path& run_folder,
      const std::function<Result<void>(uint8_t type, std::string_view payload)>& on_record);

  Result<void> append_restart(const RunHeader& header);
  Result<void> append(const Event& event, std::string_view attempt_path = {});
  /// Hand everything to the kernel: what is acted on must outlive this process.
  Result<void> flush() { return log_.flush(); }
  uint64_t appended() const { return last_; }
  uint64_t committed() const { return log_.committed(); }
  Result<void> wait_committed() { return log_.wait_committed(last_); }
  void time_commits(base::Histogram seconds) { log_.time_commits(seconds); }
  int commit_event_fd() const { return log_.commit_event_fd(); }

 private:
  explicit Journal(base::AppendLog log) : log_(std::move(log)) {}
  Result<void> append_record(RecordType type, std::string_view payload);

  base::AppendLog log_;
  uint64_t last_ = 0;
};

base::Path journal_path(const base::Path& run_folder);

}  // namespace headrace::flow
