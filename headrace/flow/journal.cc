// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/journal.h"

#include <fmt/format.h>

#include "headrace/flow/codec_internal.h"
#include "headrace/flow/run_list.h"

namespace headrace::flow {

namespace {

using base::Micros;

constexpr size_t kItemsPartBytes = size_t{1} << 20;

Error damaged(RecordType type) {
  return Error{Errc::corrupt, fmt::format("the journal holds a record of type {} that is not laid "
                                          "out as docs/formats/journal.md says",
                                          static_cast<int>(type))};
}

void put_error(FieldWriter* out, const ActivityError& error) {
  out->put_text(error.code)
      .put_text(error.message)
      .put_text(error.failure_type)
      .put_text(error.target);
}

ActivityError get_error(FieldReader* in) {
  ActivityError error;
  error.code = in->get_text();
  error.message = in->get_text();
  error.failure_type = in->get_text();
  error.target = in->get_text();
  return error;
}

enum AttemptFlag : uint8_t { kOutputKept = 1, kReused = 2, kRetryUseless = 4 };
enum ResumedFlag : uint8_t { kNoCircuitBreaker = 1 };

std::string encode_attempt(Micros now, const AttemptEnded& event, std::string_view path) {
  std::string out;
  FieldWriter writer(&out);
  const Outcome& outcome = event.outcome;
  writer.put(now.count()).put(event.attempt).put(static_cast<uint8_t>(outcome.kind));
  writer.put(static_cast<uint8_t>((outcome.output_kept ? kOutputKept : 0) |
                                  (outcome.reused ? kReused : 0) |
                                  (outcome.retry_useless ? kRetryUseless : 0)));
  writer.put(outcome.digest).put(outcome.cpu_seconds).put(outcome.peak_rss_bytes);
  writer.put(outcome.pid).put_text(path);
  put_error(&writer, outcome.error);
  writer.put_text(outcome.output_kept ? outcome.output : outcome.output_key);
  return out;
}

AttemptEnded decode_attempt(FieldReader* in, std::string* path) {
  AttemptEnded event;
  Outcome& outcome = event.outcome;
  event.attempt = in->get<uint64_t>();
  const auto kind = in->get<uint8_t>();
  outcome.kind = static_cast<Outcome::Kind>(std::min<uint8_t>(kind, 3));
  const auto flags = in->get<uint8_t>();
  outcome.output_kept = (flags & kOutputKept) != 0;
  outcome.reused = (flags & kReused) != 0;
  outcome.retry_useless = (flags & kRetryUseless) != 0;
  outcome.digest = in->get<uint64_t>();
  outcome.cpu_seconds = in->get<double>();
  outcome.peak_rss_bytes = in->get<int64_t>();
  outcome.pid = in->get<int64_t>();
  *path = in->get_text();
  outcome.error = get_error(in);
  (outcome.output_kept ? outcome.output : outcome.output_key) = in->get_text();
  return event;
}

/// What a clock may say: 1970 to 9999. Timers are added to it.
constexpr Micros kTimeMax{253'402'300'800'000'000};

bool is_possible(const Event& event) {
  if (event.now < Micros(0) || event.now >= kTimeMax) {
    return false;
  }
  const auto possible = [](int slots) { return slots >= 1 && slots <= kSlotsMax; };
  if (const auto* started = std::get_if<Started>(&event.body)) {
    return possible(started->slots);
  }
  const auto* resumed = std::get_if<Resumed>(&event.body);
  return resumed == nullptr || possible(resumed->slots);
}

Resumed decode_resumed(FieldReader* in) {
  Resumed event;
  event.slots = in->get<int32_t>();
  if (in->left() > 0) {  // no flags are none set
    event.circuit_breaker = (in->get<uint8_t>() & kNoCircuitBreaker) == 0;
  }
  return event;
}

/// Whoever opens a journal has the run's lock: only an engine that is just dying can hold this one.
base::AppendLogOptions log_options() {
  base::AppendLogOptions options;
  options.lock_wait = std::chrono::seconds(1);
  return options;
}

Result<std::string> text_of(const Json& json, std::string_view name) {
  const Json* value = json.find(name);
  if (value == nullptr || !value->is_string()) {
    return Error{Errc::corrupt, fmt::format("the journal's first record lacks '{}'", name)};
  }
  return value->string();
}

}  // namespace

base::Path journal_path(const base::Path& run_folder) { return run_folder / "journal"; }

Json RunHeader::to_json() const {
  Json json = Json::object({{"engine_version", engine_version},
                            {"run_id", run_id},
                            {"pipeline", pipeline_name},
                            {"pipeline_path", pipeline_path.string()},
                            {"document", document},
                            {"parameters", parameters},
                            {"started_us", started.count()},
                            {"shared_variables", shared_variables},
                            {"circuit_breaker", circuit_breaker},
                            {"live_items_max", live_items_max},
                            {"made_by", made_by}});
  if (budget.count) {
    json.set("failures_max", *budget.count);
  }
  if (budget.percent) {
    json.set("failures_percent", *budget.percent);
  }
  if (has_secrets) {
    json.set("secrets", true);
  }
  return json;
}

Result<RunHeader> RunHeader::from_json(const Json& json) {
  RunHeader header;
  const int64_t version = json.get_integer("engine_version", -1);
  if (version < kEngineVersionMin || version > kEngineVersion) {
    return Error{Errc::mismatch,
                 fmt::format("the run was made by engine version {}, this is {}; continue it with "
                             "the headrace that started it",
                             version, kEngineVersion)};
  }
  HR_TRY(header.run_id, text_of(json, "run_id"));
  HR_TRY(header.pipeline_name, text_of(json, "pipeline"));
  HR_TRY(header.pipeline_path, text_of(json, "pipeline_path"));
  HR_TRY(header.document, text_of(json, "document"));
  header.attempts_go_on = version >= 5;
  header.made_by = json.get_string("made_by");
  header.started = Micros(json.get_integer("started_us"));
  header.shared_variables = json.get_bool("shared_variables");
  header.circuit_breaker = json.get_bool("circuit_breaker");
  header.has_secrets = json.get_bool("secrets");
  header.live_items_max = json.get_integer("live_items_max", INT64_MAX);
  const Json* parameters = json.find("parameters");
  header.parameters =
      parameters != nullptr && parameters->is_object() ? *parameters : Json::object();
  if (const Json* count = json.find("failures_max"); count != nullptr && count->is_integer()) {
    header.budget.count = count->integer();
  }
  if (const Json* part = json.find("failures_percent"); part != nullptr && part->is_number()) {
    header.budget.percent = part->number();
  }
  return header;
}

std::string encode_event(const Event& event, std::string_view attempt_path, RecordType* type) {
  if (const auto* attempt = std::get_if<AttemptEnded>(&event.body)) {
    *type = RecordType::attempt;
    return encode_attempt(event.now, *attempt, attempt_path);
  }
  std::string out;
  FieldWriter writer(&out);
  writer.put(event.now.count());
  if (const auto* started = std::get_if<Started>(&event.body)) {
    *type = RecordType::started;
    writer.put(static_cast<int32_t>(started->slots));
  } else if (const auto* cancel = std::get_if<CancelRequested>(&event.body)) {
    *type = RecordType::cancel;
    writer.put_text(cancel->item);
  } else if (const auto* resumed = std::get_if<Resumed>(&event.body)) {
    *type = RecordType::resumed;
    writer.put(static_cast<int32_t>(resumed->slots));
    if (!resumed->circuit_breaker) {  // else a version 2 could go on too
      writer.put(static_cast<uint8_t>(kNoCircuitBreaker));
    }
  } else {
    HR_CHECK(std::holds_alternative<Tick>(event.body), "items have records of their own");
    *type = RecordType::tick;
  }
  return out;
}

void encode_items(Micros now, const ItemsKnown& known,
                  const std::function<void(RecordType type, std::string_view payload)>& emit) {
  std::string part;
  FieldWriter writer(&part);
  for (int64_t i = 0; i < known.items.size(); ++i) {
    if (part.empty()) {
      writer.put(known.run);
    }
    writer.put_text(known.items.key(i)).put_text(known.items.text(i));
    if (part.size() >= kItemsPartBytes) {
      emit(RecordType::items_part, part);
      part.clear();
    }
  }
  if (!part.empty()) {
    emit(RecordType::items_part, part);
  }
  std::string end;
  FieldWriter last(&end);
  last.put(now.count()).put(known.run).put(known.items.size());
  last.put(static_cast<uint8_t>(known.error ? 1 : 0));
  if (known.error) {
    put_error(&last, *known.error);
  }
  emit(RecordType::items, end);
}

Result<std::optional<Event>> EventDecoder::decode(RecordType type, std::string_view payload) {
  FieldReader in(payload);
  if (type == RecordType::items_part) {
    const auto run = in.get<uint64_t>();
    if (run != items_run_) {
      items_ = {};
      items_run_ = run;
    }
    while (in.good() && in.left() > 0) {
      const std::string_view key = in.get_text();
      const std::string_view text = in.get_text();
      items_.add(key, text);
    }
    return in.complete() ? Result<std::optional<Event>>(std::optional<Event>()) : damaged(type);
  }
  if (type != RecordType::items) {  // the engine died between parts; they come again
    items_ = {};
    items_run_ = 0;
  }
  Event event;
  event.now = Micros(in.get<int64_t>());
  switch (type) {
    case RecordType::started: event.body = Started{in.get<int32_t>()}; break;
    case RecordType::resumed: event.body = decode_resumed(&in); break;
    case RecordType::tick: event.body = Tick{}; break;
    case RecordType::cancel: event.body = CancelRequested{std::string(in.get_text())}; break;
    case RecordType::attempt: event.body = decode_attempt(&in, &attempt_path_); break;
    case RecordType::items: {
      ItemsKnown known;
      known.run = in.get<uint64_t>();
      const auto count = in.get<int64_t>();
      if (in.get<uint8_t>() != 0) {
        known.error = get_error(&in);
      }
      if (known.run == items_run_) {
        known.items = std::move(items_);
      }
      items_ = {};
      items_run_ = 0;
      if (known.items.size() != count) {
        return damaged(type);
      }
      event.body = std::move(known);
      break;
    }
    default: return damaged(type);
  }
  if (!in.complete() || !is_possible(event)) {
    return damaged(type);
  }
  return std::optional<Event>(std::move(event));
}

Result<void> Journal::check_absent(const base::Path& run_folder) {
  const base::Path path = journal_path(run_folder);
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    return {};
  }
  // A journal without a record, which a full disk leaves, is no run and may be begun again.
  return base::AppendLog::read(path, [&](uint8_t, std::string_view) -> Result<void> {
    return Error{Errc::already_exists,
                 path.string() +
                     " is there already: this folder belongs to another run; name a new "
                     "folder, or continue that run with: headrace flow resume " +
                     run_reference(run_folder)};
  });
}

Result<Journal> Journal::create(const base::Path& run_folder, const RunHeader& header) {
  HR_TRY(check_absent(run_folder));
  const base::Path path = journal_path(run_folder);
  HR_TRY(auto log,
         base::AppendLog::open(path, log_options(), [](uint8_t, std::string_view) -> Result<void> {
           return Error{Errc::already_exists, "another engine made this run a moment ago"};
         }));
  Journal journal(std::move(log));
  HR_TRY(journal.append_record(RecordType::run, header.to_json().dump_exact()));
  HR_TRY(journal.wait_committed());  // told here, "the disk is full" means that nothing has begun
  return journal;
}

Result<Journal> Journal::open(
    const base::Path& run_folder,
    const std::function<Result<void>(uint8_t type, std::string_view payload)>& on_record) {
  const base::Path path = journal_path(run_folder);
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    return Error{Errc::not_found, run_folder.string() + " holds no run: it has no journal"};
  }
  HR_TRY(auto log, base::AppendLog::open(path, log_options(), on_record));
  return Journal(std::move(log));
}

Result<void> Journal::append_record(RecordType type, std::string_view payload) {
  HR_TRY(last_, log_.append(static_cast<uint8_t>(type), payload));
  return {};
}

Result<void> Journal::append_restart(const RunHeader& header) {
  return append_record(RecordType::restart, header.to_json().dump_exact());
}

Result<void> Journal::append(const Event& event, std::string_view attempt_path) {
  if (const auto* items = std::get_if<ItemsKnown>(&event.body)) {
    Result<void> result;
    encode_items(event.now, *items, [&](RecordType type, std::string_view payload) {
      if (result.ok()) {
        result = append_record(type, payload);
      }
    });
    return result;
  }
  RecordType type = RecordType::tick;
  const std::string payload = encode_event(event, attempt_path, &type);
  return append_record(type, payload);
}

}  // namespace headrace::flow
