// SPDX-License-Identifier: Apache-2.0
// One training shared by processes. tests/python/test_shared_training.py has the command.
#include "headrace/jobs/job_ranks.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/environment.h"
#include "headrace/base/file.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/test_process.h"
#include "headrace/forecast/forecaster.h"

using namespace headrace;
using namespace headrace::jobs;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kWrong = 7;  // exit code of a rank that saw something else than it should

/// Keys as files.
comm::StoreTable store_in(const base::Path& folder) {
  const auto path_of = [folder](std::string key) {
    std::replace(key.begin(), key.end(), '/', '_');
    return folder / key;
  };
  return {.set = [path_of](const std::string& key, const std::string& value) -> Result<void> {
            return base::replace_file(path_of(key), value);
          },
          .get = [path_of](const std::string& key, base::Deadline deadline) -> Result<std::string> {
            while (!std::filesystem::exists(path_of(key))) {
              if (deadline.passed()) {
                return Error{Errc::timeout, "no " + key};
              }
              base::sleep_for(milliseconds(1));
            }
            return base::read_file(path_of(key));
          }};
}

/// Whether forked processes can be ranks here; why not otherwise.
bool can_fork() {
#if defined(__SANITIZE_THREAD__)
  MESSAGE(
      "skipped: the thread sanitizer cannot follow threads of forked processes beside those of "
      "the libraries; headrace/forecast/training_ranks_test.cc has threads as ranks");
  return false;
#else
  return true;
#endif
}

/// Exit codes of processes that run `body` as ranks.
std::vector<int> on_processes(int ranks, const std::function<int(JobRanks&)>& body) {
  base::TestFolder folder;
  std::vector<base::TestProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&, rank] {
      comm::Config config = {.rank = rank, .world_size = ranks};
      config.init_timeout = seconds(30);
      config.timeout = seconds(30);
      JobRanks joined(comm::Context::init(config, store_in(folder.path())).value());
      return body(joined);
    });
  }
  std::vector<int> codes;
  for (base::TestProcess& process : processes) {
    codes.push_back(process.wait(seconds(60)));
  }
  return codes;
}

std::vector<int> all(int ranks, int code) {
  return std::vector<int>(static_cast<size_t>(ranks), code);
}

forecast::Series sine(const std::string& id, int length, double level) {
  forecast::Series series;
  series.id = id;
  series.frequency = forecast::parse_frequency("h").value();
  for (int i = 0; i < length; ++i) {
    series.target.push_back(level * (1.5 + std::sin(2.0 * std::numbers::pi * i / 24.0)));
  }
  return series;
}

Result<forecast::Trained> train(const forecast::TrainContext& context) {
  const std::vector<forecast::Series> series = {sine("A", 150, 10.0), sine("B", 120, 3.0)};
  forecast::TrainOptions options;
  options.horizon = 6;
  options.context = 8;
  options.lags = {1, 2, 24};
  options.hidden = 8;
  options.batch = 10;
  options.epochs = 3;
  options.batches_per_epoch = 8;
  return forecast::train_global(series, options, context);
}

bool has(const Error& error, std::string_view text) {
  return error.message().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("processes train the model that one process trains") {
  if (!can_fork()) {
    return;
  }
  const auto alone = train({}).value().model.members;
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    const auto codes = on_processes(ranks, [&](JobRanks& mine) {
      forecast::TrainContext context;
      context.ranks = &mine;
      const auto trained = train(context);
      if (!trained.ok() || !mine.agree({}).ok()) {
        return kWrong;
      }
      const auto& members = trained->model.members;
      double largest = 0.0;
      for (size_t i = 0; i < alone[0].size(); ++i) {
        largest = std::max(largest, static_cast<double>(std::fabs(members[0][i] - alone[0][i])));
      }
      std::vector<float> first = members[0];
      if (!mine.copy_from_first(first).ok() || first != members[0]) {
        return kWrong;
      }
      return largest < 1e-6 ? 0 : kWrong + 1;
    });
    CHECK(codes == all(ranks, 0));
  }
}

TEST_CASE("an error of one rank is an error of all, with the rank's name") {
  if (!can_fork()) {
    return;
  }
  const auto codes = on_processes(3, [](JobRanks& mine) {
    if (!mine.agree({}).ok() || mine.is_told_by_first()) {
      return kWrong;
    }
    const auto outcome = mine.agree(
        mine.rank() == 1 ? Result<void>(Error{Errc::not_found, "no table"}) : Result<void>());
    const bool told = !outcome.ok() && outcome.error().code() == Errc::not_found &&
                      has(outcome.error(), "rank 1 on ") && has(outcome.error(), ": no table");
    return told && mine.is_told_by_first() == (mine.rank() != 0) ? 0 : kWrong;
  });
  CHECK(codes == all(3, 0));
}

TEST_CASE("an error that all ranks have is told as it is") {
  if (!can_fork()) {
    return;
  }
  const auto codes = on_processes(2, [](JobRanks& mine) {
    const std::string text(5000, 'x');
    const auto outcome = mine.agree(Error{Errc::invalid_argument, text});
    return !outcome.ok() && outcome.error().message() == text ? 0 : kWrong;
  });
  CHECK(codes == all(2, 0));
}

TEST_CASE("what differs between ranks is named with both values") {
  if (!can_fork()) {
    return;
  }
  const auto codes = on_processes(3, [](JobRanks& mine) {
    const std::vector<RankFact> same = {{"the version", "1"}, {"the table", "5 series"}};
    std::vector<RankFact> other = same;
    other[1].value = mine.rank() == 2 ? "4 series" : "5 series";
    const auto fits = mine.check_same(same);
    const auto differs = mine.check_same(other);
    return fits.ok() && !differs.ok() && differs.error().code() == Errc::mismatch &&
                   has(differs.error(), "the table is \"5 series\" on rank 0 on ") &&
                   has(differs.error(), "and \"4 series\" on rank 2 on ")
               ? 0
               : kWrong;
  });
  CHECK(codes == all(3, 0));
}

TEST_CASE("a rank that is killed in the middle ends the training of the others, who name it") {
  if (!can_fork()) {
    return;
  }
  const auto codes = on_processes(3, [](JobRanks& mine) {
    forecast::TrainContext context;
    context.ranks = &mine;
    context.progress = [&](const forecast::TrainProgress& progress) {
      if (mine.rank() == 1 && progress.epoch == 2) {
        ::kill(::getpid(), SIGKILL);
      }
      return true;
    };
    const auto trained = train(context);
    if (trained.ok() || trained.error().code() != Errc::peer_dead ||
        !has(trained.error(), "rank 1 ")) {
      return kWrong;
    }
    // Everybody is to tell it: rank 0 could be the one that died.
    const auto outcome = mine.agree(trained.error());
    return !outcome.ok() && has(outcome.error(), "rank 1 ") && !mine.is_told_by_first() ? 0
                                                                                        : kWrong;
  });
  CHECK(codes == std::vector<int>{0, -SIGKILL, 0});
}

TEST_CASE("without a launcher a process is alone") {
  for (const char* name :
       {"HEADRACE_STORE", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"}) {
    if (base::environment(name)) {
      MESSAGE("skipped: " << name << " is set here");
      return;
    }
  }
  CHECK(JobRanks::place().value().size == 1);
  CHECK(JobRanks::join().value() == nullptr);
}
