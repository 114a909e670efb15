// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/board_folder.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "headrace/base/metric_names.h"
#include "headrace/base/process_metrics.h"
#include "headrace/base/test_folder.h"

namespace headrace::base {

namespace {

const BoardSnapshot::Metric& find(const BoardSnapshot& snapshot, std::string_view name,
                                  std::string_view labels = {}) {
  for (const auto& metric : snapshot.metrics) {
    if (metric.name == name && metric.labels == labels) {
      return metric;
    }
  }
  FAIL("no metric ", std::string(name));
  return snapshot.metrics[0];
}

/// Of a process that cannot be: pids end at 2^22.
Path dead_board(const Path& folder) {
  const Path path = folder / "99999999-1.board";
  REQUIRE(make_folders(folder).ok());
  REQUIRE(replace_file(path, "x").ok());
  return path;
}

}  // namespace

TEST_CASE("a board without a folder lies with its run's, and leaves no folder behind") {
  const std::string run = "test-" + std::to_string(::getpid());
  {
    BoardOptions options;
    options.run = run;
    const auto board = *Board::create(options);
    CHECK(board->path().parent_path() == board_folder(run));
    CHECK(boards_in(board_folder(run)) == std::vector<Path>{board->path()});
    CHECK(board_is_alive(board->path()));
  }
  CHECK(!std::filesystem::exists(board_folder(run)));
  CHECK(boards_in(board_folder(run)).empty());
}

TEST_CASE("boards of processes that are gone are known by their locks, and removed") {
  const TestFolder folder;
  const auto board = *Board::create({.folder = folder / "run"});
  const Path dead = dead_board(folder / "run");
  const Path reused = folder / "run" / (std::to_string(::getpid()) + "-1.board");
  REQUIRE(replace_file(reused, "x").ok());
  const Path foreign = folder / "run/notes.board";
  REQUIRE(replace_file(foreign, "x").ok());
  CHECK(boards_in(folder / "run").size() == 4);
  CHECK(!board_is_alive(dead));
  CHECK(!board_is_alive(reused));

  remove_dead_boards(folder / "run");

  CHECK(boards_in(folder / "run") == std::vector<Path>{board->path()});
  CHECK(board_is_alive(board->path()));
  CHECK(start_ticks_of(99'999'999) == std::nullopt);
}

TEST_CASE("what a killed run left is removed, what belongs to a run that lives is not") {
  const std::string mark = "test-" + std::to_string(::getpid());
  BoardOptions options;
  options.run = mark + "-lives";
  const auto board = *Board::create(options);
  const Path worker = dead_board(board_folder(options.run));  // its engine has not looked yet
  const Path left = dead_board(board_folder(mark + "-killed"));
  REQUIRE(replace_file(left.string() + ".new", "x").ok());

  remove_left_boards(std::chrono::hours(1));
  CHECK(std::filesystem::exists(left));
  remove_left_boards(-std::chrono::seconds(2));  // stamps of files may lag behind the clock

  CHECK(!std::filesystem::exists(left.parent_path()));
  CHECK(std::filesystem::exists(worker));
  CHECK(std::filesystem::exists(board->path()));
  ::unlink(worker.c_str());
}

TEST_CASE("the folders of boards are closed to others; one of another user is not used") {
  BoardOptions options;
  options.run = "test-open-" + std::to_string(::getpid());
  const auto board = *Board::create(options);  // makes the folder around
  options.run += "-next";
  const Path next = board_folder(options.run);
  REQUIRE(make_folders(next).ok());
  std::filesystem::permissions(next, std::filesystem::perms::all);
  {
    const auto second = *Board::create(options);
    CHECK(std::filesystem::status(next).permissions() == std::filesystem::perms::owner_all);
  }
  REQUIRE(!std::filesystem::exists(next));
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can give a folder to another user");
    return;
  }
  REQUIRE(make_folders(next).ok());
  REQUIRE(::chown(next.c_str(), 65534, 65534) == 0);
  const auto refused = Board::create(options);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message().find("no folder of this user; remove it") != std::string::npos);
  std::filesystem::remove(next);
}

TEST_CASE("the sum of boards: counters and histograms add up, gauges are the first's") {
  const TestFolder folder;
  const auto make = [&](const char* name, uint64_t count, double level) {
    auto board = *Board::create({.folder = folder / name});
    board->counter(metric("registry.versions")).add(count);
    board->histogram(metric("flow.item_seconds")).observe(std::chrono::microseconds(count));
    board->gauge(metric("process.threads")).set(level);
    return board;
  };
  const auto first = make("a", 3, 1.0);
  const auto second = make("b", 40, 2.0);
  BoardSnapshot all = *read_board_file(first->path());
  const BoardSnapshot one = *read_board_file(second->path());

  add_board(&all, one);
  fold_board(first.get(), one);

  for (const BoardSnapshot& sum : {all, *read_board_file(first->path())}) {
    CHECK(find(sum, "registry.versions").count == 43);
    CHECK(find(sum, "flow.item_seconds").count == 2);
    CHECK(find(sum, "flow.item_seconds").value == 43.0);
    CHECK(find(sum, "flow.item_seconds").buckets[static_cast<size_t>(Histogram::bucket_of(40))] ==
          1);
    CHECK(find(sum, "process.threads").value == 1.0);
  }
}

TEST_CASE("what a process uses is what the kernel says") {
  const TestFolder folder;
  const auto board = *Board::create({.folder = folder / "run"});
  ProcessMetrics process(board.get());
  volatile double sink = 0.0;
  for (int i = 0; i < 3'000'000; ++i) {
    sink = sink + std::sqrt(static_cast<double>(i));
  }

  process.update();

  const BoardSnapshot seen = *read_board_file(board->path());
  const double cpu = static_cast<double>(find(seen, "process.cpu_seconds").count) / 1e9;
  const double now = std::chrono::duration<double>(process_cpu_time()).count();
  CHECK(cpu > 0.0);
  CHECK(cpu <= now);
  const std::string statm = *read_file("/proc/self/statm", 4096);
  const double pages = std::stod(statm.substr(statm.find(' ')));
  const auto page_bytes = static_cast<double>(::sysconf(_SC_PAGESIZE));
  CHECK(find(seen, "process.resident_bytes").value ==
        doctest::Approx(pages * page_bytes).epsilon(0.2));
  CHECK(find(seen, "process.threads").value >= 1.0);
  CHECK(find(seen, "process.open_fds").value >= 3.0);
  const double wall = std::chrono::duration<double>(system_clock().wall()).count();
  CHECK(find(seen, "process.start_time_seconds").value <= wall + 1.0);
  CHECK(find(seen, "process.start_time_seconds").value > wall - 86'400.0);
  ProcessMetrics nowhere;
  nowhere.update();
}

}  // namespace headrace::base
