// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/board.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "headrace/base/board_layout_internal.h"
#include "headrace/base/log.h"
#include "headrace/base/metric_names.h"
#include "headrace/base/random.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/thread.h"

namespace headrace::base {

namespace {

const BoardSnapshot::Metric* find(const BoardSnapshot& snapshot, std::string_view name,
                                  std::string_view labels = {}) {
  for (const auto& metric : snapshot.metrics) {
    if (metric.name == name && metric.labels == labels) {
      return &metric;
    }
  }
  return nullptr;
}

}  // namespace

TEST_CASE("what is counted can be read, also through another mapping") {
  const TestFolder folder;
  const auto board = *Board::create({.folder = folder / "run", .run = "r1", .rank = 3});
  Counter items = board->counter(metric("flow.items"), "status=\"ok\"");
  items.add(2);
  items.add();
  board->counter(metric("flow.items"), "status=\"ok\"").add(4);  // the same place
  board->counter(metric("flow.items"), "status=\"failed\"").add(1);
  board->gauge(metric("flow.eta_seconds")).set(1.5);
  Gauge peak = board->gauge(metric("process.resident_bytes"));
  peak.raise(10);
  peak.raise(7);
  Histogram seconds = board->histogram(metric("flow.item_seconds"));
  seconds.observe(std::chrono::microseconds(5));
  seconds.observe(std::chrono::milliseconds(1));
  board->set_state(BoardState::running);
  board->gauge(metric("flow.progress_ratio"));  // never set: absent

  const BoardSnapshot seen = *read_board_file(board->path());
  CHECK(seen.pid == ::getpid());
  CHECK(seen.run == "r1");
  CHECK(seen.rank == 3);
  CHECK(seen.state == BoardState::running);
  CHECK(seen.heartbeats == 1);
  CHECK(seen.start_ticks > 0);
  CHECK(find(seen, "flow.items", "status=\"ok\"")->count == 7);
  CHECK(find(seen, "flow.items", "status=\"failed\"")->count == 1);
  CHECK(find(seen, "flow.eta_seconds")->value == 1.5);
  CHECK(find(seen, "flow.eta_seconds")->unit == "seconds");
  CHECK(find(seen, "process.resident_bytes")->value == 10);
  CHECK(find(seen, "flow.progress_ratio") == nullptr);
  const auto* histogram = find(seen, "flow.item_seconds");
  CHECK(histogram->count == 2);
  CHECK(histogram->value == 1005);
  CHECK(histogram->buckets[static_cast<size_t>(Histogram::bucket_of(5))] == 1);
}

TEST_CASE("buckets are two to an octave; each value lies below its bound and not below the last") {
  CHECK(Histogram::bucket_of(0) == 0);
  CHECK(Histogram::bucket_of(1) == 1);
  CHECK(Histogram::bucket_of(2) == 3);  // bucket 2 is [1.5, 2), which no whole number is in
  CHECK(Histogram::bucket_of(3) == 4);
  CHECK(Histogram::bucket_of(~uint64_t{0}) == 63);
  CHECK(Histogram::upper_bound(2) == 2.0);
  CHECK(Histogram::upper_bound(62) == std::ldexp(1.0, 31));
  CHECK(std::isinf(Histogram::upper_bound(63)));
  for (uint64_t steps = 0; steps < 5000; ++steps) {
    const int bucket = Histogram::bucket_of(steps);
    CHECK(static_cast<double>(steps) < Histogram::upper_bound(bucket));
    CHECK((bucket == 0 || static_cast<double>(steps) >= Histogram::upper_bound(bucket - 1)));
  }
}

TEST_CASE("eight writers and eight readers: no count is lost and none falls") {
  const TestFolder folder;
  const auto board = *Board::create({.folder = folder / "run"});
  Counter plain = board->counter({"test.plain", MetricType::counter, "", ""});
  Counter striped = board->counter({"test.striped", MetricType::counter, "", ""}, {}, true);
  Histogram histogram = board->histogram({"test.h", MetricType::histogram, "", ""});
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back("writer", [=]() mutable {
        for (uint64_t i = 0; i < 1000; ++i) {
          plain.add();
          striped.add(2);
          histogram.observe(i);
        }
      });
      threads.emplace_back("reader", [&board] {
        uint64_t last = 0;
        for (int i = 0; i < 50; ++i) {
          const auto seen = read_board_file(board->path());
          HR_CHECK(seen.ok(), "read");
          HR_CHECK(find(*seen, "test.plain")->count >= last, "a counter fell");
          last = find(*seen, "test.plain")->count;
        }
      });
    }
  }
  const BoardSnapshot seen = *read_board_file(board->path());
  CHECK(find(seen, "test.plain")->count == 8000);
  CHECK(find(seen, "test.striped")->count == 16000);
  CHECK(find(seen, "test.h")->count == 8000);
}

TEST_CASE("a full board and a clash of types warn once and never fail the counting code") {
  const TestFolder folder;
  const auto board = *Board::create({.folder = folder / "run"});
  int warnings = 0;
  set_log_sink([&warnings](LogLevel level, std::string_view) {
    warnings += level == LogLevel::warning ? 1 : 0;
  });
  for (int i = 0; i < 1100; ++i) {
    board->counter({"test.c", MetricType::counter, "", ""}, "n=\"" + std::to_string(i) + "\"")
        .add(7);
  }
  board->gauge({"watch.overflow", MetricType::gauge, "", ""}).set(1);
  board->counter({std::string(64, 'n'), MetricType::counter, "", ""}).add();
  set_log_sink(nullptr);
  CHECK(warnings == 1);
  const BoardSnapshot seen = *read_board_file(board->path());
  CHECK(seen.metrics.size() == 1024);
  CHECK(find(seen, "watch.overflow")->count == 1100 - 1023 + 2);
  CHECK(find(seen, "test.c", "n=\"1022\"")->count == 7);
}

TEST_CASE("handles without a board count nowhere") {
  Counter().add();
  Gauge().set(1);
  Histogram().observe(uint64_t{5});
}

TEST_CASE("a forked child's counts do not reach the board of its parent") {
  const TestFolder folder;
  const auto board = *Board::create({.folder = folder / "run"});
  Counter items = board->counter({"test.c", MetricType::counter, "", ""});
  items.add();
  const pid_t child = ::fork();
  if (child == 0) {
    items.add(100);
    ::_exit(0);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(find(*read_board_file(board->path()), "test.c")->count == 1);
}

TEST_CASE("the file goes with its board unless it is kept, and a second board is refused") {
  const TestFolder folder;
  Path path;
  {
    const auto board = *Board::create({.folder = folder / "run"});
    path = board->path();
    CHECK(std::filesystem::exists(path));
    CHECK(Board::create({.folder = folder / "run"}).error().code() == Errc::already_exists);
  }
  CHECK_FALSE(std::filesystem::exists(path));
  {
    const auto kept = *Board::create({.folder = folder / "run", .keep = true});
  }
  CHECK(read_board_file(path).ok());
}

TEST_CASE("damaged boards are refused or read, never followed out of bounds") {
  const TestFolder folder;
  const auto board = *Board::create({.folder = folder / "run"});
  board->counter(metric("flow.items"), "status=\"ok\"").add(5);
  board->histogram(metric("flow.item_seconds")).observe(uint64_t{9});
  const std::string whole = *read_file(board->path());
  const auto read = [](const std::string& bytes) {
    std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
    std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(aligned.data()));
    return read_board(std::as_bytes(std::span(aligned)).first(bytes.size()), "test");
  };
  CHECK(read(whole).ok());
  CHECK(read("").error().code() == Errc::corrupt);
  CHECK(read(whole.substr(0, 4096)).error().code() == Errc::corrupt);
  CHECK(read("X" + whole.substr(1)).error().code() == Errc::corrupt);

  Rng rng(7);
  int refused = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    std::string bytes = whole;
    // The header's live part and the first entries, where every offset and count lies.
    const uint64_t where = rng.below(2) == 0 ? rng.below(280) : 4096 + rng.below(3 * 128);
    bytes[where] = static_cast<char>(rng.next());
    refused += read(bytes).ok() ? 0 : 1;
  }
  CHECK(refused > 100);
}

TEST_CASE("the offsets are those of docs/formats/board.md") {
  CHECK(offsetof(BoardHeader, total_bytes) == 16);
  CHECK(offsetof(BoardHeader, entries) == 60);
  CHECK(offsetof(BoardHeader, boot_id) == 80);
  CHECK(offsetof(BoardHeader, run) == 120);
  CHECK(offsetof(BoardHeader, host) == 184);
  CHECK(offsetof(BoardHeader, state) == 260);
  CHECK(offsetof(BoardEntry, labels) == 64);
  CHECK(offsetof(BoardEntry, unit) == 112);
  CHECK(offsetof(BoardEntry, type) == 120);
}

}  // namespace headrace::base
