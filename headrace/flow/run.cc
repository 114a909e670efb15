// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "headrace/base/clock.h"
#include "headrace/base/file_lock.h"
#include "headrace/base/log.h"
#include "headrace/base/pool.h"
#include "headrace/base/random.h"
#include "headrace/flow/custom.h"
#include "headrace/flow/driver_internal.h"
#include "headrace/flow/run_folder_internal.h"
#include "headrace/flow/run_list.h"

namespace headrace::flow {

namespace {

Result<RunOptions> with_defaults(const RunOptions& options) {
  if (options.slots < 0 || options.slots > kSlotsMax) {
    return Error{Errc::invalid_argument,
                 fmt::format("slots {}: expected 1 to {}, or 0 for the cores of this machine",
                             options.slots, kSlotsMax)};
  }
  RunOptions filled = options;
  std::error_code code;
  filled.folder = std::filesystem::absolute(options.folder, code);
  if (filled.slots <= 0) {
    filled.slots = base::usable_cores();
  }
  return filled;
}

/// Parameters with secrets, and the document when it holds any, are in a file of their own, which
/// only its owner reads, and in no journal. Documents of the run's earlier beginnings stay there.
Result<void> split_secrets(const Pipeline& pipeline, const base::Path& run_folder,
                           RunHeader* header) {
  Json secrets = Json::object();
  HR_TRY(const Json before, read_secrets(run_folder));
  for (const Json::Member& member : before.members()) {
    if (member.first.starts_with(kDocumentKey)) {
      secrets.set(member.first, member.second);
    }
  }
  if (!pipeline.shown_text.empty()) {
    secrets.set(document_key(pipeline.shown_text), header->document);
    header->document = pipeline.shown_text;
  }
  for (const Parameter& parameter : pipeline.parameters) {
    Json* value = header->parameters.find(parameter.name);
    if (parameter.secure) {
      secrets.set(parameter.name, *value);
      *value = Json();
    } else if (has_marked_secret(*value)) {
      secrets.set(parameter.name, *value);
      *value = without_marked_secrets(*value);
    }
  }
  header->has_secrets = !secrets.members().empty();
  if (secrets.members().empty()) {
    return {};
  }
  return base::replace_file(run_folder / "secrets.json", secrets.dump_exact() + "\n", 0600);
}

Error resumable(Error error, const base::Path& run_folder) {
  if (error.code() == Errc::out_of_space) {
    error.add_note("nothing that had ended is lost; continue then with: headrace flow resume " +
                   run_reference(run_folder));
  }
  return error;
}

Result<RunResult> drive(Journal journal, std::unique_ptr<Engine> engine, const RunHeader& header,
                        const RunOptions& options, Event first, FinishedWork finished) {
  HR_TRY(auto driver, Driver::make(std::move(journal), std::move(engine), header, options));
  driver->reuse(std::move(finished));
  auto result = driver->run(std::move(first));
  if (!result.ok()) {
    return resumable(std::move(result).error(), options.folder);
  }
  return result;
}

/// Attempts whose engine died: what their commands left running ends before anything runs again,
/// and what they printed belongs into their logs.
Result<void> take_over(Engine& engine, const std::string& run_id, const base::Path& run_folder) {
  std::vector<CutShort> left;
  for (const StartAttempt& running : engine.running()) {
    if (const auto call = engine.describe(running.attempt)) {
      left.push_back({call->activity, call->item_key, call->attempt});
    }
  }
  HR_TRY(const int64_t ended,
         kill_left_commands(run_id, run_folder, std::move(left), std::chrono::seconds(5)));
  if (ended > 0) {
    base::log_info(fmt::format("flow: ended {} process{} that the engine before had left running",
                               ended, ended == 1 ? "" : "es"));
  }
  for (const StartAttempt& running : engine.running()) {
    const auto call = engine.describe(running.attempt);
    const auto output = base::open_file(worker_output_path(run_folder, running.slot), O_RDWR);
    if (call && output.ok()) {
      // Evaluated for its secrets alone; one that cannot be had was not given to the command.
      auto spec = engine.evaluate_call(running.attempt);
      LogPrivacy privacy{call->activity->policy.secure_output, engine.secrets()};
      privacy.secrets.add(spec.ok() ? call_secrets(*spec, spec->properties) : Secrets{});
      const auto moved = move_output_to_log(
          output->get(), run_folder / log_path(call->item_key, call->activity->name, call->attempt),
          privacy);
      if (!moved.ok()) {
        base::log_warning("flow: " + moved.error().message());
      }
    }
  }
  return {};
}

struct Changed {
  bool changed = false;
  std::string text;
};

/// Does the pipeline's file say something else than the run's own copy?
Result<Changed> compare_document(const RunHeader& header, const ResumeRequest& request) {
  Changed result;
  auto text = base::read_file(header.pipeline_path);
  if (!text.ok()) {
    base::log_warning(fmt::format("flow: {} cannot be read; going on with the run's own copy",
                                  header.pipeline_path.string()));
    return result;
  }
  result.changed = *text != header.document;
  result.text = *std::move(text);
  if (result.changed && !request.accept_changes) {
    return Error{
        Errc::mismatch,
        fmt::format("{} has changed since run {} was started; restore it, or continue with "
                    "the new version by --accept-changes (items whose inputs stay the "
                    "same are not run again)",
                    header.pipeline_path.string(), header.run_id)};
  }
  return result;
}

Result<RunResult> restart(Journal journal, Replay* replay, const Changed& document,
                          bool circuit_breaker, const RunOptions& options) {
  RunHeader header = replay->header();
  // What succeeded before comes back only as its turn comes: until then failures seem to be all.
  header.circuit_breaker = header.circuit_breaker && circuit_breaker && !replay->items_succeeded();
  header.live_items_max = kLiveItemsMax;  // of a run that had none, too: it begins anew
  header.attempts_go_on = true;           // as before
  if (document.changed) {
    header.document = document.text;
  }
  HR_TRY(const auto pipeline, load_pipeline(header));
  HR_TRY(const auto known, with_secrets(header.parameters, options.folder));
  Json arguments = Json::object();
  for (const Parameter& parameter : pipeline->parameters) {
    if (const Json* value = known.find(parameter.name)) {
      arguments.set(parameter.name, *value);
    }
  }
  HR_TRY(header.parameters, bind_parameters(*pipeline, arguments));
  EngineOptions engine_settings = engine_options(header, false);
  engine_settings.earlier = replay->earlier();
  engine_settings.pauses = replay->engine().pauses();
  engine_settings.pauses.push_back({replay->engine().now(), base::Micros(0)});
  HR_TRY(split_secrets(*pipeline, options.folder, &header));
  HR_TRY(journal.append_restart(header));
  auto engine = std::make_unique<Engine>(pipeline, std::move(engine_settings));
  return drive(std::move(journal), std::move(engine), header, options,
               {base::Micros(0), Started{options.slots}}, replay->take_finished());
}

}  // namespace

Result<void> check_folder(const base::Path& run_folder, const base::Path& document) {
  HR_TRY(Journal::check_absent(run_folder));
  return check_unused(run_folder, document);
}

std::string new_run_id() {
  uint64_t words[2] = {};
  base::random_bytes(std::as_writable_bytes(std::span(words)));
  words[0] = (words[0] & ~uint64_t{0xF000}) | 0x4000U;
  words[1] = (words[1] & ~(uint64_t{3} << 62U)) | (uint64_t{2} << 62U);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", words[0] >> 32U,
                     (words[0] >> 16U) & 0xFFFFU, words[0] & 0xFFFFU, words[1] >> 48U,
                     words[1] & 0xFFFFFFFFFFFFU);
}

Result<RunResult> start_run(const RunRequest& request, const RunOptions& given) {
  HR_TRY(const RunOptions options, with_defaults(given));
  RunHeader header;
  header.run_id = request.run_id.empty() ? new_run_id() : request.run_id;
  std::error_code code;
  header.pipeline_path = std::filesystem::absolute(request.pipeline_path, code);
  header.pipeline_name = request.pipeline->name;
  header.document = request.pipeline->source->text();
  header.started = base::system_clock().wall();
  header.shared_variables = request.shared_variables;
  header.budget = request.budget;
  header.circuit_breaker = request.circuit_breaker;
  header.made_by = base::holder_description("headrace flow run");
  HR_TRY(header.parameters, bind_parameters(*request.pipeline, request.arguments));
  HR_TRY(check_unused(options.folder, header.pipeline_path));
  HR_TRY(base::make_folders(options.folder));
  HR_TRY(const auto lock, lock_run(options.folder, "headrace flow run"));
  HR_TRY(Journal::check_absent(options.folder));  // before anything of another run is touched
  drop_cancel_requests(options.folder);           // they were for an engine that is gone
  EngineOptions engine_settings = engine_options(header, false);
  HR_TRY(split_secrets(*request.pipeline, options.folder, &header));
  HR_TRY(auto journal, Journal::create(options.folder, header));
  auto engine = std::make_unique<Engine>(request.pipeline, std::move(engine_settings));
  return drive(std::move(journal), std::move(engine), header, options,
               {base::Micros(0), Started{options.slots}}, {});
}

Result<RunResult> resume_run(const ResumeRequest& request, const RunOptions& given) {
  HR_TRY(const RunOptions options, with_defaults(given));
  std::error_code code;
  if (!std::filesystem::exists(journal_path(options.folder), code)) {
    return Error{Errc::not_found, options.folder.string() + " holds no run: it has no journal"};
  }
  HR_TRY(const auto lock, lock_run(options.folder, "headrace flow resume"));
  drop_cancel_requests(options.folder);
  ReplayOptions replay_options;
  replay_options.keep_outcomes = true;  // a restart may have stopped before it took them all over
  replay_options.run_folder = options.folder;
  replay_options.secrets_needed = true;
  Replay replay(std::move(replay_options));
  HR_TRY(auto journal, Journal::open(options.folder, [&](uint8_t type, std::string_view payload) {
           return replay.on_record(type, payload);
         }));
  if (replay.empty()) {
    return Error{Errc::not_found, options.folder.string() +
                                      " holds an empty journal: the run never began; start it "
                                      "again with headrace flow run"};
  }
  if (const std::string problem = replay.outputs_problem(); !problem.empty()) {
    base::log_warning("flow: " + problem);
  }
  HR_TRY(const Changed document, compare_document(replay.header(), request));
  Engine& engine = replay.engine();
  // A pipeline may succeed in spite of failed items: a later activity waited for Completed.
  const bool all_well = engine.status() == Status::succeeded && engine.progress().items_failed == 0;
  const bool again = request.retry_failed && !all_well;
  const bool unbegun = engine.status() == Status::queued;  // it takes no flag on its way
  if (again || document.changed || (unbegun && !request.circuit_breaker)) {
    HR_TRY(take_over(engine, replay.header().run_id, options.folder));
    return restart(std::move(journal), &replay, document, request.circuit_breaker, options);
  }
  if (engine.ended()) {
    RunResult result;
    result.run_id = replay.header().run_id;
    result.status = engine.status();
    result.error = engine.error();
    result.return_value = engine.told(engine.return_value());
    result.progress = engine.progress();
    return result;
  }
  const RunHeader header = replay.header();
  HR_TRY(take_over(engine, header.run_id, options.folder));
  const Event first = unbegun
                          ? Event{base::Micros(0), Started{options.slots}}
                          : Event{base::Micros(0), Resumed{options.slots, request.circuit_breaker}};
  FinishedWork finished = replay.restarts() > 0 ? replay.take_finished() : FinishedWork{};
  return drive(std::move(journal), replay.take_engine(), header, options, first,
               std::move(finished));
}

}  // namespace headrace::flow
