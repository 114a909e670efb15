// SPDX-License-Identifier: Apache-2.0
// What ranks keep of their last operations, and where it goes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/log.h"
#include "headrace/base/test_folder.h"
#include "headrace/comm/flight_ring_internal.h"
#include "headrace/comm/named_set.h"
#include "headrace/comm/process_ranks_test.h"
#include "headrace/comm/thread_ranks_test.h"

namespace headrace::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_ranks;
using testing::run_thread_ranks;

Json parsed(const std::string& text) {
  auto json = parse_json(text, "flight record");
  REQUIRE_MESSAGE(json.ok(), (json.ok() ? "" : json.error().message()));
  return *std::move(json);
}

const Json::Array& operations(const Json& record, size_t set = 0) {
  return record.at("sets").items().at(set).at("operations").items();
}

Work sum(ProcessSet& set, std::vector<float>& values, const Options& options) {
  return set.all_reduce(Buffer{values.data(), values.size(), Dtype::f32}, Op::sum, options);
}

/// The files of a folder, once there are that many.
std::vector<base::Path> files_in(const base::Path& folder, size_t count) {
  const auto deadline = base::Deadline::in(seconds(20));
  std::vector<base::Path> files;
  do {
    files.clear();
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      if (entry.path().extension() == ".json") {
        files.push_back(entry.path());
      }
    }
    if (files.size() < count) {
      base::sleep_for(milliseconds(2));
    }
  } while (files.size() < count && !deadline.passed());
  CHECK(files.size() == count);
  return files;
}

Json read_record(const base::Path& file) {
  const auto text = base::read_file(file);
  REQUIRE(text.ok());
  return parsed(*text);
}

TEST_CASE("a ring gives back what was put in, with names of every length") {
  FlightRing ring;
  for (uint64_t i = 0; i < 100; ++i) {
    const std::string name(i, static_cast<char>('a' + i % 26));
    ring.submitted(i, {flight_what(3, 2, 1), i * 10, name}, base::Micros(i + 1));
    ring.started(i, Algorithm::tcp, base::Micros(i + 2));
    ring.waits(i, 5);
    ring.ended(i, FlightState::done, base::Micros(i + 3));
  }
  const auto all = ring.read();
  REQUIRE(all.size() == 100);
  for (uint64_t i = 0; i < 100; ++i) {
    const FlightEntry& one = all[i];
    CHECK(one.sequence == i);
    CHECK((one.kind == 3 && one.op == 2 && one.dtype == 1));
    CHECK(one.bytes == i * 10);
    CHECK(one.state == FlightState::done);
    CHECK(one.algorithm == Algorithm::tcp);
    CHECK(one.waits_for == 5);
    CHECK(one.submitted.count() == static_cast<int64_t>(i) + 1);
    CHECK(one.started.count() == static_cast<int64_t>(i) + 2);
    CHECK(one.ended.count() == static_cast<int64_t>(i) + 3);
    CHECK(one.name == std::string(std::min<uint64_t>(i, 87), static_cast<char>('a' + i % 26)));
  }
}

TEST_CASE("an operation that ended at once hides what stood in its place before") {
  FlightRing ring;
  ring.submitted(5, {flight_what(1, 0, 10), 4, "old"}, base::Micros(9));
  ring.ended_at_once(5 + FlightRing::kOperations, flight_what(1, 0, 10), 8, Algorithm::inline_line);
  ring.ended(5, FlightState::failed, base::Micros(10));  // too late to be told
  ring.started(5, Algorithm::tcp, base::Micros(10));
  const auto all = ring.read();
  REQUIRE(all.size() == 1);
  CHECK(all[0].sequence == 5 + FlightRing::kOperations);
  CHECK(all[0].state == FlightState::done);
  CHECK(all[0].bytes == 8);
  CHECK(all[0].name.empty());
  CHECK(all[0].submitted == base::Micros{});
}

TEST_CASE("the last 1024 operations of a set are there, small and large, with and without names") {
  constexpr int kTimes = 1500;
  run_thread_ranks(
      2, [](Config&) {},
      [](Context& context) {
        std::vector<float> small(1, 1.0F);
        std::vector<float> large(50'000, 1.0F);
        for (int i = 0; i < kTimes; ++i) {
          CHECK(sum(context.world(), small, {.blocking = true}).wait().ok());
        }
        CHECK(sum(context.world(), large, {.name = "large", .blocking = true}).wait().ok());
        CHECK(sum(context.world(), small, {.name = "small", .blocking = true}).wait().ok());
        const Json record = parsed(context.flight_record());
        CHECK(record.at("rank").integer() == context.world().rank());
        CHECK(record.at("sets").items().size() == 1);
        const auto& all = operations(record);
        REQUIRE(all.size() == FlightRing::kOperations);
        // With the barrier of init there were kTimes + 3.
        for (size_t i = 0; i < all.size(); ++i) {
          CHECK(all[i].at("sequence").integer() == kTimes + 3 - 1024 + static_cast<int64_t>(i));
          CHECK(all[i].at("state").string() == "done");
        }
        const Json& before = all[all.size() - 3];
        CHECK(before.at("kind").string() == "all_reduce");
        CHECK(before.at("op").string() == "sum");
        CHECK(before.at("dtype").string() == "float32");
        CHECK(before.at("bytes").integer() == 4);
        CHECK(before.at("name").string().empty());
        const Json& chunked = all[all.size() - 2];
        CHECK(chunked.at("name").string() == "large");
        CHECK(chunked.at("bytes").integer() == 200'000);
        CHECK(chunked.at("algorithm").string() == "chunked");
        CHECK(chunked.at("submit_us").integer() <= chunked.at("start_us").integer());
        CHECK(chunked.at("start_us").integer() <= chunked.at("end_us").integer());
        CHECK(chunked.at("end_us").integer() <= record.at("now_us").integer());
        CHECK(all.back().at("name").string() == "small");
        CHECK(all.back().at("algorithm").string() == "inline");
      });
}

TEST_CASE("an operation under way is told with the rank that it waits for") {
  run_thread_ranks(
      3, [](Config&) {},
      [](Context& context) {
        ProcessSet& set = context.world();
        std::vector<float> values(1, 1.0F);
        std::vector<float> word(1);
        if (set.rank() != 2) {
          const Work work = sum(set, values, {.name = "late"});
          const auto deadline = base::Deadline::in(seconds(20));
          Json last;
          do {
            last = operations(parsed(context.flight_record())).back();
          } while (last.get_integer("waits_for", -1) != 2 && !deadline.passed());
          CHECK(last.at("name").string() == "late");
          CHECK(last.at("state").string() == "running");
          CHECK(last.get_integer("waits_for", -1) == 2);
          CHECK(last.at("end_us").is_null());
          CHECK(set.send(ConstBuffer(word.data(), 1, Dtype::f32), 2, 1).wait().ok());
          CHECK(work.wait().ok());
          return;
        }
        for (const int other : {0, 1}) {
          CHECK(set.recv(Buffer{word.data(), 1, Dtype::f32}, other, 1).wait().ok());
        }
        CHECK(sum(set, values, {.name = "late"}).wait().ok());
      });
}

TEST_CASE("a failing set leaves a file on each rank that names the operation and who was awaited") {
  const base::TestFolder folder;
  run_thread_ranks(
      2, [&](Config& config) { config.flight_folder = folder / "made"; },
      [](Context& context) {
        if (context.world().rank() == 0) {
          std::vector<float> values(1, 1.0F);
          const auto how =
              sum(context.world(), values, {.name = "lost \"x\"", .timeout = milliseconds(100)})
                  .wait();
          CHECK((!how.ok() && how.error().code() == Errc::timeout));
          return;
        }
        const auto deadline = base::Deadline::in(seconds(20));
        while (!context.world().failure() && !deadline.passed()) {
          base::sleep_for(milliseconds(1));
        }
      });
  // Rank 1 closes the set in order, after which it has nothing to tell of.
  for (const base::Path& file : files_in(folder / "made", 1)) {
    const Json record = read_record(file);
    CHECK(record.at("reason").string().starts_with("failure: "));
    const Json& set = record.at("sets").items().front();
    CHECK(set.at("failure").at("code").string() == "timeout");
    const Json& last = set.at("operations").items().back();
    CHECK(last.at("name").string() == "lost \"x\"");
    CHECK(last.at("kind").string() == "all_reduce");
    CHECK(last.get_integer("waits_for", -1) == 1);
    CHECK(set.at("failure").at("message").string().find("waited for rank 1") != std::string::npos);
  }
}

TEST_CASE("without a folder a failure writes nothing, and neither does a rank that just leaves") {
  const base::TestFolder folder;
  const base::WorkingFolder inside(folder.path());
  for (const bool fails : {true, false}) {
    run_thread_ranks(
        2,
        [&](Config& config) { config.flight_folder = fails ? base::Path() : folder / "flights"; },
        [&](Context& context) {
          if (context.world().rank() == 0) {
            std::vector<float> values(1, 1.0F);
            const auto how =
                sum(context.world(), values, {.timeout = milliseconds(fails ? 50 : 20'000)}).wait();
            CHECK(!how.ok());
          } else if (fails) {
            base::sleep_for(milliseconds(100));
          }
        });
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("named operations are told from submission to end, and whom the oldest waits for") {
  run_thread_ranks(
      2, [](Config&) {},
      [](Context& context) {
        auto set = context.split(context.world(), 0, context.world().rank());
        REQUIRE(set.ok());
        const auto named = NamedSet::make(context, *std::move(set), {});
        const int rank = named->rank();
        std::array<float, 4> values{};
        const auto submit = [&](const std::string& name) {
          auto tensor =
              named->prepare(name, {.op = Op::max, .shape = {4}, .splits = {}, .group = {}});
          REQUIRE(tensor.ok());
          auto work = named->submit({*tensor, values.data(), values.data()});
          REQUIRE(work.ok());
          return *work;
        };
        const auto named_set = [&] {
          const Json record = parsed(context.flight_record());
          Json found;
          for (const Json& one : record.at("sets").items()) {
            found = one.at("mode").string() == "named" ? one : found;
          }
          return found;
        };
        CHECK(submit("both").wait().ok());
        std::vector<float> word(1);
        const Buffer message = {word.data(), 1, Dtype::f32};
        if (rank == 0) {
          const NamedWork work = submit("one");
          const auto deadline = base::Deadline::in(seconds(20));
          Json last;
          do {
            last = named_set().at("operations").items().back();
          } while (last.get_integer("waits_for", -1) != 1 && !deadline.passed());
          CHECK(last.at("state").string() == "queued");
          CHECK(last.at("name").string() == "one");
          CHECK(last.at("start_us").is_null());
          CHECK(last.get_integer("waits_for", -1) == 1);
          CHECK(context.world().send(message, 1, 0).wait().ok());
          CHECK(work.wait().ok());
        } else {
          CHECK(context.world().recv(message, 0, 0).wait().ok());
          CHECK(submit("one").wait().ok());
        }
        const Json all = named_set().at("operations");
        REQUIRE(all.items().size() == 2);
        for (const Json& one : all.items()) {
          CHECK(one.at("kind").string() == "allreduce");
          CHECK(one.at("op").string() == "max");
          CHECK(one.at("bytes").integer() == 16);
          CHECK(one.at("state").string() == "done");
          CHECK(one.at("submit_us").integer() <= one.at("start_us").integer());
          CHECK(one.at("start_us").integer() <= one.at("end_us").integer());
        }
      });
}

TEST_CASE("survivors of a killed rank write who it was") {
  const base::TestFolder folder;
  const auto codes = run_ranks(
      3,
      [&](Context& context) {
        std::vector<float> values(1, 1.0F);
        ProcessSet& set = context.world();
        std::vector<float> word(1);
        if (set.rank() == 1) {
          for (const int other : {0, 2}) {
            static_cast<void>(set.recv(Buffer{word.data(), 1, Dtype::f32}, other, 0).wait());
          }
          ::kill(::getpid(), SIGKILL);
        }
        const Work work = sum(set, values, {.name = "last"});
        if (!set.send(ConstBuffer(word.data(), 1, Dtype::f32), 1, 0).wait().ok()) {
          return 3;
        }
        const auto how = work.wait();
        files_in(folder.path(), 2);  // who leaves in the moment of the failure may write none
        return how.ok() ? 1 : how.error().code() == Errc::peer_dead ? 0 : 2;
      },
      [&](Config& config) { config.flight_folder = folder.path(); });
  CHECK(codes[0] == 0);
  CHECK(codes[2] == 0);
  for (const base::Path& file : files_in(folder.path(), 2)) {
    const Json record = read_record(file);
    const Json& set = record.at("sets").items().front();
    CHECK(set.at("failure").at("code").string() == "peer_dead");
    CHECK(set.at("failure").at("rank").integer() == 1);
    REQUIRE(!set.at("operations").items().empty());
    CHECK(set.at("operations").items().back().at("name").string() == "last");
  }
}

TEST_CASE("SIGUSR2 writes the record of a rank that waits, and again") {
  const base::TestFolder folder;
  const auto codes = run_ranks(
      2,
      [&](Context& context) {
        std::vector<float> values(1, 1.0F);
        Work work;
        if (context.world().rank() == 0) {
          work = sum(context.world(), values, {.name = "awaited"});
          ::kill(::getpid(), SIGUSR2);
          files_in(folder.path(), 1);
          ::kill(::getpid(), SIGUSR2);
          files_in(folder.path(), 2);
        }
        if (context.world().rank() == 1) {
          files_in(folder.path(), 2);
          work = sum(context.world(), values, {.name = "awaited"});
        }
        return work.wait().ok() ? 0 : 1;
      },
      [&](Config& config) {
        config.flight_folder = folder.path();
        config.flight_signal = true;
      });
  CHECK(codes == std::vector<int>{0, 0});
  for (const base::Path& file : files_in(folder.path(), 2)) {
    const Json record = read_record(file);
    CHECK(record.at("reason").string() == "SIGUSR2");
    CHECK(record.at("rank").integer() == 0);
    CHECK(operations(record).back().at("name").string() == "awaited");
    CHECK(operations(record).back().at("state").string() != "done");
  }
}

std::atomic<int> heard = 0;

TEST_CASE("a program that has a handler of SIGUSR2 keeps it") {
  const base::TestFolder folder;
  const auto codes = run_ranks(
      1,
      [](Context&) {
        ::kill(::getpid(), SIGUSR2);
        return heard.load() == 1 ? 0 : 1;
      },
      [&](Config& config) {
        ::signal(SIGUSR2, [](int) { heard.fetch_add(1); });
        config.flight_folder = folder.path();
        config.flight_signal = true;
      });
  CHECK(codes == std::vector<int>{0});
  CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace headrace::comm
