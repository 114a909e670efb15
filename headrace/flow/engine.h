// SPDX-License-Identifier: Apache-2.0
// The pipeline engine: a pure state machine. Events go in, actions come out; no files, no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/flow/engine_progress.h"
#include "headrace/flow/pipeline.h"
#include "headrace/flow/run_state.h"
#include "headrace/flow/secrets.h"

namespace headrace::flow {

/// The items of one ForEach: key and JSON text of each, packed; about 16 bytes an item beside.
class ItemList {
 public:
  void add(std::string_view key, std::string_view text);
  int64_t size() const { return static_cast<int64_t>(key_ends_.size()); }
  std::string_view key(int64_t index) const;
  std::string_view text(int64_t index) const;

 private:
  std::string keys_;
  std::string texts_;
  std::vector<uint64_t> key_ends_;
  std::vector<uint64_t> text_ends_;
};

/// How one attempt ended.
struct Outcome {
  enum class Kind : uint8_t {
    succeeded,
    failed,       ///< the activity said so; retried as its policy allows
    not_started,  ///< its properties could not be evaluated, or nobody can run it; never retried
    lost          ///< the worker died under it; tried again without using up `retry`
  };
  Kind kind = Kind::succeeded;
  bool retry_useless = false;  ///< with `failed`: the same inputs fail the same way
  std::string output;          ///< JSON text of what expressions see under `.output`
  bool output_kept = true;     ///< false: secure, so it is not in the journal
  std::string output_key;      ///< of an output that is not: where RUN/secrets.outputs has it
  ActivityError error;         ///< unless succeeded
  double cpu_seconds = 0.0;
  int64_t peak_rss_bytes = 0;
  int64_t pid = 0;
  std::string exit;     ///< how a command or a worker ended: "exit code 3"; in no journal
  uint64_t digest = 0;  ///< of the evaluated properties
  bool reused = false;  ///< taken over from before a restart
};

/// Input that was wrong once is wrong in the next attempt too; only the machine's troubles may
/// pass. Native activities tell them apart by their error's code; of a command nobody knows.
bool retry_is_useless(const Outcome& outcome, const Activity& activity);

// Events. All of them go into the journal before they come here.
constexpr int kSlotsMax = 4096;

struct Started {
  int slots = 1;  ///< 1 to kSlotsMax
};
struct ItemsKnown {
  uint64_t run = 0;
  ItemList items;
  std::optional<ActivityError> error;
};
struct AttemptEnded {
  uint64_t attempt = 0;
  Outcome outcome;
};
/// Time has passed; the driver sends one when `next_deadline()` is reached.
struct Tick {};
struct CancelRequested {
  std::string item;  ///< key of the one item to cancel; empty: the run
};
/// An engine took the run over: whatever was running is lost.
struct Resumed {
  int slots = 1;
  bool circuit_breaker = true;  ///< false: from here on there is none
};
struct Event {
  base::Micros now{0};  ///< since the epoch; never goes back
  std::variant<Started, ItemsKnown, AttemptEnded, Tick, CancelRequested, Resumed> body;
};

/// Something ended; for progress, event streams and the run's state.
struct Report {
  enum class Kind : uint8_t { activity_started, activity, items, item, run };
  Kind kind = Kind::activity;
  std::string path;  ///< of the activity, or of the ForEach
  const Activity* activity = nullptr;
  int64_t index = -1;  ///< of the item
  std::string key;
  Status status = Status::succeeded;
  int attempts = 0;
  base::Micros started{0};
  base::Micros ended{0};
  base::Micros paused{0};  ///< between these: nobody drove the run
  double cpu_seconds = 0.0;
  int64_t peak_rss_bytes = 0;
  std::string output;  ///< JSON text; of an item: an object by activity; only with `report_outputs`
  std::optional<ActivityError> error;
  std::string log;  ///< of the last attempt, in the run folder; only with `report_outputs`
};

struct StartAttempt {
  enum class Reason : uint8_t { first, retry, lost, resumed };
  uint64_t attempt = 0;
  int slot = 0;
  Reason reason = Reason::first;
  base::Micros waited{0};  ///< for a slot
};
struct StopAttempt {
  uint64_t attempt = 0;
  std::string reason;   ///< "timeout" or "cancel"
  std::string message;  ///< of a timeout: what the attempt's error will say
};

/// What the driver has to do, in any order.
struct Actions {
  std::vector<StartAttempt> start;
  std::vector<StopAttempt> stop;
  std::vector<uint64_t> evaluate_items;  ///< runs of ForEach whose items are wanted
  std::vector<Report> reports;           ///< to be told when the event is durable
  std::vector<RetryWait> retries;        ///< for people; nothing has to be done
  void clear();
};

/// More than slots can be, so that no slot waits for it.
constexpr int64_t kLiveItemsMax = 10'000;

/// What an activity's attempts came to before the run began anew.
struct EarlierWork {
  int attempts = 0;
  base::Micros started{0};
  base::Micros ended{0};  ///< of the last attempt that ended
};
/// By `earlier_key` of the attempt's path.
using EarlierWorks = std::unordered_map<uint64_t, EarlierWork>;
uint64_t earlier_key(std::string_view path);

struct EngineOptions {
  std::string run_id;
  base::Micros started{0};
  Json parameters = Json::object();  ///< bound
  bool shared_variables = false;     ///< SetVariable in a parallel ForEach writes one slot
  FailureBudget budget = {};         ///< for every ForEach without one of its own
  /// Stop a ForEach whose first max(5, slots) items that ended all failed alike (`alike` of
  /// likeness_internal.h). Attempts that are tried again do not count, nor do cancelled items.
  /// Items of which nothing ran yet are Skipped, the others end as they would.
  bool circuit_breaker = true;
  /// With this many items begun in all loops of the run, a loop has one item at a time: loops
  /// inside loops would else begin batchCount to the power of their depth.
  int64_t live_items_max = kLiveItemsMax;
  bool report_outputs = false;
  /// Numbers of attempts go on from here, and what is reused keeps its times; may be null.
  std::shared_ptr<const EarlierWorks> earlier = {};  // one run's engine and its replay hold it
  Pauses pauses = {};                                ///< before it began anew, the last not over
  /// Asked by `evaluate_call` for secrets of key vaults, by store and name; may be empty.
  std::function<Result<std::string>(std::string_view store, std::string_view name)> vault = {};
};

/// One attempt as a worker needs it.
struct CallSpec {
  const Activity* activity = nullptr;
  int attempt = 1;
  base::Micros started{0};  ///< of the activity
  std::string path;         ///< "train[s17]/fit"
  std::string item_key;     ///< "s17"; "outer/inner" when nested; "" outside of any ForEach
  std::string properties;   ///< JSON text
  uint64_t digest = 0;
  Secrets secrets;  ///< of this call alone: what its expressions marked, its texts by secureInput
};

/// One run. The same events give the same state and the same actions, always: that is what makes
/// replaying a journal a recovery. Not thread-safe. `step` takes time that does not depend on the
/// number of items, except where a ForEach begins or ends.
class Engine {
 public:
  Engine(std::shared_ptr<const Pipeline> pipeline, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Take one event; append what follows from it to `actions`. `mismatch`: the event does not fit
  /// the state (the journal is of another pipeline or another version of the engine).
  Result<void> step(Event event, Actions* actions);

  /// When the next Tick is due; nullopt: nothing waits for time.
  std::optional<base::Micros> next_deadline() const;

  Status status() const;  ///< of the run
  const std::optional<ActivityError>& error() const;
  bool ended() const { return is_final(status()); }
  EngineProgress progress() const;
  ItemStates item_states() const;  ///< looks at all items that run
  base::Micros now() const;        ///< of the last event
  const Pauses& pauses() const;

  /// Evaluate what a started attempt is called with, or why it cannot be.
  Result<CallSpec> evaluate_call(uint64_t attempt);
  /// Key, path and number of an attempt without evaluating anything; nullopt when it does not run.
  std::optional<CallSpec> describe(uint64_t attempt) const;
  /// Whether something that the activity of a running attempt waited for had failed.
  bool follows_failure(uint64_t attempt) const;
  /// Evaluate the items of a ForEach and choose their keys.
  Result<ItemList> evaluate_items(uint64_t run);
  /// Attempts that run, with their slots.
  std::vector<StartAttempt> running() const;

  /// Status of an item of a loop that runs now, by its whole key ("outer/inner" when nested);
  /// `canceling` while it is being stopped. nullopt: no such loop has it.
  std::optional<Status> item_status(std::string_view key) const;
  /// Items of the loops that run now (of loops inside items: not), by loop and index.
  void visit_open_items(const std::function<void(const OpenItem& item)>& visit) const;

  /// What is secret of the whole run. Errors that the engine gives hold none of it.
  const Secrets& secrets() const;
  Json told(Json value) const;  ///< without them, and without what items' secure outputs hold
  Json variables() const;
  const Json& return_value() const;

  struct State;  // engine_state_internal.h

 private:
  std::unique_ptr<State> state_;
};

/// File name of an item's folder: the key, with what a file name must not hold as %XX.
HR_API std::string item_folder_name(std::string_view key);
/// Path of an attempt's log, relative to the run's folder. Every key has a folder of its own beside
/// the others, also that of an item in an item's loop ("outer/inner").
HR_API std::string log_path(std::string_view item_key, std::string_view activity, int attempt);

}  // namespace headrace::flow
