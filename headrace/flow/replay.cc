// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/checksum.h"
#include "headrace/flow/secret_outputs_internal.h"

namespace headrace::flow {

Result<std::shared_ptr<const Pipeline>> load_pipeline(const RunHeader& header) {
  HR_TRY(auto factory, load_factory_text(header.pipeline_path.string(), header.document),
         "reading the run's own copy of the pipeline");
  for (const Diagnostic& diagnostic : factory.diagnostics) {
    if (diagnostic.severity == Severity::error) {
      return Error{
          Errc::mismatch,
          "the run's own copy of the pipeline is not valid for this version of headrace: " +
              diagnostic_text(diagnostic)};
    }
  }
  return factory.find(header.pipeline_name);
}

Result<Json> read_secrets(const base::Path& run_folder) {
  const base::Path path = run_folder / "secrets.json";
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    return Json::object();
  }
  HR_TRY(const auto text, base::read_file(path, int64_t{256} << 20));
  HR_TRY(auto secrets, parse_json(text, path.string()));
  return secrets.is_object() ? std::move(secrets) : Json::object();
}

std::string document_key(std::string_view shown_text) {
  return fmt::format("{}{:016x}", kDocumentKey, base::xxh3_64(shown_text));
}

Result<Json> with_secrets(Json parameters, const base::Path& run_folder) {
  HR_TRY(const Json secrets, read_secrets(run_folder));
  for (const Json::Member& member : secrets.members()) {
    if (Json* value = parameters.find(member.first)) {
      *value = member.second;
    }
  }
  return parameters;
}

EngineOptions engine_options(const RunHeader& header, bool report_outputs) {
  EngineOptions options;
  options.run_id = header.run_id;
  options.started = header.started;
  options.parameters = header.parameters;
  options.shared_variables = header.shared_variables;
  options.budget = header.budget;
  options.circuit_breaker = header.circuit_breaker;
  options.live_items_max = header.live_items_max;
  options.report_outputs = report_outputs;
  options.vault = vault_secret;
  return options;
}

/// What is kept of the run's secrets, an empty object when it cannot be had and is not needed.
Result<Json> Replay::take_secrets() {
  secrets_problem_.clear();
  if (options_.run_folder.empty()) {
    return Json::object();
  }
  auto secrets = read_secrets(options_.run_folder);
  if (secrets.ok() && !(header_.has_secrets && secrets->members().empty())) {
    return secrets;
  }
  const base::Path path = options_.run_folder / "secrets.json";
  const Error error =
      secrets.ok() ? Error{Errc::corrupt, path.string() + " is absent or empty"} : secrets.error();
  secrets_problem_ = error.message();
  if (options_.secrets_needed) {
    return Error{Errc::corrupt,
                 fmt::format("{}; the run's secrets are there and nowhere else, and it cannot go "
                             "on without them: restore it from a copy, or start the pipeline anew",
                             error.message())};
  }
  return Json::object();
}

namespace {

/// With "***" for every text and number in it.
Json untold(Json value) {
  if (value.is_string() || value.is_number()) {
    return Json("***");
  }
  if (value.is_array()) {
    for (Json& one : value.items()) {
      one = untold(std::move(one));
    }
  } else if (value.is_object()) {
    for (Json::Member& member : value.members()) {
      member.second = untold(std::move(member.second));
    }
  }
  return value;
}

}  // namespace

Result<void> Replay::begin(std::string_view payload) {
  HR_TRY(const auto json, parse_json(payload, "journal"));
  HR_TRY(header_, RunHeader::from_json(json));
  HR_TRY(const Json secrets, take_secrets());
  header_.document = secrets.get_string(document_key(header_.document), header_.document);
  HR_TRY(pipeline_, load_pipeline(header_));
  EngineOptions settings = engine_options(header_, options_.report_outputs);
  if (engine_ != nullptr && header_.attempts_go_on) {
    settings.earlier = earlier();
  }
  if (engine_ != nullptr) {
    settings.pauses = engine_->pauses();
    settings.pauses.push_back({engine_->now(), base::Micros(0)});
  }
  for (Json::Member& member : settings.parameters.members()) {
    const Json* secret = secrets.find(member.first);
    const Parameter* parameter = pipeline_->find_parameter(member.first);
    const bool secure = parameter != nullptr && parameter->secure;
    if (secret != nullptr) {
      member.second = *secret;
    } else if (secure && !secrets_problem_.empty()) {
      member.second = Json("***");
    }
  }
  engine_ = std::make_unique<Engine>(pipeline_, std::move(settings));
  return {};
}

/// An output that is not in the journal, as far as the run's folder has it.
Result<bool> Replay::fill_in(Outcome* outcome) {
  if (outcome->output_kept) {
    return true;
  }
  if (outcome->output_key.empty() || options_.run_folder.empty()) {
    return false;
  }
  if (!secret_outputs_) {
    HR_TRY(secret_outputs_, read_secret_outputs(options_.run_folder));
  }
  const auto found = secret_outputs_->find(outcome->output_key);
  if (found == secret_outputs_->end()) {
    ++outputs_lost_;
    return false;
  }
  outcome->output = found->second;
  if (!secrets_problem_.empty()) {  // what is secret in it cannot be told from the rest
    outcome->output = untold(parse_json(found->second).value_or(Json())).dump();
    return false;
  }
  return true;
}

void Replay::note_earlier(const AttemptEnded& attempt, base::Micros now) {
  const auto call = engine_->describe(attempt.attempt);
  if (!call) {
    return;  // the engine will say what is wrong with it
  }
  EarlierWork& work = earlier_[earlier_key(call->path)];
  if (attempt.outcome.reused && work.attempts > 0) {
    return;
  }
  work = {std::max(work.attempts, call->attempt), call->started, now};
}

std::shared_ptr<const EarlierWorks> Replay::earlier() {
  for (const StartAttempt& running : engine_->running()) {
    if (const auto call = engine_->describe(running.attempt)) {
      int& attempts = earlier_[earlier_key(call->path)].attempts;
      attempts = std::max(attempts, call->attempt);
    }
  }
  return std::make_shared<const EarlierWorks>(earlier_);
}

std::string Replay::outputs_problem() const {
  return outputs_lost_ == 0
             ? ""
             : fmt::format(
                   "{} lacks secure outputs ({}) of attempts that had succeeded; what needs "
                   "them cannot be told, and a resume runs it again",
                   (options_.run_folder / "secrets.outputs").string(), outputs_lost_);
}

bool Replay::items_succeeded() const {
  return items_succeeded_ || (engine_ != nullptr && engine_->progress().items_succeeded > 0);
}

Result<void> Replay::on_record(uint8_t type, std::string_view payload) {
  const auto record = static_cast<RecordType>(type);
  if (record == RecordType::run || record == RecordType::restart) {
    if ((record == RecordType::run) != (engine_ == nullptr)) {
      return Error{Errc::corrupt,
                   "the journal's records are not in order: a run begins twice, or "
                   "before its first record"};
    }
    if (record == RecordType::restart) {
      items_succeeded_ = items_succeeded();
      ++restarts_;
      if (options_.on_restart) {
        options_.on_restart();
      }
    }
    return begin(payload);
  }
  if (engine_ == nullptr) {
    return Error{Errc::corrupt, "the journal does not begin with a run record"};
  }
  HR_TRY(auto event, decoder_.decode(record, payload));
  if (!event) {
    return {};
  }
  last_event_ = event->now;
  if (const auto* started = std::get_if<Started>(&event->body)) {
    slots_ = started->slots;
  } else if (const auto* resumed = std::get_if<Resumed>(&event->body)) {
    slots_ = resumed->slots;
    header_.circuit_breaker = header_.circuit_breaker && resumed->circuit_breaker;
    ++resumes_;
  } else if (auto* attempt = std::get_if<AttemptEnded>(&event->body); attempt != nullptr) {
    HR_TRY(const bool output_is_there, fill_in(&attempt->outcome));
    if (options_.keep_outcomes && attempt->outcome.kind == Outcome::Kind::succeeded &&
        output_is_there && !engine_->follows_failure(attempt->attempt)) {
      finished_.insert_or_assign({decoder_.attempt_path(), attempt->outcome.digest},
                                 attempt->outcome);
    }
  }
  if (const auto* attempt = std::get_if<AttemptEnded>(&event->body)) {
    note_earlier(*attempt, event->now);
  }
  actions_.clear();
  if (auto taken = engine_->step(*std::move(event), &actions_); !taken.ok()) {
    return outputs_lost_ == 0 ? std::move(taken).error()
                              : std::move(taken.error().add_note(outputs_problem()));
  }
  if (options_.on_report) {
    for (const Report& report : actions_.reports) {
      options_.on_report(report);
    }
  }
  return {};
}

}  // namespace headrace::flow
