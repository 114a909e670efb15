// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/run_list.h"

#include <algorithm>
#include <utility>

#include "headrace/base/environment.h"
#include "headrace/flow/replay.h"
#include "headrace/flow/run_folder_internal.h"

namespace headrace::flow {

namespace {

using base::Micros;

/// What an engine leaves behind it.
constexpr RunStanding kKept[] = {RunStanding::succeeded, RunStanding::failed,
                                 RunStanding::cancelled, RunStanding::stopped};

RunStanding standing_of(Status status) {
  switch (status) {
    case Status::succeeded: return RunStanding::succeeded;
    case Status::failed: return RunStanding::failed;
    case Status::cancelled: return RunStanding::cancelled;
    default: return RunStanding::stopped;
  }
}

base::Path summary_path(const base::Path& run_folder) { return run_folder / "summary.json"; }

int64_t journal_bytes(const base::Path& run_folder) {
  std::error_code code;
  const auto size = std::filesystem::file_size(journal_path(run_folder), code);
  return code ? -1 : static_cast<int64_t>(size);
}

void count(const EngineProgress& progress, RunSummary* summary) {
  summary->counted = true;
  summary->items_total = progress.items_total;
  summary->items_ended = progress.items_ended;
  summary->items_failed = progress.items_failed - progress.items_cancelled;
  summary->items_cancelled = progress.items_cancelled;
  summary->items_skipped = progress.items_skipped;
}

Micros idle_of(const Engine& engine) {
  return paused_within(engine.pauses(), Micros(0), Micros::max());
}

/// False: there is none, or it is of another state of the journal.
bool read_kept(const base::Path& run_folder, RunSummary* summary) {
  const auto text = base::read_file(summary_path(run_folder), int64_t{1} << 20);
  if (!text.ok()) {
    return false;
  }
  const auto kept = parse_json(*text, "summary.json");
  if (!kept.ok() || !kept->is_object() ||
      kept->get_integer("journal_bytes", -1) != journal_bytes(run_folder)) {
    return false;
  }
  if (kept->find("idle_us") == nullptr) {
    return false;  // of an older headrace, which did not tell cancelled items from failed ones
  }
  const std::string state = kept->get_string("state");
  const auto* const standing = std::ranges::find(kKept, state, standing_name);
  if (standing == std::end(kKept)) {
    return false;  // of a newer headrace, or damaged
  }
  summary->standing = *standing;
  summary->run_id = kept->get_string("run_id");
  summary->pipeline = kept->get_string("pipeline");
  summary->started = Micros(kept->get_integer("started_us", 0));
  summary->last_event = Micros(kept->get_integer("last_event_us", 0));
  summary->counted = true;
  summary->items_total = kept->get_integer("items_total", 0);
  summary->items_ended = kept->get_integer("items_ended", 0);
  summary->items_failed = kept->get_integer("items_failed", 0);
  summary->items_cancelled = kept->get_integer("items_cancelled", 0);
  summary->items_skipped = kept->get_integer("items_skipped", 0);
  summary->idle = Micros(kept->get_integer("idle_us", 0));
  return true;
}

void take_header(const RunHeader& header, RunSummary* summary) {
  summary->run_id = header.run_id;
  summary->pipeline = header.pipeline_name;
  summary->started = header.started;
  summary->last_event = std::max(header.started, summary->last_event);
}

Error no_record(const base::Path& run_folder) {
  return Error{Errc::not_found,
               journal_path(run_folder).string() + " holds no record: the run was not started"};
}

/// The first record alone: what the run is, not how far.
Result<void> read_header(const base::Path& run_folder, RunSummary* summary) {
  RunHeader header;
  bool found = false;
  const auto read = base::AppendLog::read(
      journal_path(run_folder), [&](uint8_t, std::string_view payload) -> Result<void> {
        HR_TRY(const auto json, parse_json(payload, "journal"));
        HR_TRY(header, RunHeader::from_json(json));
        found = true;
        return Error{Errc::cancelled, "the rest is not asked for"};
      });
  if (!found) {
    return read.ok() ? no_record(run_folder) : read;
  }
  take_header(header, summary);
  summary->standing = RunStanding::unknown;
  return {};
}

Result<void> replay(const base::Path& run_folder, RunSummary* summary) {
  ReplayOptions options;
  options.run_folder = run_folder;
  Replay replay(std::move(options));
  const Result<void> read = base::AppendLog::read(
      journal_path(run_folder),
      [&](uint8_t type, std::string_view payload) { return replay.on_record(type, payload); });
  if (!read.ok()) {
    return replay.secrets_problem().empty() ? read : read_header(run_folder, summary);
  }
  if (replay.empty()) {
    return no_record(run_folder);
  }
  summary->last_event = replay.last_event();
  take_header(replay.header(), summary);
  summary->standing = standing_of(replay.engine().status());
  count(replay.engine().progress(), summary);
  summary->idle = idle_of(replay.engine());
  return {};
}

bool plain_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./+:,@%=";
  return !text.empty() && text.find_first_not_of(kPlain) == text.npos;
}

/// 'it'\''s'
std::string shell_word(const std::string& text) {
  if (plain_word(text)) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace

std::string_view standing_name(RunStanding standing) {
  switch (standing) {
    case RunStanding::running: return "running";
    case RunStanding::succeeded: return "succeeded";
    case RunStanding::failed: return "failed";
    case RunStanding::cancelled: return "cancelled";
    case RunStanding::stopped: return "stopped";
    case RunStanding::unknown: return "unknown";
    case RunStanding::unreadable: return "unreadable";
  }
  return "unreadable";
}

Result<void> keep_summary(const base::Path& run_folder, const RunHeader& header,
                          const Engine& engine, Micros last_event) {
  RunSummary counted;
  count(engine.progress(), &counted);
  const Json kept = Json::object({{"journal_bytes", journal_bytes(run_folder)},
                                  {"run_id", header.run_id},
                                  {"pipeline", header.pipeline_name},
                                  {"state", standing_name(standing_of(engine.status()))},
                                  {"started_us", header.started.count()},
                                  {"last_event_us", last_event.count()},
                                  {"items_total", counted.items_total},
                                  {"items_ended", counted.items_ended},
                                  {"items_failed", counted.items_failed},
                                  {"items_cancelled", counted.items_cancelled},
                                  {"items_skipped", counted.items_skipped},
                                  {"idle_us", idle_of(engine).count()}});
  return base::replace_file(summary_path(run_folder), kept.dump() + "\n");
}

std::vector<base::Path> run_folders(const base::Path& runs) {
  std::vector<std::pair<std::filesystem::file_time_type, base::Path>> found;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(runs, code)) {
    const auto time = std::filesystem::last_write_time(journal_path(entry.path()), code);
    if (!code) {
      found.emplace_back(time, entry.path());
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<base::Path> paths;
  for (auto& [time, path] : found) {
    paths.push_back(std::move(path));
  }
  return paths;
}

RunSummary summarise_run(const base::Path& run_folder, int64_t replay_bytes_max) {
  RunSummary summary;
  summary.folder = run_folder;
  // Before the journal: a run that ends meanwhile is running here, not stopped.
  const bool driven = lock_holder(run_folder).has_value();
  if (!read_kept(run_folder, &summary)) {
    const bool whole = journal_bytes(run_folder) <= replay_bytes_max;
    const Result<void> read =
        whole ? replay(run_folder, &summary) : read_header(run_folder, &summary);
    if (!read.ok()) {
      summary.standing = RunStanding::unreadable;
      summary.problem = read.error().message();
      return summary;
    }
  }
  if (driven &&
      (summary.standing == RunStanding::stopped || summary.standing == RunStanding::unknown)) {
    summary.standing = RunStanding::running;
  }
  return summary;
}

std::string run_reference(const base::Path& run_folder) {
  std::error_code code;
  const base::Path given = std::filesystem::absolute(run_folder, code);
  base::Path absolute = given.lexically_normal();
  if (std::filesystem::exists(given, code) && !std::filesystem::equivalent(given, absolute, code)) {
    absolute = given;  // a link before ".." leads elsewhere
  }
  const base::Path folder = absolute.has_filename() ? absolute : absolute.parent_path();
  const std::string name = folder.filename().string();
  // Not "latest" or "-x", which commands take for something else.
  const bool usual = name != "latest" && !name.starts_with('-') &&
                     !base::environment("HEADRACE_RUNS") &&
                     std::filesystem::equivalent(folder, runs_folder() / name, code) && !code;
  return shell_word(usual ? name : folder.string());
}

}  // namespace headrace::flow
