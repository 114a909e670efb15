// SPDX-License-Identifier: Apache-2.0
// Names, verdicts and reports.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/checksum.h"
#include "headrace/flow/engine_state_internal.h"

namespace headrace::flow {

/// The verdict of Data Factory: every leaf must have succeeded; a skipped leaf is judged by what it
/// waited for. `cause` is the first activity that speaks against it.
Status Engine::State::judge(const Scope& scope, const ActivityRun** cause) const {
  std::vector<bool> seen(scope.runs.size());
  std::vector<int> open(scope.list->leaves.rbegin(), scope.list->leaves.rend());
  Status verdict = Status::succeeded;
  while (!open.empty()) {
    const int index = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(index)]) {
      continue;
    }
    seen[static_cast<size_t>(index)] = true;
    const ActivityRun& run = scope.runs[static_cast<size_t>(index)];
    if (run.status == Status::skipped) {
      const auto& dependencies = run.activity->dependencies;
      for (auto it = dependencies.rbegin(); it != dependencies.rend(); ++it) {
        open.push_back(it->index);
      }
    } else if (run.status != Status::succeeded) {
      verdict = Status::failed;
      if (*cause == nullptr || ((*cause)->error == nullptr && run.error != nullptr)) {
        *cause = &run;
      }
    }
  }
  return verdict;
}

/// The error of `cause`. What it waited for may have failed first, and the rest follows from that:
/// then the first failure is named too.
ActivityError Engine::State::explain(const ActivityRun& cause) const {
  const ActivityRun* first = &cause;
  for (const ActivityRun* run : waited_for(cause)) {
    if (run->status == Status::failed && run->error != nullptr && run->ended <= first->ended) {
      first = run;
    }
  }
  ActivityError why = *cause.error;
  if (why.message.find(first->error->message) == std::string::npos) {
    why.message +=
        fmt::format("; '{}' had failed before: {}", first->activity->name, first->error->message);
    why.target = first->error->target;
  }
  return why;
}

std::string Engine::State::path_of(const ActivityRun& run) const {
  if (run.scope->owner == nullptr) {
    return run.activity->name;
  }
  const ActivityRun& owner = *run.scope->owner;
  std::string path = path_of(owner);
  if (run.scope->index >= 0) {
    path += '[';
    path += owner.for_each->items.key(run.scope->index);
    path += ']';
  } else if (owner.activity->kind == ActivityKind::until) {
    path += '[' + std::to_string(owner.pass) + ']';
  }
  path += '/';
  path += run.activity->name;
  return path;
}

std::string Engine::State::key_path(const Scope* scope) const {
  std::string path;
  for (; scope != nullptr && scope->owner != nullptr; scope = scope->parent) {
    if (scope->index >= 0) {
      const std::string key(scope->owner->for_each->items.key(scope->index));
      path = path.empty() ? key : key + "/" + path;
    }
  }
  return path;
}

std::string Engine::State::log_of(const ActivityRun& run) const {
  return log_path(key_path(run.scope), run.activity->name, std::max(1, run.attempts));
}

std::string Engine::State::outputs_of(const Scope& scope) const {
  std::string text = "{";
  for (const ActivityRun& run : scope.runs) {
    if (!run.output.empty()) {
      text += (text.size() > 1 ? "," : "") + json_quote(run.activity->name) + ":";
      text += run.activity->policy.secure_output ? "\"***\"" : run.output;
    }
  }
  return text + "}";
}

namespace {

/// From when to when an item worked of which nothing was run again; zeros otherwise.
std::pair<base::Micros, base::Micros> reused_times(const Scope& scope) {
  std::pair<base::Micros, base::Micros> times{base::Micros::max(), base::Micros(0)};
  for (const ActivityRun& run : scope.runs) {
    if (run.attempts == 0) {
      continue;
    }
    if (run.ended_before == base::Micros(0)) {
      return {};
    }
    times.first = std::min(times.first, run.started);
    times.second = std::max(times.second, run.ended_before);
  }
  return times;
}

bool inside_item(const Scope* scope) {
  for (; scope != nullptr; scope = scope->parent) {
    if (scope->index >= 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

void Engine::State::report_activity(const ActivityRun& run, bool begins) {
  if (inside_item(run.scope)) {
    return;  // told with the item
  }
  Report report;
  report.kind = begins ? Report::Kind::activity_started : Report::Kind::activity;
  report.path = path_of(run);
  report.activity = run.activity;
  report.status = run.status;
  report.attempts = run.attempts;
  report.started = run.started;
  report.ended = run.ended;
  report.paused = paused_within(options.pauses, run.started, run.ended);
  report.cpu_seconds = run.cpu_seconds;
  report.peak_rss_bytes = run.peak_rss_bytes;
  if (!begins && options.report_outputs) {
    report.output =
        run.activity->policy.secure_output && !run.output.empty() ? "\"***\"" : run.output;
  }
  if (run.error != nullptr) {
    report.error = *run.error;
  }
  if (options.report_outputs) {
    report.log = log_of(run);
  }
  actions->reports.push_back(std::move(report));
}

void Engine::State::report_item(const Scope& scope, Status judged, const ActivityRun* cause) {
  const ActivityRun& owner = *scope.owner;
  if (inside_item(owner.scope)) {
    return;  // told with the outer item
  }
  Report report;
  report.kind = Report::Kind::item;
  report.path = path_of(owner);
  report.activity = owner.activity;
  report.index = scope.index;
  report.key = owner.for_each->items.key(scope.index);
  report.status = judged;
  report.started = scope.started;
  report.ended = now;
  const auto [began, over] = reused_times(scope);
  if (over != base::Micros(0)) {
    report.started = began;
    report.ended = over;
  }
  const ActivityRun* last = &scope.runs[0];
  for (const ActivityRun& run : scope.runs) {
    report.attempts = std::max(report.attempts, run.attempts);
    report.cpu_seconds += run.cpu_seconds;
    report.peak_rss_bytes = std::max(report.peak_rss_bytes, run.peak_rss_bytes);
    if (run.attempts > 0 && run.ended >= last->ended) {
      last = &run;
    }
  }
  if (cause != nullptr && cause->error != nullptr) {
    report.error = explain(*cause);
  }
  if (options.report_outputs) {
    report.log = log_of(cause != nullptr ? *cause : *last);
    report.output = outputs_of(scope);
  }
  actions->reports.push_back(std::move(report));
}

/// Items that the failure budget, the circuit breaker or a cancel left out.
void Engine::State::report_not_started(const ActivityRun& run) {
  const ForEachRun& loop = *run.for_each;
  for (int64_t index = loop.next; index < loop.items.size(); ++index) {
    if (!is_final(loop.statuses[static_cast<size_t>(index)])) {
      report_unstarted_item(run, index, run.scope->cancelled ? Status::cancelled : Status::skipped);
    }
  }
}

void Engine::State::report_unstarted_item(const ActivityRun& run, int64_t index,
                                          Status with_status) {
  if (inside_item(run.scope)) {
    return;  // told with the outer item
  }
  Report report;
  report.kind = Report::Kind::item;
  report.path = path_of(run);
  report.activity = run.activity;
  report.index = index;
  report.key = run.for_each->items.key(index);
  report.status = with_status;
  report.ended = now;
  actions->reports.push_back(std::move(report));
}

/// Count into `own` what the activities of `scope` do, one for each, and into `all` the items of
/// the loops in it.
void Engine::State::count_states(const Scope& scope, ItemStates* all, ItemStates* own) const {
  for (const ActivityRun& run : scope.runs) {
    own->running += run.phase == Phase::running || run.phase == Phase::timer_wait ? 1 : 0;
    own->waiting_retry += run.phase == Phase::retry_wait ? 1 : 0;
    if (run.child != nullptr && run.phase == Phase::inside) {
      count_states(*run.child, all, own);
    }
    if (run.for_each == nullptr) {
      continue;
    }
    const ForEachRun& loop = *run.for_each;
    all->queued += loop.items.size() - loop.next - loop.cancelled_waiting;
    for (const auto& [index, iteration] : loop.live) {
      ItemStates inner;
      count_states(*iteration, all, &inner);
      own->running += inner.running;
      own->waiting_retry += inner.waiting_retry;
      (inner.running > 0         ? all->running
       : inner.waiting_retry > 0 ? all->waiting_retry
                                 : all->queued) += 1;
    }
  }
}

ItemStates Engine::item_states() const {
  ItemStates all;
  ItemStates outside;
  if (state_->root != nullptr) {
    state_->count_states(*state_->root, &all, &outside);
  }
  return all;
}

void Engine::State::visit_open(const Scope& scope,
                               const std::function<void(const OpenItem& item)>& visit) const {
  for (const ActivityRun& run : scope.runs) {
    if (run.child != nullptr) {
      visit_open(*run.child, visit);
    }
    if (run.for_each == nullptr) {
      continue;
    }
    const ForEachRun& loop = *run.for_each;
    OpenItem item;
    item.path = path_of(run);
    for (size_t i = 0; i < loop.statuses.size(); ++i) {
      item.status = loop.statuses[i];
      if (is_final(item.status)) {
        continue;
      }
      item.index = static_cast<int64_t>(i);
      item.key = loop.items.key(item.index);
      const auto live = loop.live.find(item.index);
      item.started = live == loop.live.end() ? base::Micros(0) : live->second->started;
      visit(item);
    }
  }
}

void Engine::visit_open_items(const std::function<void(const OpenItem& item)>& visit) const {
  if (state_->root != nullptr) {
    state_->visit_open(*state_->root, visit);
  }
}

uint64_t earlier_key(std::string_view path) { return base::xxh3_64(path); }

std::string item_folder_name(std::string_view key) {
  constexpr size_t kNameMax = 200;
  std::string name;
  name.reserve(key.size());
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const bool unsafe =
        byte < 0x20 || c == '/' || c == '\\' || c == '%' || c == 0x7F || (c == '.' && name.empty());
    if (unsafe) {
      name += fmt::format("%{:02X}", byte);
    } else {
      name += c;
    }
  }
  if (name.size() > kNameMax) {  // keep it a file name, and keep long keys apart
    const uint64_t hash = base::xxh3_64(name);
    size_t cut = kNameMax - 17;
    while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xC0U) == 0x80U) {
      --cut;
    }
    name = fmt::format("{}~{:016x}", name.substr(0, cut), hash);
  }
  return name.empty() ? "%" : name;
}

std::string log_path(std::string_view item_key, std::string_view activity, int attempt) {
  std::string path = item_key.empty() ? "activities/" : "items/";
  if (!item_key.empty()) {
    // One folder for "outer/inner" too: inside that of "outer" it could be one of its attempts'.
    path += item_folder_name(item_key);
    path += '/';
  }
  path += item_folder_name(activity);
  path += '.';
  path += std::to_string(attempt);
  path += ".log";
  return path;
}

}  // namespace headrace::flow
