// SPDX-License-Identifier: Apache-2.0
// Tests only: drive the engine with a simulated clock and simulated workers, kill either at will,
// and replay what a journal would hold.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/flow/engine.h"

namespace headrace::flow {

/// What a simulated worker does with a call.
struct SimulatedWork {
  double seconds = 1.0;
  Outcome outcome;
};

inline SimulatedWork works(std::string output = "{}", double seconds = 1.0) {
  SimulatedWork work;
  work.seconds = seconds;
  work.outcome.output = std::move(output);
  return work;
}

inline SimulatedWork breaks(std::string message = "no luck", double seconds = 1.0) {
  SimulatedWork work;
  work.seconds = seconds;
  work.outcome.kind = Outcome::Kind::failed;
  work.outcome.error = {"user", std::move(message), "UserError", ""};
  return work;
}

inline std::shared_ptr<const Pipeline> pipeline_of(const std::string& text) {
  auto factory = load_factory_text("pl.json", text);
  REQUIRE_MESSAGE(factory.ok(), (factory.ok() ? "" : factory.error().message()));
  for (const Diagnostic& diagnostic : factory->diagnostics) {
    REQUIRE_MESSAGE(diagnostic.severity == Severity::warning, diagnostic_text(diagnostic));
  }
  REQUIRE(factory->pipelines.size() == 1);
  return factory->pipelines[0];
}

class Simulator {
 public:
  using Worker = std::function<SimulatedWork(const CallSpec& call)>;

  Simulator(std::shared_ptr<const Pipeline> pipeline, Worker worker, int slots = 2,
            EngineOptions options = {})
      : pipeline_(std::move(pipeline)),
        worker_(std::move(worker)),
        slots_(slots),
        options_(std::move(options)) {
    if (options_.run_id.empty()) {
      options_.run_id = "run";
    }
    options_.report_outputs = true;
    auto bound = bind_parameters(*pipeline_, options_.parameters);
    REQUIRE_MESSAGE(bound.ok(), (bound.ok() ? "" : bound.error().message()));
    options_.parameters = *std::move(bound);
    engine_ = std::make_unique<Engine>(pipeline_, options_);
  }

  /// Run to the end, or until `steps_max` events were taken. `between` is called before each event.
  Status run(const std::function<void()>& between = {}, int64_t steps_max = 2'000'000) {
    if (journal_.empty()) {
      take({now_, Started{slots_}});
    }
    while (!engine_->ended() && steps_max-- > 0) {
      if (between) {
        between();
      }
      if (!next()) {
        break;
      }
    }
    return engine_->status();
  }

  /// The engine dies with all its workers; a new one replays the journal and goes on.
  void kill_engine(int slots, bool circuit_breaker = true) {
    due_.clear();
    slots_ = slots;
    engine_ = replayed();
    take({now_, Resumed{slots, circuit_breaker}});
  }

  /// A worker dies under its attempt.
  void kill_worker(uint64_t attempt) {
    std::erase_if(due_, [&](const auto& entry) { return entry.second.first == attempt; });
    Outcome lost;
    lost.kind = Outcome::Kind::lost;
    lost.error = {"lost", "SIGKILL", "SystemError", ""};
    take({now_, AttemptEnded{attempt, lost}});
  }

  void cancel(std::string item = "") { take({now_, CancelRequested{std::move(item)}}); }

  std::unique_ptr<Engine> replayed() const {
    auto engine = std::make_unique<Engine>(pipeline_, options_);
    Actions ignored;
    for (const Event& event : journal_) {
      REQUIRE(engine->step(event, &ignored).ok());
    }
    return engine;
  }

  const Engine& engine() const { return *engine_; }
  base::Micros now() const { return now_; }
  double seconds() const { return static_cast<double>(now_.count()) / 1e6; }
  const std::vector<Event>& journal() const { return journal_; }
  const std::vector<std::string>& calls() const { return calls_; }  ///< "path#attempt properties"
  int64_t running_max() const { return running_max_; }

  /// "Succeeded: message" of an activity by path, or of an item by "path[key]".
  std::string result(const std::string& path) const {
    const auto it = ended_.find(path);
    return it == ended_.end() ? "-" : it->second;
  }
  std::string output(const std::string& path) const {
    const auto it = outputs_.find(path);
    return it == outputs_.end() ? "-" : it->second;
  }
  const std::map<std::string, std::string>& results() const { return ended_; }
  const std::map<std::string, std::string>& outputs() const { return outputs_; }

 private:
  bool next() {
    const auto deadline = engine_->next_deadline();
    const bool work_first = !due_.empty() && (!deadline || due_.begin()->first.first <= *deadline);
    if (work_first) {
      auto entry = due_.begin()->second;
      now_ = std::max(now_, due_.begin()->first.first);
      due_.erase(due_.begin());
      take({now_, AttemptEnded{entry.first, std::move(entry.second)}});
      return true;
    }
    if (!deadline) {
      return false;
    }
    now_ = std::max(now_, *deadline);
    take({now_, Tick{}});
    return true;
  }

  void take(Event event) {
    journal_.push_back(event);
    if (auto* ended = std::get_if<AttemptEnded>(&journal_.back().body)) {
      if (!ended->outcome.output_kept) {  // secure: the real journal does not hold it either
        ended->outcome.output.clear();
      }
    }
    Actions actions;
    const auto stepped = engine_->step(std::move(event), &actions);
    REQUIRE_MESSAGE(stepped.ok(), (stepped.ok() ? "" : stepped.error().message()));
    for (const Report& report : actions.reports) {
      note(report);
    }
    running_max_ = std::max(running_max_, engine_->progress().attempts_running);
    for (const StartAttempt& start : actions.start) {
      begin(start.attempt);
    }
    for (const StopAttempt& stop : actions.stop) {
      kill_worker(stop.attempt);
    }
    for (const uint64_t run : actions.evaluate_items) {
      auto items = engine_->evaluate_items(run);
      ItemsKnown known;
      known.run = run;
      if (items.ok()) {
        known.items = *std::move(items);
      } else {
        known.error = ActivityError{"items", items.error().message(), "UserError", ""};
      }
      take({now_, std::move(known)});
    }
  }

  void begin(uint64_t attempt) {
    auto call = engine_->evaluate_call(attempt);
    SimulatedWork work;
    if (call.ok()) {
      calls_.push_back(call->path + "#" + std::to_string(call->attempt) + " " + call->properties);
      work = worker_(*call);
      Outcome& outcome = work.outcome;
      outcome.retry_useless = outcome.retry_useless || retry_is_useless(outcome, *call->activity);
    } else {
      work.seconds = 0.0;
      work.outcome.kind = Outcome::Kind::not_started;
      work.outcome.error = {"InvalidTemplate", call.error().message(), "UserError", ""};
    }
    const auto at = now_ + base::Micros(static_cast<int64_t>(work.seconds * 1e6));
    due_.emplace(std::pair(at, order_++), std::pair(attempt, std::move(work.outcome)));
  }

  void note(const Report& report) {
    if (report.kind == Report::Kind::activity_started || report.kind == Report::Kind::items) {
      return;
    }
    std::string path = report.kind == Report::Kind::run ? "run" : report.path;
    if (report.kind == Report::Kind::item) {
      path += "[" + report.key + "]";
    }
    std::string text(status_name(report.status));
    if (report.error) {
      text += ": " + report.error->message;
    }
    ended_[path] = text;
    outputs_[path] = report.output;
  }

  std::shared_ptr<const Pipeline> pipeline_;
  Worker worker_;
  int slots_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  base::Micros now_{1'000'000};
  int64_t order_ = 0;
  int64_t running_max_ = 0;
  std::map<std::pair<base::Micros, int64_t>, std::pair<uint64_t, Outcome>> due_;
  std::vector<Event> journal_;
  std::vector<std::string> calls_;
  std::map<std::string, std::string> ended_;
  std::map<std::string, std::string> outputs_;
};

}  // namespace headrace::flow
