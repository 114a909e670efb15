// SPDX-License-Identifier: Apache-2.0
// Events, slots, timers and ends: what is common to all activities.
#include "headrace/flow/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/flow/engine_state_internal.h"
#include "headrace/flow/text.h"

namespace headrace::flow {

namespace {

using base::Micros;

constexpr int kLossesMax = 3;  // then the activity, not the machine, is taken to be the reason

Micros seconds_to_micros(double seconds) {
  constexpr double kLongest = 1e10;  // 300 years: longer waits are the same as never
  return Micros(static_cast<int64_t>(std::clamp(seconds, 0.0, kLongest) * 1e6));
}

std::string timeout_message(const ActivityRun& run) {
  return fmt::format("'{}' did not end within its policy.timeout of {} s", run.activity->name,
                     run.timeout);
}

Error does_not_fit(std::string what) {
  return Error{Errc::mismatch, "flow: " + std::move(what) +
                                   "; the journal was written by another version of the engine or "
                                   "for another pipeline"};
}

void place_activities(const ActivityList& list, int parent, std::vector<ActivityPlace>* places,
                      std::unordered_map<std::string, int>* ids) {
  for (size_t i = 0; i < list.activities.size(); ++i) {
    const Activity& activity = list.activities[i];
    (*places)[static_cast<size_t>(activity.id)] = {&list, static_cast<int>(i), parent};
    ids->emplace(lower_text(activity.name), activity.id);
    for (const ActivityList& branch : activity.branches) {
      place_activities(branch, activity.id, places, ids);
    }
  }
}

}  // namespace

bool retry_is_useless(const Outcome& outcome, const Activity& activity) {
  constexpr Errc kOfTheInput[] = {Errc::invalid_argument, Errc::not_found, Errc::already_exists,
                                  Errc::mismatch,         Errc::corrupt,   Errc::unsupported};
  return outcome.kind == Outcome::Kind::failed && activity.type != "Custom" &&
         std::any_of(std::begin(kOfTheInput), std::end(kOfTheInput),
                     [&](Errc code) { return outcome.error.code == errc_name(code); });
}

void ItemList::add(std::string_view key, std::string_view text) {
  keys_ += key;
  texts_ += text;
  key_ends_.push_back(keys_.size());
  text_ends_.push_back(texts_.size());
}

std::string_view ItemList::key(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const uint64_t begin = i == 0 ? 0 : key_ends_[i - 1];
  return std::string_view(keys_).substr(begin, key_ends_[i] - begin);
}

std::string_view ItemList::text(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const uint64_t begin = i == 0 ? 0 : text_ends_[i - 1];
  return std::string_view(texts_).substr(begin, text_ends_[i] - begin);
}

void Actions::clear() {
  start.clear();
  stop.clear();
  evaluate_items.clear();
  reports.clear();
  retries.clear();
}

Engine::State::State(std::shared_ptr<const Pipeline> the_pipeline, EngineOptions the_options)
    : pipeline(std::move(the_pipeline)), options(std::move(the_options)) {
  places.resize(static_cast<size_t>(pipeline->activity_count));
  place_activities(pipeline->body, -1, &places, &ids_by_name);
  seed = base::derive_seed(0, options.run_id);
  secrets = Secrets::of_run(*pipeline, options.parameters);
  now = options.started;
  for (const Variable& variable : pipeline->variables) {
    variables.emplace(variable.name, variable.default_value);
  }
}

/// A run that is taken up again was left alone since its last event.
void Engine::State::note_pause(const Event& event) {
  const base::Micros end = std::max(now, event.now);
  if (std::holds_alternative<Resumed>(event.body)) {
    options.pauses.push_back({now, end});
  } else if (std::holds_alternative<Started>(event.body) && !options.pauses.empty()) {
    options.pauses.back().end = end;
  }
}

Result<void> Engine::State::take(Event event) {
  note_pause(event);
  now = std::max(now, event.now);
  if (is_final(status)) {
    return does_not_fit("an event came after the end of the run");
  }
  Result<void> result;
  if (auto* started = std::get_if<Started>(&event.body)) {
    result = on_started(*started);
  } else if (root == nullptr) {
    return does_not_fit("an event came before the start of the run");
  } else if (auto* items = std::get_if<ItemsKnown>(&event.body)) {
    result = on_items(std::move(*items));
  } else if (auto* attempt = std::get_if<AttemptEnded>(&event.body)) {
    result = on_attempt(std::move(*attempt));
  } else if (std::holds_alternative<Tick>(event.body)) {
    on_tick();
  } else if (const auto* cancel = std::get_if<CancelRequested>(&event.body)) {
    on_cancel(*cancel);
  } else {
    on_resumed(std::get<Resumed>(event.body));
  }
  HR_TRY(std::move(result));
  work_off();
  return {};
}

Result<void> Engine::State::on_started(const Started& event) {
  if (root != nullptr) {
    return does_not_fit("the run was started twice");
  }
  slots = event.slots;
  for (int slot = 0; slot < slots; ++slot) {
    free_slots.insert(slot);
  }
  status = Status::in_progress;
  root = open_scope(pipeline->body, nullptr, nullptr);
  begin(root.get());
  return {};
}

Result<void> Engine::State::on_items(ItemsKnown event) {
  const auto it = by_id.find(event.run);
  if (it == by_id.end() || it->second->phase != Phase::items_wait) {
    return {};  // it was cancelled meanwhile
  }
  ActivityRun* run = it->second;
  by_id.erase(it);
  if (event.error) {
    fail(run, std::move(*event.error));
    return {};
  }
  ForEachRun& loop = *run->for_each;
  loop.items = std::move(event.items);
  const auto size = static_cast<size_t>(loop.items.size());
  loop.statuses.assign(size, Status::queued);
  if (pipeline->outputs_of_items_used) {
    loop.outputs.resize(size);
  }
  counts.items_total += loop.items.size();
  run->phase = Phase::inside;
  Report report;
  report.kind = Report::Kind::items;
  report.path = path_of(*run);
  report.activity = run->activity;
  report.index = loop.items.size();
  report.started = now;
  actions->reports.push_back(std::move(report));
  tasks.push_back({Task::Kind::fill, run, nullptr});
  return {};
}

namespace {

void add_texts(const Json& value, Secrets* secrets) {
  if (value.is_string()) {
    secrets->add_text(value.string());
  } else if (value.is_array()) {
    for (const Json& item : value.items()) {
      add_texts(item, secrets);
    }
  } else if (value.is_object()) {
    for (const Json::Member& member : value.members()) {
      add_texts(member.second, secrets);
    }
  }
}

}  // namespace

Result<void> Engine::State::on_attempt(AttemptEnded event) {
  const auto it = by_id.find(event.attempt);
  if (it == by_id.end() || it->second->phase != Phase::running) {
    return does_not_fit(fmt::format("attempt {} ended, which does not run", event.attempt));
  }
  ActivityRun* run = it->second;
  Outcome& outcome = event.outcome;
  by_id.erase(it);
  release_slot(run);
  clear_timer(run);
  run->cpu_seconds += outcome.cpu_seconds;
  run->peak_rss_bytes = std::max(run->peak_rss_bytes, outcome.peak_rss_bytes);
  const bool timed_out = run->stopping && run->stop_reason == "timeout";
  const bool cancelled = run->scope->cancelled || (run->stopping && !timed_out);
  run->stopping = false;
  if (outcome.reused) {
    take_over_times(run);
  }
  if (outcome.kind == Outcome::Kind::succeeded) {
    run->output = std::move(outcome.output);
    run->output_missing = !outcome.output_kept && run->output.empty();
    if (run->activity->policy.secure_output) {  // so is what control activities make of its texts
      add_texts(parse_json(run->output).value_or(Json()),
                key_path(run->scope).empty() ? &secrets : &item_secrets);
    }
    end(run, Status::succeeded);
    return {};
  }
  if (cancelled) {
    end(run, Status::cancelled);
    return {};
  }
  if (outcome.error.target.empty()) {
    outcome.error.target = run->activity->name;
  }
  if (timed_out) {
    outcome.retry_useless = false;
    outcome.error.code = "Timeout";
    outcome.error.failure_type = "UserError";
    outcome.error.message = timeout_message(*run);
  } else if (outcome.kind == Outcome::Kind::lost) {
    if (++run->losses <= kLossesMax) {
      run->reason = StartAttempt::Reason::lost;
      queue(run);
      return {};
    }
    outcome.error.failure_type = "SystemError";
    outcome.error.message = fmt::format("the worker died {} times under it, at last: {}",
                                        run->losses, outcome.error.message);
  }
  outcome.error.fails_again = outcome.retry_useless;
  if (outcome.kind == Outcome::Kind::failed || timed_out) {
    const bool left = run->retries < run->retry_max;
    if (left && !outcome.retry_useless) {
      ++run->retries;
      run->phase = Phase::retry_wait;
      set_timer(run, now + seconds_to_micros(run->retry_interval));
      actions->retries.push_back({path_of(*run), run->retry_interval, outcome.error.message});
      return {};
    }
    if (left) {
      outcome.error.message += " (not tried again: the same inputs fail the same way)";
    }
  }
  fail(run, std::move(outcome.error));
  return {};
}

/// Did an activity fail that this one, or a container of it, waited for through any number of
/// others?
bool Engine::State::follows_failure(const ActivityRun& run) const {
  const auto before = waited_for(run);
  return std::any_of(before.begin(), before.end(),
                     [](const ActivityRun* one) {
                       return one->status == Status::failed || one->status == Status::cancelled;
                     }) ||
         (run.scope->owner != nullptr && follows_failure(*run.scope->owner));
}

/// What `run` waited for within its scope, through any number of others.
std::vector<const ActivityRun*> Engine::State::waited_for(const ActivityRun& run) const {
  std::vector<bool> seen(run.scope->runs.size(), false);
  std::vector<const ActivityRun*> found;
  const auto visit = [&](const ActivityRun& later) {
    for (const Dependency& dependency : later.activity->dependencies) {
      const auto index = static_cast<size_t>(dependency.index);
      if (!seen[index]) {
        seen[index] = true;
        found.push_back(&run.scope->runs[index]);
      }
    }
  };
  visit(run);
  for (size_t next = 0; next < found.size(); ++next) {
    visit(*found[next]);
  }
  return found;
}

void Engine::State::on_tick() {
  while (!timers.empty() && timers.begin()->first.first <= now) {
    ActivityRun* run = timers.begin()->second;
    clear_timer(run);
    fire(run);
  }
}

void Engine::State::fire(ActivityRun* run) {
  switch (run->phase) {
    case Phase::running: stop_attempt(run, "timeout"); return;
    case Phase::retry_wait:
      run->reason = StartAttempt::Reason::retry;
      queue(run);
      return;
    case Phase::timer_wait: end(run, Status::succeeded); return;
    case Phase::between_passes: start_pass(run); return;
    case Phase::inside:
      run->child->cancelled_by_timeout = true;
      cancel_scope(run->child.get());
      return;
    default: return;
  }
}

void Engine::State::on_cancel(const CancelRequested& event) {
  if (event.item.empty()) {
    cancelling = true;
    status = Status::canceling;
    cancel_scope(root.get());
    return;
  }
  std::vector<ItemPlace> found;
  find_items(*root, event.item, &found);
  for (const ItemPlace& place : found) {
    cancel_item(place);
  }
}

void Engine::State::on_resumed(const Resumed& event) {
  options.circuit_breaker = options.circuit_breaker && event.circuit_breaker;
  slots = event.slots;
  free_slots.clear();
  for (int slot = 0; slot < slots; ++slot) {
    free_slots.insert(slot);
  }
  counts.attempts_running = 0;
  reset_for_resume(root.get());
}

/// Whatever ran is lost with the engine that ran it; a secure output that was not kept is made
/// again.
void Engine::State::reset_for_resume(Scope* scope) {
  for (ActivityRun& run : scope->runs) {
    switch (run.phase) {
      case Phase::running:
        by_id.erase(run.id);
        clear_timer(&run);
        run.slot = -1;
        if (scope->cancelled) {
          end(&run, Status::cancelled);
        } else {
          run.stopping = false;
          run.reason = StartAttempt::Reason::resumed;
          queue(&run);
        }
        break;
      case Phase::items_wait: actions->evaluate_items.push_back(run.id); break;
      case Phase::inside:
        if (run.child != nullptr) {
          reset_for_resume(run.child.get());
        }
        if (run.for_each != nullptr) {
          for (auto& [index, iteration] : run.for_each->live) {
            reset_for_resume(iteration.get());
          }
        }
        break;
      case Phase::done:
        if (run.output_missing && !scope->cancelled) {
          run.output_missing = false;
          run.status = Status::in_progress;
          ++scope->open;
          secure_reruns.insert(&run);
          run.reason = StartAttempt::Reason::resumed;
          queue(&run);
        }
        break;
      default: break;
    }
  }
}

void Engine::State::work_off() {
  while (!tasks.empty()) {
    const Task task = tasks.front();
    tasks.pop_front();
    switch (task.kind) {
      case Task::Kind::check: check(task.run); break;
      case Task::Kind::scope_done: scope_done(task.scope); break;
      case Task::Kind::fill: fill(task.run); break;
    }
  }
  give_slots();
}

void Engine::State::check(ActivityRun* run) {
  if (run->phase != Phase::waiting) {
    return;
  }
  if (run->scope->cancelled) {
    end(run, Status::cancelled);
    return;
  }
  bool satisfied = true;
  for (const Dependency& dependency : run->activity->dependencies) {
    const Status other = run->scope->runs[static_cast<size_t>(dependency.index)].status;
    if (!is_final(other)) {
      return;
    }
    satisfied = satisfied && ((dependency.conditions >> static_cast<unsigned>(other)) & 1U) != 0;
  }
  if (satisfied) {
    start(run);
  } else {
    end(run, Status::skipped);
  }
}

void Engine::State::start(ActivityRun* run) {
  run->started = now;
  run->status = Status::in_progress;
  run->id = next_id++;
  if (run->activity->inactive) {
    if (*run->activity->inactive == Status::failed) {
      fail(run, {"Inactive", "the activity is inactive and marked as Failed", "UserError",
                 run->activity->name});
    } else {
      end(run, *run->activity->inactive);
    }
    return;
  }
  report_activity(*run, true);
  switch (run->activity->kind) {
    case ActivityKind::work: start_work(run); return;
    case ActivityKind::for_each: start_for_each(run); return;
    case ActivityKind::if_condition: start_branch(run); return;
    case ActivityKind::switch_case: start_switch(run); return;
    case ActivityKind::until: start_until(run); return;
    case ActivityKind::wait: start_wait(run); return;
    case ActivityKind::filter: start_filter(run); return;
    case ActivityKind::fail: start_fail(run); return;
    case ActivityKind::set_variable:
    case ActivityKind::append_variable: start_variable(run); return;
  }
}

void Engine::State::start_work(ActivityRun* run) {
  const Policy& policy = run->activity->policy;
  const auto number = [&](const Template& value, double otherwise) -> Result<double> {
    HR_TRY(const auto json, evaluate(value, run));
    if (json.is_null()) {
      return otherwise;
    }
    if (json.is_number()) {
      return json.number();
    }
    const auto text = json.is_string() ? parse_json(json.string(), "number") : Result<Json>(Json());
    if (!text.ok() || !text->is_number()) {
      return Error{Errc::invalid_argument,
                   "policy.retry and policy.retryIntervalInSeconds must be numbers, not " +
                       describe_value(json)};
    }
    return text->number();
  };
  const auto retry = number(policy.retry, 0.0);
  const auto interval = number(policy.retry_interval, 30.0);
  const auto timeout = evaluate(policy.timeout, run);
  for (const Error* wrong :
       {retry.ok() ? nullptr : &retry.error(), interval.ok() ? nullptr : &interval.error(),
        timeout.ok() ? nullptr : &timeout.error()}) {
    if (wrong != nullptr) {
      fail(run, *wrong, "InvalidTemplate");
      return;
    }
  }
  if (!timeout->is_null()) {
    const auto seconds = timeout->is_string() ? parse_timeout(timeout->string()) : std::nullopt;
    if (!seconds) {
      fail(run, {"InvalidTemplate",
                 "policy.timeout must look like '0.12:00:00', not " + describe_value(*timeout),
                 "UserError", run->activity->name});
      return;
    }
    run->timeout = *seconds;
  }
  run->retry_max = static_cast<int64_t>(std::clamp(*retry, 0.0, 1e9));
  run->retry_interval = *interval;
  queue(run);
}

void Engine::State::queue(ActivityRun* run) {
  run->phase = Phase::queued;
  run->queued = now;
  slot_queue.emplace(SlotKey{run->scope->sequence, run->activity->id}, run);
}

void Engine::State::give_slots() {
  auto it = slot_queue.begin();
  while (it != slot_queue.end() && !free_slots.empty()) {
    ActivityRun* run = it->second;
    if (!secure_reruns.empty() && !secure_reruns.contains(run)) {
      ++it;
      continue;
    }
    it = slot_queue.erase(it);
    run->slot = *free_slots.begin();
    free_slots.erase(free_slots.begin());
    run->id = next_id++;
    run->phase = Phase::running;
    const EarlierWork* before = run->attempts == 0 ? earlier_work(*run) : nullptr;
    run->attempts = (before != nullptr ? before->attempts : run->attempts) + 1;
    ++counts.attempts_running;
    by_id.emplace(run->id, run);
    if (run->timeout > 0.0) {
      set_timer(run, now + seconds_to_micros(run->timeout));
    }
    actions->start.push_back({run->id, run->slot, run->reason, now - run->queued});
  }
}

/// What became of `run` before the run began anew, if anything.
const EarlierWork* Engine::State::earlier_work(const ActivityRun& run) const {
  if (options.earlier == nullptr || options.earlier->empty()) {
    return nullptr;
  }
  const auto it = options.earlier->find(earlier_key(path_of(run)));
  return it != options.earlier->end() ? &it->second : nullptr;
}

/// An outcome from before a restart: no attempt was made for it, and it took the time it took.
void Engine::State::take_over_times(ActivityRun* run) const {
  if (const EarlierWork* before = earlier_work(*run)) {
    run->attempts = std::max(1, run->attempts - 1);
    run->started = before->started;
    run->ended_before = before->ended;
  }
}

void Engine::State::release_slot(ActivityRun* run) {
  free_slots.insert(run->slot);
  run->slot = -1;
  --counts.attempts_running;
}

void Engine::State::set_timer(ActivityRun* run, Micros at) {
  clear_timer(run);
  run->deadline = at;
  timers.emplace(TimerKey{at, run->id}, run);
}

void Engine::State::clear_timer(ActivityRun* run) {
  if (run->deadline != Micros(0)) {
    timers.erase(TimerKey{run->deadline, run->id});
    run->deadline = Micros(0);
  }
}

void Engine::State::stop_attempt(ActivityRun* run, std::string reason) {
  if (!run->stopping) {
    run->stopping = true;
    run->stop_reason = reason;
    std::string message = reason == "timeout" ? timeout_message(*run) : "";
    actions->stop.push_back({run->id, std::move(reason), std::move(message)});
  }
}

void Engine::State::end(ActivityRun* run, Status final_status) {
  clear_timer(run);
  run->status = final_status;
  run->phase = Phase::done;
  run->ended = run->ended_before != Micros(0) ? run->ended_before : now;
  if (run->started == Micros(0)) {
    run->started = now;
  }
  secure_reruns.erase(run);
  report_activity(*run, false);
  for (const int dependent : run->activity->dependents) {
    tasks.push_back(
        {Task::Kind::check, &run->scope->runs[static_cast<size_t>(dependent)], nullptr});
  }
  if (--run->scope->open == 0) {
    tasks.push_back({Task::Kind::scope_done, nullptr, run->scope});
  }
}

void Engine::State::fail(ActivityRun* run, ActivityError why) {
  if (why.target.empty()) {
    why.target = run->activity->name;
  }
  if (!secrets.empty()) {
    why.code = secrets.masked(why.code);
    why.message = secrets.masked(why.message);
  }
  run->error = std::make_unique<ActivityError>(std::move(why));
  end(run, Status::failed);
}

void Engine::State::fail(ActivityRun* run, const Error& why, std::string code) {
  fail(run, {std::move(code), why.message(), "UserError", run->activity->name});
}

void Engine::State::cancel_scope(Scope* scope) {
  scope->cancelled = true;
  for (ActivityRun& run : scope->runs) {
    cancel_run(&run);
  }
}

void Engine::State::cancel_run(ActivityRun* run) {
  switch (run->phase) {
    case Phase::done: return;
    case Phase::running: stop_attempt(run, "cancel"); return;
    case Phase::queued:
      slot_queue.erase(SlotKey{run->scope->sequence, run->activity->id});
      end(run, Status::cancelled);
      return;
    case Phase::inside:
      if (run->child != nullptr) {
        cancel_scope(run->child.get());
      }
      if (run->for_each != nullptr) {
        run->for_each->stopped = true;
        for (auto& [index, iteration] : run->for_each->live) {
          cancel_scope(iteration.get());
        }
        tasks.push_back({Task::Kind::fill, run, nullptr});
      }
      return;
    default: by_id.erase(run->id); end(run, Status::cancelled);
  }
}

std::unique_ptr<Scope> Engine::State::open_scope(const ActivityList& list, Scope* parent,
                                                 ActivityRun* owner) {
  auto scope = std::make_unique<Scope>();
  scope->list = &list;
  scope->parent = parent;
  scope->owner = owner;
  scope->sequence = parent != nullptr ? parent->sequence : 0;
  scope->started = now;
  scope->cancelled = parent != nullptr && parent->cancelled;
  scope->runs.resize(list.activities.size());
  scope->open = static_cast<int>(list.activities.size());
  for (size_t i = 0; i < scope->runs.size(); ++i) {
    scope->runs[i].activity = &list.activities[i];
    scope->runs[i].scope = scope.get();
  }
  return scope;
}

void Engine::State::begin(Scope* scope) {
  for (ActivityRun& run : scope->runs) {
    tasks.push_back({Task::Kind::check, &run, nullptr});
  }
  if (scope->runs.empty()) {
    tasks.push_back({Task::Kind::scope_done, nullptr, scope});
  }
}

void Engine::State::scope_done(Scope* scope) {
  if (scope->owner == nullptr) {
    finish_run();
    return;
  }
  switch (scope->owner->activity->kind) {
    case ActivityKind::for_each: iteration_done(scope); return;
    case ActivityKind::until: pass_done(scope->owner); return;
    default: branch_done(scope->owner); return;
  }
}

void Engine::State::finish_run() {
  const ActivityRun* cause = nullptr;
  status = cancelling ? Status::cancelled : judge(*root, &cause);
  if (cause != nullptr && cause->error != nullptr) {
    error = explain(*cause);
  }
  Report report;
  report.kind = Report::Kind::run;
  report.status = status;
  report.started = options.started;
  report.ended = now;
  report.error = error;
  actions->reports.push_back(std::move(report));
}

Engine::Engine(std::shared_ptr<const Pipeline> pipeline, EngineOptions options)
    : state_(std::make_unique<State>(std::move(pipeline), std::move(options))) {}
Engine::~Engine() = default;

Result<void> Engine::step(Event event, Actions* actions) {
  state_->actions = actions;
  Result<void> result = state_->take(std::move(event));
  state_->actions = nullptr;
  return result;
}

std::optional<Micros> Engine::next_deadline() const {
  if (state_->timers.empty()) {
    return std::nullopt;
  }
  return state_->timers.begin()->first.first;
}

Status Engine::status() const { return state_->status; }
const std::optional<ActivityError>& Engine::error() const { return state_->error; }
EngineProgress Engine::progress() const { return state_->counts; }
Micros Engine::now() const { return state_->now; }

std::vector<StartAttempt> Engine::running() const {
  std::vector<StartAttempt> all;
  for (const auto& [id, run] : state_->by_id) {
    if (run->phase == Phase::running) {
      all.push_back({.attempt = id, .slot = run->slot});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.attempt < b.attempt; });
  return all;
}

const Pauses& Engine::pauses() const { return state_->options.pauses; }
const Secrets& Engine::secrets() const { return state_->secrets; }
Json Engine::told(Json value) const {
  return state_->item_secrets.masked_value(state_->secrets.masked_value(std::move(value)));
}

Json Engine::variables() const {
  Json all = Json::object();
  for (const auto& [name, value] : state_->variables) {
    all.set(name, value);
  }
  return all;
}

const Json& Engine::return_value() const { return state_->return_value; }

}  // namespace headrace::flow
