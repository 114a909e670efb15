// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "headrace/base/board_folder.h"
#include "headrace/base/board_values.h"
#include "headrace/base/log.h"
#include "headrace/base/metric_names.h"
#include "headrace/flow/metrics.h"
#include "headrace/flow/run_folder_internal.h"
#include "headrace/flow/run_metrics_internal.h"

namespace headrace::flow {

namespace {

using base::BoardSnapshot;
using base::Micros;

constexpr Micros kUpdateEvery = std::chrono::seconds(1);
constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

std::unique_ptr<base::Board> make_board(const std::string& run_id) {
  if (run_id.empty()) {
    return nullptr;
  }
  base::remove_left_boards();
  base::remove_dead_boards(base::board_folder(run_id));  // of an engine that was killed
  base::BoardOptions options;
  options.run = run_id;
  options.role = base::BoardRole::agent;
  auto board = base::Board::create(options);
  if (!board.ok()) {
    base::log_warning("flow: the run goes on without metrics: " + board.error().message());
    return nullptr;
  }
  (*board)->set_state(base::BoardState::running);
  return *std::move(board);
}

std::string label(std::string_view name, std::string_view value) {
  return fmt::format("{}=\"{}\"", name, value);
}

Json document(const BoardSnapshot& all, bool live) {
  return Json::object({{"at", base::utc_text(base::system_clock().wall(), 3)},
                       {"live", live},
                       {"values", base::board_values(all)}});
}

base::Path kept_path(const base::Path& run_folder) { return run_folder / "metrics.json"; }

}  // namespace

base::Counter RunMetrics::counter(const base::MetricInfo& info, std::string_view labels) const {
  return on() ? board_->counter(info, labels) : base::Counter();
}

base::Gauge RunMetrics::gauge(const base::MetricInfo& info, std::string_view labels) const {
  return on() ? board_->gauge(info, labels) : base::Gauge();
}

RunMetrics::RunMetrics(const std::string& run_id) : board_(make_board(run_id)) {
  if (!on()) {
    return;
  }
  process_ = base::ProcessMetrics(board_.get());
  constexpr std::string_view kStatuses[] = {"succeeded", "failed", "skipped", "cancelled"};
  constexpr std::string_view kReasons[] = {"first", "retry", "lost", "resumed"};
  constexpr std::string_view kStates[] = {"queued", "running", "waiting_retry"};
  constexpr std::string_view kUses[] = {"busy", "idle", "starting"};
  for (size_t i = 0; i < items_.size(); ++i) {
    items_[i] = counter(base::metric("flow.items"), label("status", kStatuses[i]));
    attempts_[i] = counter(base::metric("flow.attempts"), label("reason", kReasons[i]));
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    states_[i] = gauge(base::metric("flow.items_state"), label("state", kStates[i]));
    worker_seconds_[i] = counter(base::metric("flow.worker_seconds"), label("use", kUses[i]));
  }
  for (size_t i = 0; i < instances_.size(); ++i) {
    instances_[i] = gauge(base::metric("flow.pool_instances"),
                          fmt::format("pool=\"local\",state=\"{}\"", kWorkerUses[i]));
  }
  item_seconds_ = board_->histogram(base::metric("flow.item_seconds"));
  queue_seconds_ = board_->histogram(base::metric("flow.queue_seconds"));
  eta_seconds_ = gauge(base::metric("flow.eta_seconds"));
  progress_ratio_ = gauge(base::metric("flow.progress_ratio"));
}

RunMetrics::~RunMetrics() = default;

base::Histogram RunMetrics::journal_sync_seconds() const {
  return on() ? board_->histogram(base::metric("flow.journal_sync_seconds")) : base::Histogram();
}

base::Histogram RunMetrics::pool_start_seconds() const {
  return on() ? board_->histogram(base::metric("flow.pool_start_seconds")) : base::Histogram();
}

void RunMetrics::attempt_begins(const StartAttempt& start) {
  attempts_[static_cast<size_t>(start.reason)].add();
  queue_seconds_.observe(start.waited);
}

void RunMetrics::told(const Report& report) {
  if (report.kind == Report::Kind::item && report.started != Micros(0)) {
    item_seconds_.observe(report.ended - report.started);
  }
}

void RunMetrics::update(const Engine& engine, const WorkerPool& pool, Micros at) {
  if (!on()) {
    return;
  }
  update_at_ = at + kUpdateEvery;
  update_items(engine, at);
  update_pool(pool);
  process_.update();
  fold_gone();
  board_->beat();
}

void RunMetrics::update_items(const Engine& engine, Micros at) {
  const EngineProgress progress = engine.progress();
  const auto add = [](base::Counter* counter, int64_t count) {
    counter->add(static_cast<uint64_t>(std::max<int64_t>(0, count)));
  };
  add(&items_[0], progress.items_succeeded - counted_.items_succeeded);
  add(&items_[1], progress.items_failed - counted_.items_failed);
  add(&items_[2], progress.items_skipped - counted_.items_skipped);
  add(&items_[3], progress.items_cancelled - counted_.items_cancelled);
  counted_ = progress;
  const ItemStates states = engine.item_states();
  states_[0].set(static_cast<double>(states.queued));
  states_[1].set(static_cast<double>(states.running));
  states_[2].set(static_cast<double>(states.waiting_retry));
  if (progress.items_total == 0) {
    return;
  }
  const int64_t left = progress.items_total - progress.items_ended;
  progress_ratio_.set(static_cast<double>(progress.items_ended) /
                      static_cast<double>(progress.items_total));
  if (!rate_known_) {
    rate_known_ = true;
    rate_from_ = at;
    rate_items_ = progress.items_ended;
  }
  const auto ended = static_cast<double>(progress.items_ended - rate_items_);
  const double seconds = std::chrono::duration<double>(at - rate_from_).count();
  eta_seconds_.set(left == 0     ? 0.0
                   : ended > 0.0 ? seconds / ended * static_cast<double>(left)
                                 : kAbsent);
}

void RunMetrics::update_pool(const WorkerPool& pool) {
  const auto uses = pool.uses();
  for (size_t i = 0; i < uses.size(); ++i) {
    instances_[i].set(static_cast<double>(uses[i]));
  }
  const auto times = pool.times();
  const auto add = [&](base::Counter* counter, WorkerUse use) {
    const auto i = static_cast<size_t>(use);
    const Micros more = times[i] - std::exchange(counted_times_[i], times[i]);
    counter->add(std::max(more, Micros(0)));
  };
  add(&worker_seconds_[0], WorkerUse::busy);
  add(&worker_seconds_[0], WorkerUse::draining);  // what it is told to leave keeps it still
  add(&worker_seconds_[1], WorkerUse::idle);
  add(&worker_seconds_[2], WorkerUse::starting);
}

/// Workers that are gone: what they counted stays with the run.
void RunMetrics::fold_gone() {
  for (const base::Path& path : base::boards_in(board_->path().parent_path())) {
    if (path == board_->path() || base::board_is_alive(path)) {
      continue;
    }
    if (const auto snapshot = base::read_board_file(path); snapshot.ok()) {
      base::fold_board(board_.get(), *snapshot);
    }
    ::unlink(path.c_str());
  }
}

Result<void> RunMetrics::keep(const base::Path& run_folder) {
  if (!on()) {
    return {};
  }
  board_->set_state(base::BoardState::closing);
  HR_TRY(const auto all, base::read_board_file(board_->path()));
  return base::replace_file(kept_path(run_folder), document(all, false).dump(2) + "\n");
}

Json run_metrics(const base::Path& run_folder, std::string_view run_id) {
  BoardSnapshot all;
  bool live = false;
  if (lock_holder(run_folder)) {
    for (const base::Path& path : base::boards_in(base::board_folder(run_id))) {
      auto one = base::read_board_file(path);  // one that is just being made or removed is none
      if (!one.ok()) {
        continue;
      }
      live = live || (one->role == base::BoardRole::agent && base::board_is_alive(path));
      if (one->role != base::BoardRole::agent) {  // gauges are told of the engine
        std::erase_if(one->metrics,
                      [](const auto& metric) { return metric.type == base::MetricType::gauge; });
      }
      base::add_board(&all, *one);
    }
  }
  if (live) {
    return document(all, true);
  }
  const auto kept = base::read_file(kept_path(run_folder), int64_t{1} << 20);
  return kept.ok() ? parse_json(*kept, "metrics.json").value_or(Json()) : Json();
}

}  // namespace headrace::flow
