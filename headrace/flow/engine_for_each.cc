// SPDX-License-Identifier: Apache-2.0
// ForEach: one shared queue of items, keys, failure budget, and what its items leave behind.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "headrace/base/random.h"
#include "headrace/flow/engine_state_internal.h"
#include "headrace/flow/value.h"

namespace headrace::flow {

namespace {

constexpr int64_t kBatchDefault = 20;
constexpr int64_t kItemsMax = 10'000'000;
constexpr size_t kErrorGroupsMax = 100;
constexpr size_t kKeysShown = 3;
constexpr int64_t kAlikeMin = 5;  // fewer failures may be chance

/// The text by which `item` may be known under `property` ("" = the item itself); nullptr: none.
const std::string* key_text(const Json& item, std::string_view property) {
  const Json* value = property.empty() ? &item : item.find(property);
  return value != nullptr && value->is_string() && !value->string().empty() ? &value->string()
                                                                            : nullptr;
}

/// Do all items have this key, each another one?
bool is_key(const Json::Array& items, std::string_view property) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(items.size());
  for (const Json& item : items) {
    const std::string* text = key_text(item, property);
    if (text == nullptr || !seen.insert(*text).second) {
      return false;
    }
  }
  return true;
}

/// Was the item, or one around it, taken back before anything of it ran?
bool is_left_out(const Scope* scope) {
  while (scope != nullptr && !scope->left_out) {
    scope = scope->parent;
  }
  return scope != nullptr;
}

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

void Engine::State::start_for_each(ActivityRun* run) {
  const Activity& activity = *run->activity;
  run->for_each = std::make_unique<ForEachRun>();
  ForEachRun& loop = *run->for_each;
  loop.batch = 1;
  if (!activity.is_sequential) {
    const auto value = evaluate(activity.value, run);
    const auto number =
        value.ok() && value->is_string() ? parse_json(value->string(), "batchCount") : value;
    if (!number.ok()) {
      fail(run, number.error(), "InvalidTemplate");
      return;
    }
    if (!number->is_null() && (!number->is_integer() || number->integer() < 1)) {
      fail(run, {"InvalidTemplate",
                 fmt::format("batchCount of ForEach '{}' must be an integer of at least 1, not {}",
                             activity.name, describe_value(*number)),
                 "UserError", ""});
      return;
    }
    loop.batch = number->is_null() ? kBatchDefault : number->integer();
  }
  const bool own = activity.budget.count.has_value() || activity.budget.percent.has_value();
  loop.budget = own ? activity.budget : options.budget;
  run->phase = Phase::items_wait;
  by_id.emplace(run->id, run);
  actions->evaluate_items.push_back(run->id);
}

Result<ItemList> Engine::State::make_items(ActivityRun* run) {
  const Activity& activity = *run->activity;
  const uint64_t own_seed = base::derive_seed(seed, path_of(*run));
  HR_TRY(auto value, evaluate_outside(activity.items, run, own_seed), "InvalidTemplate");
  if (value.is_string()) {  // users pass arrays through string parameters
    auto parsed = parse_json(value.string(), "items");
    if (parsed.ok() && parsed->is_array()) {
      value = *std::move(parsed);
    }
  }
  if (!value.is_array()) {
    return Error{Errc::invalid_argument,
                 fmt::format("2105: items of ForEach '{}' must be an array, not {}", activity.name,
                             describe_value(value))};
  }
  const Json::Array& items = value.items();
  if (static_cast<int64_t>(items.size()) > kItemsMax) {
    return Error{Errc::invalid_argument,
                 fmt::format("2105: ForEach '{}' has {} items; at most {} are possible",
                             activity.name, items.size(), kItemsMax)};
  }
  const bool named =
      !activity.expression.is_constant() || !activity.expression.constant().is_null();
  ItemList list;
  std::unordered_set<std::string> seen;
  if (named) {
    for (const Json& item : items) {
      const uint64_t item_seed = base::derive_seed(own_seed, static_cast<uint64_t>(list.size()));
      HR_TRY(const auto key, evaluate_outside(activity.expression, run, item_seed, &item),
             "InvalidTemplate");
      const std::string text = value_text(key);
      if (text.empty() || !seen.insert(text).second) {
        return Error{Errc::invalid_argument,
                     fmt::format("InvalidTemplate: itemKey of ForEach '{}' gives '{}' {}; keys "
                                 "must be texts that differ",
                                 activity.name, text, text.empty() ? "for an item" : "twice")};
      }
      if (secrets.found_in(text)) {
        return Error{Errc::invalid_argument,
                     fmt::format("InvalidTemplate: itemKey of ForEach '{}' gives a secure value; "
                                 "keys name folders and are told",
                                 activity.name)};
      }
      list.add(text, secrets.empty() ? item.dump() : secrets.hide(item.dump()));
    }
    return list;
  }
  constexpr std::string_view kProperties[] = {"key", "id", "name", "series_id", ""};
  const auto* property = std::find_if(std::begin(kProperties), std::end(kProperties),
                                      [&](std::string_view name) { return is_key(items, name); });
  const bool secret = property != std::end(kProperties) && !secrets.empty() &&
                      std::ranges::any_of(items, [&](const Json& item) {
                        return secrets.found_in(*key_text(item, *property));
                      });
  if (secret) {
    property = std::end(kProperties);  // keys name folders and are told
  }
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    text.clear();
    items[i].dump_to(&text);
    text = secrets.empty() ? std::move(text) : secrets.hide(text);
    list.add(property == std::end(kProperties) ? std::to_string(i) : *key_text(items[i], *property),
             text);
  }
  return list;
}

void Engine::State::fill(ActivityRun* run) {
  if (run->phase != Phase::inside) {
    return;
  }
  ForEachRun& loop = *run->for_each;
  const auto room = [&] {
    return loop.running == 0 ||  // one always goes, or nothing would
           (loop.running < loop.batch && counts.items_running < options.live_items_max);
  };
  while (!loop.stopped && room() && loop.next < loop.items.size()) {
    const int64_t index = loop.next++;
    if (is_final(loop.statuses[static_cast<size_t>(index)])) {
      --loop.cancelled_waiting;
      continue;
    }
    auto scope = open_scope(run->activity->branches[0], run->scope, run);
    scope->sequence = next_sequence++;
    scope->index = index;
    scope->item = parse_json(secrets.reveal(loop.items.text(index)), "item").value_or(Json());
    if (loop.batch > 1 && !options.shared_variables) {
      scope->changes = std::make_unique<VariableChanges>();
    }
    ++loop.running;
    ++counts.items_running;
    loop.statuses[static_cast<size_t>(index)] = Status::in_progress;
    Scope* raw = scope.get();
    loop.live.emplace(index, std::move(scope));
    begin(raw);
  }
  if (loop.running == 0 && (loop.stopped || loop.next >= loop.items.size())) {
    close_for_each(run);
  }
}

/// Items with this whole key; several when loops beside each other have the same keys.
void Engine::State::find_items(const Scope& scope, std::string_view key,
                               std::vector<ItemPlace>* out) const {
  for (const ActivityRun& run : scope.runs) {
    if (run.child != nullptr) {
      find_items(*run.child, key, out);
    }
    if (run.for_each == nullptr) {
      continue;
    }
    const std::string outer = key_path(run.scope);
    std::string_view own = key;
    if (!outer.empty()) {
      if (!own.starts_with(outer + "/")) {
        continue;
      }
      own.remove_prefix(outer.size() + 1);
    }
    ForEachRun& loop = *run.for_each;
    for (int64_t i = 0; i < loop.items.size(); ++i) {
      if (loop.items.key(i) == own) {
        out->push_back({&loop, &run, i});
      }
    }
    for (const auto& [index, iteration] : loop.live) {
      find_items(*iteration, key, out);
    }
  }
}

void Engine::State::cancel_item(const ItemPlace& place) {
  ForEachRun& loop = *place.loop;
  if (const auto live = loop.live.find(place.index); live != loop.live.end()) {
    cancel_scope(live->second.get());
    return;
  }
  Status& item = loop.statuses[static_cast<size_t>(place.index)];
  if (is_final(item)) {
    return;
  }
  item = Status::cancelled;
  ++loop.cancelled;
  ++loop.cancelled_waiting;
  ++counts.items_ended;
  ++counts.items_cancelled;
  report_unstarted_item(*place.run, place.index, item);
}

void Engine::State::iteration_done(Scope* scope) {
  ActivityRun* run = scope->owner;
  ForEachRun& loop = *run->for_each;
  const ActivityRun* cause = nullptr;
  const Status judged = is_left_out(scope) ? Status::skipped
                        : scope->cancelled ? Status::cancelled
                                           : judge(*scope, &cause);
  loop.statuses[static_cast<size_t>(scope->index)] = judged;
  --loop.running;
  --counts.items_running;
  ++counts.items_ended;
  if (judged == Status::succeeded) {
    ++loop.succeeded;
    ++counts.items_succeeded;
  } else if (judged == Status::skipped) {
    ++loop.skipped;
    ++counts.items_skipped;
  } else if (judged == Status::cancelled) {
    ++loop.cancelled;
    ++counts.items_cancelled;
  } else {
    ++loop.failed;
    ++counts.items_failed;
    static const ActivityError kCancelled = {"2001", "an inner activity was cancelled", "UserError",
                                             ""};
    const bool told = cause != nullptr && cause->error != nullptr;
    note_failure(&loop, told ? *cause : scope->runs[0], *scope,
                 told ? explain(*cause) : kCancelled);
    after_failure(&loop, scope);
  }
  if (!loop.outputs.empty()) {
    loop.outputs[static_cast<size_t>(scope->index)] = outputs_of(*scope);
  }
  if (judged != Status::skipped) {
    report_item(*scope, judged, cause);
  } else if (options.report_outputs) {  // as those that were never taken up
    report_unstarted_item(*run, scope->index, judged);
  }
  if (scope->changes != nullptr && judged != Status::cancelled && judged != Status::skipped) {
    merge_variables(&loop, scope->index, std::move(*scope->changes));
  }
  loop.live.erase(scope->index);
  tasks.push_back({Task::Kind::fill, run, nullptr});
}

/// Shall more items of `loop` be started? `failed` is the one that just ended.
void Engine::State::after_failure(ForEachRun* loop, const Scope* failed) {
  if (budget_used_up(*loop)) {
    loop->stopped = true;
    if (loop->budget.cancel_running) {
      for (auto& [index, other] : loop->live) {
        if (other.get() != failed) {
          cancel_scope(other.get());
        }
      }
    }
  } else if (circuit_breaks(*loop)) {
    break_circuit(loop);
  }
}

void Engine::State::note_failure(ForEachRun* loop, const ActivityRun& run, const Scope& scope,
                                 const ActivityError& why) {
  if (loop->all_alike && loop->succeeded == 0 && options.circuit_breaker) {
    ItemFailure failure = {
        run.activity->name, why.code, why.message,
        names_of_item(loop->items.key(scope.index), scope.index, loop->items.text(scope.index))};
    if (loop->first_failure == nullptr) {
      loop->first_failure = std::make_unique<ItemFailure>(std::move(failure));
    } else {
      loop->all_alike = alike(*loop->first_failure, failure);
    }
  }
  for (ErrorGroup& group : loop->errors) {
    if (group.message == why.message && group.activity == run.activity->name) {
      ++group.count;
      if (group.keys.size() < kKeysShown) {
        group.keys.emplace_back(loop->items.key(scope.index));
      }
      return;
    }
  }
  if (loop->errors.size() >= kErrorGroupsMax) {
    ++loop->errors_left_out;
    return;
  }
  loop->errors.push_back({why.message,
                          run.activity->name,
                          1,
                          {std::string(loop->items.key(scope.index))},
                          log_of(run)});
}

bool Engine::State::budget_used_up(const ForEachRun& loop) const {
  if (loop.budget.count && loop.failed >= *loop.budget.count) {
    return true;
  }
  return loop.budget.percent && static_cast<double>(loop.failed) * 100.0 >=
                                    *loop.budget.percent * static_cast<double>(loop.items.size());
}

bool Engine::State::circuit_breaks(const ForEachRun& loop) const {
  return options.circuit_breaker && !loop.stopped && loop.succeeded == 0 && loop.all_alike &&
         loop.failed >= std::max<int64_t>(kAlikeMin, slots);
}

/// Items that were taken up and only wait for a slot are given back too: there may be many more of
/// them than slots.
void Engine::State::break_circuit(ForEachRun* loop) {
  loop->stopped = true;
  loop->broken_after = loop->failed;
  for (auto& [index, other] : loop->live) {
    if (is_untouched(*other)) {
      other->left_out = true;
      cancel_scope(other.get());
    }
  }
}

/// Has nothing of it been with a worker, or ended?
bool Engine::State::is_untouched(const Scope& scope) const {
  return std::all_of(scope.runs.begin(), scope.runs.end(), [this](const ActivityRun& run) {
    if (run.phase == Phase::inside && run.child != nullptr) {
      return run.pass <= 1 && is_untouched(*run.child);
    }
    if (run.phase == Phase::inside && run.for_each != nullptr) {
      const ForEachRun& loop = *run.for_each;
      return loop.succeeded + loop.failed + loop.cancelled + loop.skipped == 0 &&
             std::all_of(loop.live.begin(), loop.live.end(),
                         [this](const auto& entry) { return is_untouched(*entry.second); });
    }
    return run.phase == Phase::waiting || (run.phase == Phase::queued && run.attempts == 0);
  });
}

void Engine::State::merge_variables(ForEachRun* loop, int64_t index, VariableChanges changes) {
  for (auto& [name, change] : changes) {
    ForEachRun::Merge& merge = loop->variables[name];
    if (!change.set) {
      merge.appended.emplace(index, std::move(change.appended));
      continue;
    }
    if (index > merge.set_index) {
      merge.set_index = index;
      merge.value = std::move(change.value);
      for (Json& element : change.appended) {
        merge.value.push_back(std::move(element));
      }
    }
  }
}

void Engine::State::close_for_each(ActivityRun* run) {
  ForEachRun& loop = *run->for_each;
  const int64_t unstarted = loop.items.size() - loop.next - loop.cancelled_waiting;
  loop.skipped += unstarted;
  counts.items_ended += unstarted;
  const bool by_cancel = run->scope->cancelled && !is_left_out(run->scope);
  (by_cancel ? counts.items_cancelled : counts.items_skipped) += unstarted;
  for (auto& [name, merge] : loop.variables) {
    if (merge.set_index >= 0) {
      write_variable(run->scope, name, std::move(merge.value), false);
    }
    for (auto& [index, elements] : merge.appended) {
      for (Json& element : elements) {
        write_variable(run->scope, name, std::move(element), true);
      }
    }
  }
  if (options.report_outputs && unstarted > 0 && key_path(run->scope).empty()) {
    report_not_started(*run);
  }
  run->output = for_each_output(*run);
  const bool cancelled = run->scope->cancelled;
  const bool failed = loop.failed > 0 || loop.cancelled > 0 || loop.skipped > 0;
  std::string message = failed && !cancelled ? for_each_message(*run) : "";
  run->for_each.reset();
  if (cancelled) {
    end(run, Status::cancelled);
  } else if (failed) {
    fail(run, {"2001", std::move(message), "UserError", ""});
  } else {
    end(run, Status::succeeded);
  }
}

std::string Engine::State::for_each_message(const ActivityRun& run) const {
  const ForEachRun& loop = *run.for_each;
  std::string text = fmt::format("ForEach '{}' failed: {} of {}.", run.activity->name, loop.failed,
                                 counted(loop.items.size(), "item"));
  for (const ErrorGroup& group : loop.errors) {
    std::string keys;
    for (const std::string& key : group.keys) {
      keys += (keys.empty() ? "" : ", ") + key;
    }
    const bool more = group.count > static_cast<int64_t>(group.keys.size());
    text += fmt::format("{} {}\xC3\x97 {} ({}{}) in '{}' [{}]",
                        &group == loop.errors.data() ? "" : ";", group.count, group.message, keys,
                        more ? ", \xE2\x80\xA6" : "", group.activity, group.log);
  }
  if (loop.errors_left_out > 0) {
    text += fmt::format("; {} with other errors", counted(loop.errors_left_out, "more item"));
  }
  if (loop.cancelled > 0) {
    text += fmt::format("; {} cancelled", counted(loop.cancelled, "item"));
  }
  if (loop.skipped > 0 && loop.broken_after > 0) {
    text += fmt::format(
        "; stopped early: the first {} to end all failed with this error and none succeeded, {} "
        "not started; headrace flow resume RUN --retry-failed runs them all when it is mended, "
        "--no-circuit-breaker beside it tries every item as things are",
        counted(loop.broken_after, "item"), counted(loop.skipped, "item"));
  } else if (loop.skipped > 0) {
    text += fmt::format("; stopped by the failure budget, {} not started",
                        counted(loop.skipped, "item"));
  }
  return text;
}

std::string Engine::State::for_each_output(const ActivityRun& run) const {
  const ForEachRun& loop = *run.for_each;
  std::string text =
      fmt::format(R"({{"itemsCount":{},"succeeded":{},"failed":{},"skipped":{})", loop.items.size(),
                  loop.succeeded, loop.failed + loop.cancelled, loop.skipped);
  if (pipeline->outputs_of_items_used) {
    text += R"(,"items":[)";
    for (int64_t i = 0; i < loop.items.size(); ++i) {
      const auto index = static_cast<size_t>(i);
      const bool ended = is_final(loop.statuses[index]);
      text += fmt::format(R"({}{{"key":{},"status":"{}","outputs":{}}})", i > 0 ? "," : "",
                          json_quote(loop.items.key(i)),
                          status_name(ended ? loop.statuses[index] : Status::skipped),
                          loop.outputs[index].empty() ? "{}" : loop.outputs[index]);
    }
    text += "]";
  }
  return text + "}";
}

std::optional<Status> Engine::item_status(std::string_view key) const {
  std::vector<ItemPlace> places;
  if (state_->root != nullptr) {
    state_->find_items(*state_->root, key, &places);
  }
  std::optional<Status> found;
  for (const ItemPlace& place : places) {
    Status status = place.loop->statuses[static_cast<size_t>(place.index)];
    const auto live = place.loop->live.find(place.index);
    if (live != place.loop->live.end() && live->second->cancelled) {
      status = Status::canceling;
    }
    if (!found || is_final(*found)) {
      found = status;
    }
  }
  return found;
}

Result<ItemList> Engine::evaluate_items(uint64_t run) {
  const auto it = state_->by_id.find(run);
  if (it == state_->by_id.end() || it->second->phase != Phase::items_wait) {
    return Error{Errc::not_found, "nobody waits for these items any more"};
  }
  return state_->make_items(it->second);
}

}  // namespace headrace::flow
