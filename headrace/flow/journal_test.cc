// SPDX-License-Identifier: Apache-2.0
#include "headrace/flow/journal.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/flow/replay.h"

namespace headrace::flow {

namespace {

struct Record {
  RecordType type;
  std::string payload;
};

std::vector<Record> encoded(const Event& event, std::string_view path = "") {
  std::vector<Record> records;
  if (const auto* items = std::get_if<ItemsKnown>(&event.body)) {
    encode_items(event.now, *items, [&](RecordType type, std::string_view payload) {
      records.push_back({type, std::string(payload)});
    });
  } else {
    RecordType type = RecordType::tick;
    std::string payload = encode_event(event, path, &type);
    records.push_back({type, std::move(payload)});
  }
  return records;
}

/// The event that comes out when all records are read.
Event through(const Event& event, std::string_view path = "") {
  EventDecoder decoder;
  std::optional<Event> result;
  for (const Record& record : encoded(event, path)) {
    auto decoded = decoder.decode(record.type, record.payload);
    REQUIRE_MESSAGE(decoded.ok(), (decoded.ok() ? "" : decoded.error().message()));
    result = *std::move(decoded);
  }
  REQUIRE(result.has_value());
  CHECK(decoder.attempt_path() == path);
  return *std::move(result);
}

AttemptEnded example_attempt() {
  AttemptEnded attempt;
  attempt.attempt = 3;
  attempt.outcome.output = "{}";
  attempt.outcome.digest = 123456789;
  attempt.outcome.cpu_seconds = 0.5;
  attempt.outcome.peak_rss_bytes = 1 << 20;
  attempt.outcome.pid = 42;
  attempt.outcome.error.failure_type = "";
  return attempt;
}

}  // namespace

TEST_CASE("the record of an attempt is laid out as docs/formats/journal.md shows") {
  constexpr unsigned char kBytes[] = {
      0x00, 0x40, 0x1e, 0x18, 0x24, 0x0a, 0x06, 0x00,  // now
      3,    0,    0,    0,    0,    0,    0,    0,     // attempt
      0,    1,                                         // succeeded, output kept
      0x15, 0xcd, 0x5b, 0x07, 0,    0,    0,    0,     // digest
      0,    0,    0,    0,    0,    0,    0xe0, 0x3f,  // 0.5 s
      0,    0,    0x10, 0,    0,    0,    0,    0,     // 1 MiB
      0x2a, 0,    0,    0,    0,    0,    0,    0,     // pid
      0x0a, 0,    0,    0,    'e',  'a',  'c',  'h',  '[', 'a', ']', '/', 'd', 'o',        // path
      0,    0,    0,    0,    0,    0,    0,    0,    0,   0,   0,   0,   0,   0,   0, 0,  // error
      2,    0,    0,    0,    '{',  '}'};                                                  // output
  const Event event{base::Micros(1'700'000'000'000'000), example_attempt()};

  const auto records = encoded(event, "each[a]/do");

  REQUIRE(records.size() == 1);
  CHECK(static_cast<int>(records[0].type) == 6);
  CHECK(records[0].payload == std::string(reinterpret_cast<const char*>(kBytes), sizeof kBytes));
}

TEST_CASE("every event comes back from its record as it was") {
  const base::Micros now(123456789);
  AttemptEnded failed = example_attempt();
  failed.outcome.kind = Outcome::Kind::lost;
  failed.outcome.error = {"WorkerLost", "SIGSEGV", "SystemError", "fit"};
  failed.outcome.reused = true;
  const Event attempt = through({now, failed}, "a/b");
  const auto& outcome = std::get<AttemptEnded>(attempt.body).outcome;
  CHECK(attempt.now == now);
  CHECK(outcome.kind == Outcome::Kind::lost);
  CHECK(outcome.error.message == "SIGSEGV");
  CHECK(outcome.error.target == "fit");
  CHECK(outcome.reused);
  CHECK(outcome.cpu_seconds == 0.5);

  CHECK(std::get<Started>(through({now, Started{7}}).body).slots == 7);
  CHECK(std::get<Resumed>(through({now, Resumed{3}}).body).slots == 3);
  CHECK(std::get<Resumed>(through({now, Resumed{3}}).body).circuit_breaker);
  CHECK(!std::get<Resumed>(through({now, Resumed{3, false}}).body).circuit_breaker);
  CHECK(std::holds_alternative<Tick>(through({now, Tick{}}).body));
  CHECK(std::get<CancelRequested>(through({now, CancelRequested{"s17"}}).body).item == "s17");

  ItemsKnown none;
  none.run = 5;
  none.error = ActivityError{"2105", "no array", "UserError", "each"};
  CHECK(std::get<ItemsKnown>(through({now, none}).body).error->code == "2105");
}

TEST_CASE("many items are written in parts and come back whole") {
  ItemsKnown known;
  known.run = 9;
  const std::string text(1000, 'x');
  for (int i = 0; i < 5000; ++i) {
    known.items.add("key" + std::to_string(i), text + std::to_string(i));
  }
  const Event event{base::Micros(1), known};

  CHECK(encoded(event).size() == 6);  // 5 MB in parts of a little over 1 MiB, and the end
  const Event back = through(event);

  const ItemList& items = std::get<ItemsKnown>(back.body).items;
  REQUIRE(items.size() == 5000);
  CHECK(items.key(4999) == "key4999");
  CHECK(items.text(4999) == text + "4999");
}

TEST_CASE("a secure output never reaches the journal") {
  AttemptEnded attempt = example_attempt();
  attempt.outcome.output = R"({"token":"hunter2"})";
  attempt.outcome.output_kept = false;

  CHECK(encoded({base::Micros(1), attempt})[0].payload.find("hunter2") == std::string::npos);
  CHECK(!std::get<AttemptEnded>(through({base::Micros(1), attempt}).body).outcome.output_kept);
}

TEST_CASE("cut and damaged records are corrupt, never a crash") {
  base::Rng rng(4);
  for (const Event& event :
       {Event{base::Micros(1), example_attempt()}, Event{base::Micros(1), Started{2}},
        Event{base::Micros(1), CancelRequested{"x"}}, Event{base::Micros(1), Tick{}}}) {
    const Record whole = encoded(event, "p")[0];
    for (size_t size = 0; size < whole.payload.size(); ++size) {
      EventDecoder decoder;
      const auto cut = decoder.decode(whole.type, whole.payload.substr(0, size));
      REQUIRE(!cut.ok());
      CHECK(cut.error().code() == Errc::corrupt);
    }
    for (int i = 0; i < 2000; ++i) {
      std::string wild = whole.payload;
      wild[rng.below(wild.size())] = static_cast<char>(rng.below(256));
      EventDecoder decoder;
      static_cast<void>(decoder.decode(whole.type, wild));
    }
  }
  EventDecoder decoder;
  CHECK(!decoder.decode(static_cast<RecordType>(77), "").ok());
  for (const int64_t us : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const Record late = encoded({base::Micros(us), Tick{}})[0];
    CHECK(decoder.decode(late.type, late.payload).error().code() == Errc::corrupt);
  }
  for (const int slots : {-1, 0, kSlotsMax + 1, 1 << 30}) {
    const Record started = encoded({base::Micros(1), Started{slots}})[0];
    CHECK(decoder.decode(started.type, started.payload).error().code() == Errc::corrupt);
    const Record resumed = encoded({base::Micros(1), Resumed{slots}})[0];
    CHECK(decoder.decode(resumed.type, resumed.payload).error().code() == Errc::corrupt);
  }
}

TEST_CASE("a replay refuses records out of order and of another engine") {
  RunHeader header;
  header.run_id = "r";
  header.pipeline_name = "p";
  header.pipeline_path = "p.json";
  header.document = R"({"name": "p", "properties": {"activities": [{"name": "a", "type": "X"}]}})";
  header.parameters = Json::object();
  const auto run = static_cast<uint8_t>(RecordType::run);
  const auto tick = static_cast<uint8_t>(RecordType::tick);
  const std::string text = header.to_json().dump();

  CHECK(Replay().on_record(tick, "12345678").error().code() == Errc::corrupt);
  Replay twice;
  CHECK(twice.on_record(run, text).ok());
  CHECK(twice.on_record(run, text).error().code() == Errc::corrupt);
  CHECK(Replay().on_record(run, "{").error().code() == Errc::invalid_argument);

  header.engine_version = kEngineVersion + 1;
  const auto other = Replay().on_record(run, header.to_json().dump());
  REQUIRE(!other.ok());
  CHECK(other.error().code() == Errc::mismatch);
  CHECK(other.error().message().find(
            fmt::format("engine version {}, this is {}", kEngineVersion + 1, kEngineVersion)) !=
        std::string::npos);

  header.engine_version = kEngineVersion;
  header.budget.percent = 5.0;
  header.shared_variables = true;
  header.circuit_breaker = false;
  const auto back = RunHeader::from_json(header.to_json());
  REQUIRE(back.ok());
  CHECK(back->budget.percent == 5.0);
  CHECK(back->shared_variables);
  CHECK(!back->circuit_breaker);
  CHECK(back->live_items_max == kLiveItemsMax);
  CHECK(back->document == header.document);
  CHECK(document_key_of(*back).size() == kDocumentKey.size() + 16);  // as up to version 5

  header.document_key = "@document 2";
  CHECK(document_key_of(*RunHeader::from_json(header.to_json())) == "@document 2");
}

TEST_CASE("documents of a run that differ have keys that differ, and a known one keeps its own") {
  Json secrets = Json::object({{"parameter", "first"}});
  CHECK(document_key(secrets, "first") == "@document 1");
  secrets.set("@document 0123456789abcdef", "old");
  secrets.set("@document 2", "second");
  CHECK(document_key(secrets, "second") == "@document 2");
  CHECK(document_key(secrets, "old") == "@document 0123456789abcdef");
  CHECK(document_key(secrets, "third") == "@document 3");
}

TEST_CASE(
    "a journal of engine version 2 replays as it did: without a circuit breaker and bound on "
    "items") {
  RunHeader header;
  header.run_id = "r";
  header.pipeline_name = "p";
  header.pipeline_path = "p.json";
  header.document = R"({"name": "p", "properties": {"activities": [{"name": "a", "type": "X"}]}})";
  header.engine_version = 2;
  Json old = Json::object();
  const Json all = header.to_json();
  for (const Json::Member& member : all.members()) {
    if (member.first != "circuit_breaker" && member.first != "live_items_max") {
      old.set(member.first, member.second);
    }
  }

  const auto back = RunHeader::from_json(old);

  REQUIRE(back.ok());
  CHECK(!back->circuit_breaker);
  CHECK(back->live_items_max == INT64_MAX);
  CHECK(!back->attempts_go_on);
  CHECK(back->engine_version == kEngineVersion);  // what a restart of it is written with
  EventDecoder decoder;
  const auto resumed =
      decoder.decode(RecordType::resumed, std::string(8, '\0') + std::string("\3\0\0\0", 4));
  REQUIRE(resumed.ok());
  CHECK(std::get<Resumed>((*resumed)->body).slots == 3);
  CHECK(std::get<Resumed>((*resumed)->body).circuit_breaker);
}

}  // namespace headrace::flow
