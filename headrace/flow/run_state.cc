// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "headrace/base/environment.h"
#include "headrace/base/log.h"
#include "headrace/flow/replay.h"
#include "headrace/flow/run_folder_internal.h"
#include "headrace/flow/run_list.h"

namespace headrace::flow {

namespace {

using base::Micros;

/// Builds the activities of a RunState out of an engine's reports.
class Collector {
 public:
  /// With a key, other items are passed over.
  explicit Collector(std::optional<std::string> key) : key_(std::move(key)) {}

  void clear() {
    activities_.clear();
    by_path_.clear();
  }

  /// `engine` must outlive the call.
  void add(const Report& report, const Engine& engine) {
    engine_ = &engine;
    switch (report.kind) {
      case Report::Kind::activity_started:
      case Report::Kind::activity: add_activity(report); return;
      case Report::Kind::items: {
        if (key_) {
          return;
        }
        auto& items = activity(report).items;
        items.resize(static_cast<size_t>(report.index));
        for (size_t i = 0; i < items.size(); ++i) {
          items[i].index = static_cast<int64_t>(i);
        }
        return;
      }
      case Report::Kind::item: add_item(report); return;
      case Report::Kind::run: return;
    }
  }

  void add_open(const OpenItem& open) {
    const auto it = by_path_.find(open.path);
    if (it == by_path_.end() || passed_over(open.key)) {
      return;
    }
    ItemState& item = slot(&activities_[it->second].items, open.index);
    item.key = open.key;
    item.status = open.status;
    if (open.started != Micros(0)) {
      item.started = open.started;
    }
  }

  std::vector<ActivityState> take() { return std::move(activities_); }

 private:
  ActivityState& activity(const Report& report) {
    const auto [it, fresh] = by_path_.emplace(report.path, activities_.size());
    if (fresh) {
      ActivityState& made = activities_.emplace_back();
      made.path = report.path;
      made.name = report.activity->name;
      made.type = report.activity->type;
    }
    return activities_[it->second];
  }

  Json output_of(const Report& report) const {
    return report.output.empty()
               ? Json()
               : engine_->told(parse_json(report.output, "output").value_or(Json()));
  }

  void add_activity(const Report& report) {
    ActivityState& state = activity(report);
    state.status = report.status;
    state.attempts = report.attempts;
    if (report.status != Status::skipped) {
      state.started = report.started;
    }
    if (is_final(report.status)) {
      state.ended = report.ended;
    }
    state.output = output_of(report);
    state.error = report.error;
  }

  bool passed_over(std::string_view key) const { return key_ && *key_ != key; }

  /// The place of an item: its index, or with a key at the end.
  ItemState& slot(std::vector<ItemState>* items, int64_t index) const {
    if (!key_) {
      return (*items)[static_cast<size_t>(index)];
    }
    const auto found = std::ranges::find(*items, index, &ItemState::index);
    if (found != items->end()) {
      return *found;
    }
    items->emplace_back().index = index;
    return items->back();
  }

  void add_item(const Report& report) {
    if (passed_over(report.key)) {
      return;
    }
    ItemState& item = slot(&activity(report).items, report.index);
    item.key = report.key;
    item.status = report.status;
    item.attempts = report.attempts;
    if (report.started != Micros(0)) {
      item.started = report.started;
      item.ended = report.ended;
    }
    item.cpu_seconds = report.cpu_seconds;
    item.peak_rss_bytes = report.peak_rss_bytes;
    item.outputs = report.output.empty() ? Json::object() : output_of(report);
    item.error = report.error;
    item.log = report.log;
  }

  const std::optional<std::string> key_;
  const Engine* engine_ = nullptr;
  std::vector<ActivityState> activities_;
  std::map<std::string, size_t, std::less<>> by_path_;
};

Json masked_parameters(const Pipeline& pipeline, const Json& parameters) {
  Json shown = parameters;
  for (const Parameter& parameter : pipeline.parameters) {
    if (parameter.secure) {
      shown.set(parameter.name, "***");
    }
  }
  return shown;
}

}  // namespace

base::Micros paused_within(const Pauses& pauses, base::Micros from, base::Micros to) {
  Micros sum{0};
  for (const Pause& pause : pauses) {
    sum += std::max(Micros(0), std::min(pause.end, to) - std::max(pause.begin, from));
  }
  return sum;
}

base::Path runs_folder() { return base::environment("HEADRACE_RUNS").value_or("runs"); }

Result<base::Path> find_run(std::string_view run, const base::Path& runs) {
  std::error_code code;
  if (!run.empty() && std::filesystem::exists(journal_path(base::Path(run)), code)) {
    return base::Path(run);
  }
  const std::vector<base::Path> all = run_folders(runs);
  if (run == "latest" && !all.empty()) {
    return all.front();
  }
  std::vector<base::Path> matching;
  std::string names;
  for (const base::Path& path : all) {
    const std::string name = path.filename().string();
    if (name == run) {
      return path;
    }
    if (!run.empty() && name.starts_with(run)) {
      matching.push_back(path);
    }
    if (&path - all.data() < 10) {
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  if (matching.size() == 1) {
    return matching.front();
  }
  if (matching.size() > 1) {
    return Error{Errc::invalid_argument, fmt::format("{} runs in {} begin with '{}': {}",
                                                     matching.size(), runs.string(), run, names)};
  }
  return Error{
      Errc::not_found,
      fmt::format("there is no run '{}' in {}; {}", run, runs.string(),
                  names.empty() ? std::string("there are none (HEADRACE_RUNS names another "
                                              "folder)")
                                : "there are: " + names)};
}

namespace {

Result<RunState> load(const base::Path& run_folder, std::optional<std::string> key) {
  ReplayOptions options;
  options.report_outputs = !key;
  Collector collector(std::move(key));
  options.on_restart = [&] { collector.clear(); };
  options.run_folder = run_folder;
  Replay* replaying = nullptr;
  options.on_report = [&](const Report& report) { collector.add(report, replaying->engine()); };
  Replay replay(std::move(options));
  replaying = &replay;
  const base::Path path = journal_path(run_folder);
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    return Error{Errc::not_found, run_folder.string() + " holds no run: it has no journal"};
  }
  const Result<void> read = base::AppendLog::read(
      path,
      [&](uint8_t type, std::string_view payload) { return replay.on_record(type, payload); });
  if (!read.ok()) {
    Error error = read.error();
    if (!replay.secrets_problem().empty()) {
      error.add_note("what it decided depends on its secrets, and " + replay.secrets_problem());
    }
    return error;
  }
  if (replay.empty()) {
    return Error{Errc::not_found, path.string() + " holds no record: the run was not started"};
  }
  if (!replay.secrets_problem().empty()) {
    base::log_warning("flow: " + replay.secrets_problem() +
                      "; what depends on the run's secrets is shown as ***, and it cannot be "
                      "resumed until they are back");
  }
  const Engine& engine = replay.engine();
  RunState state;
  state.run_id = replay.header().run_id;
  state.pipeline = replay.header().pipeline_name;
  state.pipeline_path = replay.header().pipeline_path;
  state.parameters = masked_parameters(*replay.pipeline(), replay.header().parameters);
  state.variables = engine.told(engine.variables());
  state.return_value = engine.told(engine.return_value());
  state.status = engine.status();
  state.error = engine.error();
  state.started = replay.header().started;
  state.last_event = std::max(state.started, replay.last_event());
  if (engine.ended()) {
    state.ended = state.last_event;
  }
  state.slots = replay.slots();
  state.pauses = engine.pauses();
  state.resumes = replay.resumes() + replay.restarts();
  engine.visit_open_items([&](const OpenItem& item) { collector.add_open(item); });
  state.activities = collector.take();
  state.driven_by = lock_holder(run_folder);
  return state;
}

}  // namespace

Result<RunState> load_run(const base::Path& run_folder) { return load(run_folder, std::nullopt); }

Result<RunState> load_run_item(const base::Path& run_folder, std::string_view key) {
  return load(run_folder, std::string(key));
}

}  // namespace headrace::flow
