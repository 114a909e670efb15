// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/negotiate/autotune.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "headrace/base/file.h"
#include "headrace/base/test_folder.h"

namespace headrace::comm {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Tuned kStart = {128 * kMiB, std::chrono::microseconds(1000)};

using Cost = std::function<double(const Tuned&)>;

/// Trains with it: what a step waits depends on the settings of the time.
class Training {
 public:
  explicit Training(Cost cost) : cost_(std::move(cost)) {}

  void step(Autotuner& tuner, int tensors = 20, double more = 0.0) {
    ++steps;
    for (int i = 0; i < tensors; ++i) {
      static_cast<void>(tuner.submitted(fmt::format("allreduce.noname.{}", steps), 4, waited_));
      if (const auto tuned = tuner.submitted(fmt::format("grad.{}", i), 1024, waited_)) {
        CHECK(*tuned != now);
        now = *tuned;
      }
    }
    waited_ += cost_(now) + more;
  }
  /// Until the search ends.
  void train(Autotuner& tuner) {
    while (!tuner.done()) {
      step(tuner);
      REQUIRE(steps < 2000);
    }
  }

  Tuned now = kStart;
  int steps = 0;

 private:
  Cost cost_;
  double waited_ = 0;
};

/// Least at 16 MiB and half a millisecond; each step on the grid away from there adds 10 %.
double bowl(const Tuned& tuned) {
  const double fusion = std::log2(static_cast<double>(tuned.fusion_bytes + 1) / (16.0 * kMiB)) / 2;
  const double cycle = std::log2(static_cast<double>(tuned.cycle_time.count() + 1) / 500.0);
  return 0.010 * (1 + 0.1 * std::abs(fusion) + 0.1 * std::abs(cycle));
}

std::vector<std::string> lines_of(const base::Path& path) {
  std::istringstream text(*base::read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_CASE("the search ends where a step waits least, and its log says how it went there") {
  const base::TestFolder folder;
  Autotuner tuner({.log = (folder.path() / "log.csv").string()}, 2, kStart);
  Training training(&bowl);

  training.train(tuner);

  CHECK(tuner.best() == Tuned{16 * kMiB, std::chrono::microseconds(500)});
  CHECK(training.now == tuner.best());
  const auto lines = lines_of(folder.path() / "log.csv");
  REQUIRE(lines.size() > 3);
  CHECK(lines.front() ==
        "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
        "cycle_time_ms,tensor_fusion_threshold,score");
  CHECK(lines[1].substr(0, 20) == "1,1,0,1,1,134217728,");
  CHECK(lines.back().substr(0, 21) == "1,1,0,1,0.5,16777216,");
  CHECK(lines.size() <= 20 + 2);
  const auto least = std::min_element(lines.begin() + 1, lines.end(), [](auto& a, auto& b) {
    return std::stod(a.substr(a.rfind(',') + 1)) < std::stod(b.substr(b.rfind(',') + 1));
  });
  CHECK(*least == lines.back());
}

TEST_CASE("what the user has chosen stays, and nothing is kept of that for other runs") {
  const base::TestFolder folder;
  Autotuner tuner({.fusion_fixed = true, .folder = folder.path().string()}, 2, kStart);
  Training training(&bowl);
  training.train(tuner);
  CHECK(tuner.best() == Tuned{128 * kMiB, std::chrono::microseconds(500)});

  Autotuner neither({.fusion_fixed = true, .cycle_fixed = true}, 2, kStart);
  training.train(neither);
  CHECK(neither.best() == kStart);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("where nothing is better by 2 % the start stays, and the number of samples is bounded") {
  Autotuner flat({}, 2, kStart);
  Training even([](const Tuned& tuned) { return tuned == kStart ? 0.0100 : 0.0099; });
  even.train(flat);
  CHECK(flat.best() == kStart);
  CHECK(even.now == kStart);
  CHECK(even.steps <= 10 * (3 + 1 + 3) + 2);  // warm-up, the start, three neighbours

  Autotuner few({.warmup_samples = 0, .steps_per_sample = 2, .samples_most = 3}, 2, kStart);
  Training training(&bowl);
  training.train(few);
  CHECK(training.steps <= 2 * 3 + 2);
}

TEST_CASE("steps with other tensors do not count") {
  Autotuner tuner({.warmup_samples = 1, .steps_per_sample = 5}, 2, kStart);
  Training training(&bowl);
  training.step(tuner, 40);  // the first one, with what comes once
  for (int i = 0; i < 1000 && !tuner.done(); ++i) {
    training.step(tuner);
    if (i % 7 == 6) {
      training.step(tuner, 3, 100.0);  // an evaluation
    }
  }
  REQUIRE(tuner.done());
  CHECK(tuner.best() == Tuned{16 * kMiB, std::chrono::microseconds(500)});
}

TEST_CASE("a metric beside the gradients of some steps is no other training step") {
  const base::TestFolder folder;
  for (const int every : {3, 5, 20, 50}) {
    Autotuner tuner({.folder = folder.path().string()}, every, kStart);
    Training training(&bowl);
    while (!tuner.done()) {
      training.step(tuner, training.steps % every == every - 1 ? 21 : 20);
      REQUIRE(training.steps < 500);
    }
    CHECK(tuner.best() == Tuned{16 * kMiB, std::chrono::microseconds(500)});
  }
  std::set<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    models.insert(entry.path().filename().string().substr(0, 16));
  }
  CHECK(models.size() == 1);  // the same, whatever the metric
}

TEST_CASE("the next run of the same model on as many ranks begins with the winner") {
  const base::TestFolder folder;
  const AutotuneOptions options = {.folder = (folder.path() / "new" / "winners").string()};
  Autotuner first(options, 4, kStart);
  Training(&bowl).train(first);

  Autotuner again(options, 4, kStart);
  Training training(&bowl);
  training.train(again);
  CHECK(again.best() == first.best());
  CHECK(training.now == first.best());
  CHECK(training.steps <= 10 * (3 + 1) + 2);

  Autotuner more(options, 8, kStart);
  Training other(&bowl);
  other.train(more);
  CHECK(other.steps > training.steps);
}

TEST_CASE("a file of a winner that cannot be read is not used") {
  const base::TestFolder folder;
  const AutotuneOptions options = {.folder = folder.path().string()};
  Autotuner first(options, 4, kStart);
  Training(&bowl).train(first);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    REQUIRE(base::replace_file(entry.path(), "{\"fusion_bytes\": 3").ok());
  }
  Autotuner again(options, 4, kStart);
  Training training(&bowl);
  training.train(again);
  CHECK(again.best() == first.best());
}

}  // namespace
}  // namespace headrace::comm
