// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/timeline.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>

#include "headrace/base/json.h"
#include "headrace/base/test_folder.h"

namespace headrace::comm {
namespace {

using base::Micros;

Json events_of(const base::Path& path) {
  const auto text = base::read_file(path);
  REQUIRE(text.ok());
  auto json = parse_json(*text);
  REQUIRE_MESSAGE(json.ok(), (json.ok() ? "" : json.error().message()));
  return *std::move(json);
}

/// Every B has its E, per process, and times do not go back.
void check_nesting(const Json& events) {
  std::map<int64_t, int> depth;
  std::map<int64_t, int64_t> last;
  for (const Json& event : events.items()) {
    const std::string phase = event.get_string("ph");
    const int64_t pid = event.get_integer("pid");
    if (phase == "M") {
      continue;
    }
    CHECK(event.get_integer("ts") >= last[pid]);
    last[pid] = event.get_integer("ts");
    depth[pid] += phase == "B" ? 1 : phase == "E" ? -1 : 0;
    CHECK(depth[pid] >= 0);
  }
  for (const auto& [pid, open] : depth) {
    CHECK(open == 0);
  }
}

Micros now() { return base::system_clock().monotonic(); }

TEST_CASE("the file is a JSON array from the start, and holds what was recorded soon") {
  base::TestFolder folder;
  const base::Path path = folder / "t.%r.json";
  const base::Path file = folder / "t.3.json";
  {
    const auto timeline = Timeline::open({.path = path, .rank = 3, .mark_cycles = true});
    REQUIRE(timeline.ok());
    CHECK(events_of(file).items().size() == 1);
    CHECK(events_of(file).items()[0].at("args").get_integer("start_time_since_epoch_in_micros") >
          int64_t{1'700'000'000} * 1'000'000);
    Timeline& one = **timeline;
    one.mark_cycle(now());
    one.begin("allreduce.\"x\"", "NEGOTIATE_ALLREDUCE", now());
    one.mark("allreduce.\"x\"", "0", now());
    one.end("allreduce.\"x\"", now(), "float32", "[3, 4]");
    for (int i = 0; i < 100 && events_of(file).items().size() == 1; ++i) {
      base::sleep_for(std::chrono::milliseconds(50));
    }
    CHECK(events_of(file).items().size() == 7);
  }
  const Json events = events_of(file);
  check_nesting(events);
  CHECK(events.items().back().at("args").get_string("shape") == "[3, 4]");
  CHECK(events.items()[2].at("args").get_string("name") == "allreduce.\"x\"");
}

TEST_CASE("a file that would grow too large begins anew, the part before is kept") {
  base::TestFolder folder;
  const base::Path path = folder / "t.json";
  {
    const auto timeline = Timeline::open({.path = path, .max_bytes = 6 << 20});
    REQUIRE(timeline.ok());
    for (int i = 0; i < 100'000; ++i) {
      (*timeline)->begin("tensor", "ALLREDUCE", now());
      (*timeline)->end("tensor", now());
    }
  }
  const auto size = std::filesystem::file_size(path);
  const auto before = std::filesystem::file_size(folder / "t.json.older");
  CHECK(size + before < (7U << 20U));
  CHECK(before > (2U << 20U));
  CHECK(events_of(path).items().size() >= 1);
  CHECK(events_of(folder / "t.json.older").items().size() > 1000);
}

TEST_CASE("files of several ranks become one on one scale") {
  base::TestFolder folder;
  for (int rank = 0; rank < 2; ++rank) {
    const auto timeline = Timeline::open({.path = folder / "%r.json", .rank = rank});
    REQUIRE(timeline.ok());
    (*timeline)->begin("x", "ALLREDUCE", now());
    (*timeline)->end("x", now());
    base::sleep_for(std::chrono::milliseconds(2));
  }
  REQUIRE(merge_timelines({folder / "0.json", folder / "1.json"}, folder / "all.json").ok());
  const Json all = events_of(folder / "all.json");
  check_nesting(all);
  std::map<std::string, int64_t> pids;
  std::map<int64_t, int64_t> begins;
  for (const Json& event : all.items()) {
    if (event.get_string("name") == "process_name") {
      pids[event.at("args").get_string("name")] = event.get_integer("pid");
    } else if (event.get_string("ph") == "B") {
      begins[event.get_integer("pid")] = event.get_integer("ts");
    }
  }
  REQUIRE(pids.size() == 2);
  CHECK(pids.at("[0] x") != pids.at("[1] x"));
  CHECK(begins[pids["[1] x"]] >= begins[pids["[0] x"]] + 2000);

  REQUIRE(base::replace_file(folder / "other.json", "[{}]").ok());
  CHECK(merge_timelines({folder / "other.json"}, folder / "all.json").error().code() ==
        Errc::corrupt);
  CHECK(merge_timelines({folder / "none.json"}, folder / "all.json").error().code() ==
        Errc::not_found);
}

TEST_CASE("a place where no file can be is an error") {
  base::TestFolder folder;
  CHECK_FALSE(Timeline::open({.path = folder / "no" / "such" / "t.json"}).ok());
}

}  // namespace
}  // namespace headrace::comm
