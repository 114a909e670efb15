// SPDX-License-Identifier: Apache-2.0
// State of the engine and its steps, shared by the engine's sources.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/flow/engine.h"
#include "headrace/flow/engine_for_each_internal.h"
#include "headrace/flow/expression.h"

namespace headrace::flow {

enum class Phase : uint8_t {
  waiting,         ///< for its dependencies
  queued,          ///< for a slot
  running,         ///< an attempt is with a worker
  retry_wait,      ///< until the retry interval is over
  timer_wait,      ///< a Wait activity
  items_wait,      ///< a ForEach whose items are being evaluated
  inside,          ///< a container whose inner activities run
  between_passes,  ///< an Until about to go round again
  done
};

struct ActivityRun {
  const Activity* activity = nullptr;
  Scope* scope = nullptr;
  Status status = Status::queued;
  Phase phase = Phase::waiting;
  uint64_t id = 0;  ///< of the attempt, or of the wait for items
  int slot = -1;
  int attempts = 0;              ///< with those before the run began anew
  base::Micros ended_before{0};  ///< what is reused ended then
  int64_t retries = 0;
  int losses = 0;
  int64_t retry_max = 0;
  double retry_interval = 30.0;
  double timeout = 0.0;         ///< seconds; 0: none
  bool stopping = false;        ///< a StopAttempt is out
  std::string stop_reason;      ///< "timeout", "cancel"
  bool output_missing = false;  ///< succeeded, but a secure output did not survive a crash
  StartAttempt::Reason reason = StartAttempt::Reason::first;  ///< of the next attempt
  base::Micros queued{0};                                     ///< since when it waits for a slot
  base::Micros started{0};
  base::Micros ended{0};
  base::Micros deadline{0};  ///< in `timers`; 0: none
  base::Micros limit{0};     ///< Until: give up then
  int pass = 0;              ///< Until
  double cpu_seconds = 0.0;
  int64_t peak_rss_bytes = 0;
  std::string output;          ///< JSON text
  std::unique_ptr<Json> view;  ///< what activity('x') gives; made when asked for
  std::unique_ptr<ActivityError> error;
  std::unique_ptr<ForEachRun> for_each;
  std::unique_ptr<Scope> child;  ///< If, Switch, Until: the branch or the last pass
};

/// One activity list that runs: the pipeline, a branch, a pass or an iteration.
struct Scope {
  const ActivityList* list = nullptr;
  Scope* parent = nullptr;
  ActivityRun* owner = nullptr;  ///< the container; null for the pipeline
  uint64_t sequence = 0;         ///< slots go to the oldest first
  int64_t index = -1;            ///< of the item
  Json item;
  base::Micros started{0};
  bool cancelled = false;
  bool cancelled_by_timeout = false;
  bool left_out = false;  ///< an item that the circuit breaker took back before anything of it ran
  int open = 0;           ///< runs that are not final
  std::vector<ActivityRun> runs;             ///< as in `list`
  std::unique_ptr<VariableChanges> changes;  ///< of an iteration of a parallel ForEach
};

/// Order of the queue for slots and of timers; the id makes keys unique.
using SlotKey = std::pair<uint64_t, int>;  // scope sequence, activity id
using TimerKey = std::pair<base::Micros, uint64_t>;

struct Task {
  enum class Kind : uint8_t { check, scope_done, fill };
  Kind kind = Kind::check;
  ActivityRun* run = nullptr;
  Scope* scope = nullptr;
};

/// Where an activity stands in the pipeline.
struct ActivityPlace {
  const ActivityList* list = nullptr;
  int index = 0;
  int parent = -1;  ///< id of the container
};

struct Engine::State {
  State(std::shared_ptr<const Pipeline> the_pipeline, EngineOptions the_options);

  // engine.cc: events, slots, timers, ends
  Result<void> take(Event event);
  Result<void> on_started(const Started& event);
  Result<void> on_items(ItemsKnown event);
  Result<void> on_attempt(AttemptEnded event);
  bool follows_failure(const ActivityRun& run) const;
  std::vector<const ActivityRun*> waited_for(const ActivityRun& run) const;
  void on_tick();
  void on_cancel(const CancelRequested& event);
  void on_resumed(const Resumed& event);
  void work_off();  ///< run tasks, then give out slots
  void check(ActivityRun* run);
  void start(ActivityRun* run);
  void start_work(ActivityRun* run);
  void queue(ActivityRun* run);
  void give_slots();
  const EarlierWork* earlier_work(const ActivityRun& run) const;
  void take_over_times(ActivityRun* run) const;
  void release_slot(ActivityRun* run);
  void set_timer(ActivityRun* run, base::Micros at);
  void clear_timer(ActivityRun* run);
  void fire(ActivityRun* run);
  void stop_attempt(ActivityRun* run, std::string reason);
  void end(ActivityRun* run, Status status);
  void fail(ActivityRun* run, ActivityError why);
  void fail(ActivityRun* run, const Error& why, std::string code);
  void cancel_scope(Scope* scope);
  void cancel_run(ActivityRun* run);
  std::unique_ptr<Scope> open_scope(const ActivityList& list, Scope* parent, ActivityRun* owner);
  void begin(Scope* scope);
  void scope_done(Scope* scope);
  void finish_run();
  void collect_running(Scope* scope, std::vector<ActivityRun*>* out);
  void reset_for_resume(Scope* scope);

  // engine_control.cc
  void start_branch(ActivityRun* run);
  void start_switch(ActivityRun* run);
  void enter(ActivityRun* run, const ActivityList& list);
  void start_until(ActivityRun* run);
  void start_pass(ActivityRun* run);
  void pass_done(ActivityRun* run);
  void branch_done(ActivityRun* run);
  void start_wait(ActivityRun* run);
  void start_filter(ActivityRun* run);
  void start_fail(ActivityRun* run);
  void start_variable(ActivityRun* run);
  void write_variable(Scope* scope, const std::string& name, Json value, bool append);
  Result<void> set_return_value(const Json& value);
  Json read_variable(const Scope* scope, std::string_view name) const;

  // engine_for_each.cc
  void start_for_each(ActivityRun* run);
  void fill(ActivityRun* run);
  void find_items(const Scope& scope, std::string_view key, std::vector<ItemPlace>* out) const;
  void cancel_item(const ItemPlace& place);
  void iteration_done(Scope* scope);
  void note_failure(ForEachRun* loop, const ActivityRun& run, const Scope& scope,
                    const ActivityError& why);
  bool budget_used_up(const ForEachRun& loop) const;
  bool circuit_breaks(const ForEachRun& loop) const;
  void break_circuit(ForEachRun* loop);
  bool is_untouched(const Scope& scope) const;
  void after_failure(ForEachRun* loop, const Scope* failed);
  void close_for_each(ActivityRun* run);
  void merge_variables(ForEachRun* loop, int64_t index, VariableChanges changes);
  std::string for_each_message(const ActivityRun& run) const;
  std::string for_each_output(const ActivityRun& run) const;
  Result<ItemList> make_items(ActivityRun* run);

  // engine_context.cc
  Result<Json> evaluate(const Template& value, ActivityRun* run, const Json* item = nullptr);
  Result<Json> evaluate_outside(const Template& value, ActivityRun* run, uint64_t with_seed,
                                const Json* item = nullptr);
  Result<Value> activity_value(const Scope* scope, std::string_view name);
  ActivityRun* find_run(const Scope* scope, int activity_id);
  const Json& view_of(ActivityRun* run);
  Json pipeline_value() const;

  // engine_report.cc
  std::string path_of(const ActivityRun& run) const;
  std::string key_path(const Scope* scope) const;
  std::string log_of(const ActivityRun& run) const;
  Status judge(const Scope& scope, const ActivityRun** cause) const;
  ActivityError explain(const ActivityRun& cause) const;
  void report_activity(const ActivityRun& run, bool begins);
  void report_item(const Scope& scope, Status status, const ActivityRun* cause);
  void note_pause(const Event& event);
  void report_not_started(const ActivityRun& run);
  void report_unstarted_item(const ActivityRun& run, int64_t index, Status with_status);
  std::string outputs_of(const Scope& scope) const;
  void count_states(const Scope& scope, ItemStates* all, ItemStates* own) const;
  void visit_open(const Scope& scope, const std::function<void(const OpenItem& item)>& visit) const;

  std::shared_ptr<const Pipeline> pipeline;
  EngineOptions options;
  Secrets secrets;       ///< each call gets them
  Secrets item_secrets;  ///< texts of items' secure outputs: many, and for what is told alone
  std::vector<ActivityPlace> places;                 ///< by activity id
  std::unordered_map<std::string, int> ids_by_name;  ///< lower case

  base::Micros now{0};
  Status status = Status::queued;
  bool cancelling = false;
  std::optional<ActivityError> error;
  std::unique_ptr<Scope> root;
  VariableChanges no_changes;
  std::map<std::string, Json, std::less<>> variables;
  Json return_value;
  std::optional<Json> pipeline_object;
  uint64_t seed = 0;
  uint64_t next_id = 1;
  uint64_t next_sequence = 1;
  uint64_t evaluations = 0;
  std::unordered_map<uint64_t, ActivityRun*> by_id;  ///< attempts that run, items that are awaited
  std::map<SlotKey, ActivityRun*> slot_queue;
  int slots = 1;
  std::set<int> free_slots;
  std::map<TimerKey, ActivityRun*> timers;
  std::deque<Task> tasks;
  std::set<ActivityRun*>
      secure_reruns;  ///< nothing else starts before these have their output back
  EngineProgress counts;
  Actions* actions = nullptr;  ///< of the step that runs
};

}  // namespace headrace::flow
