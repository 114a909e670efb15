// SPDX-License-Identifier: Apache-2.0
// One training shared by ranks, here threads of one process, so that the sanitizers see all of
// them; headrace/jobs/training_ranks_test.cc has processes.
#include "headrace/forecast/training_ranks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/thread.h"
#include "headrace/forecast/example_series_test.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/network_internal.h"
#include "headrace/forecast/sharing_internal.h"

using namespace headrace;
using namespace headrace::forecast;

namespace {

/// Where threads meet: each leaves the address of its values and takes those of all in the order of
/// ranks.
struct Meeting {
  explicit Meeting(int ranks) : arrived(ranks), values(static_cast<size_t>(ranks)) {}
  std::barrier<> arrived;
  std::vector<const void*> values;
};

class ThreadRanks final : public TrainingRanks {
 public:
  ThreadRanks(Meeting* meeting, int rank) : meeting_(*meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(meeting_.values.size()); }
  Result<void> sum(std::span<float> values) override { return combine(values, false); }
  Result<void> sum(std::span<double> values) override { return combine(values, false); }
  Result<void> copy_from_first(std::span<float> values) override { return combine(values, true); }

 private:
  template <typename T>
  Result<void> combine(std::span<T> values, bool only_first) {
    meeting_.values[static_cast<size_t>(rank_)] = values.data();
    meeting_.arrived.arrive_and_wait();
    std::vector<T> out(values.size(), T(0));
    for (const void* from : meeting_.values) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] += static_cast<const T*>(from)[i];
      }
      if (only_first) {
        break;
      }
    }
    meeting_.arrived.arrive_and_wait();
    std::copy(out.begin(), out.end(), values.begin());
    return {};
  }

  Meeting& meeting_;
  int rank_;
};

using Training = std::function<Result<Trained>(int rank, TrainingRanks*)>;

/// What each rank gets out of it.
std::vector<Result<Trained>> on_ranks(int ranks, const Training& training) {
  Meeting meeting(ranks);
  std::vector<std::optional<Result<Trained>>> results(static_cast<size_t>(ranks));
  {
    std::vector<base::Thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back("rank", [&, rank] {
        ThreadRanks mine(&meeting, rank);
        results[static_cast<size_t>(rank)] = training(rank, &mine);
      });
    }
  }
  std::vector<Result<Trained>> out;
  for (auto& result : results) {
    out.push_back(*std::move(result));
  }
  return out;
}

std::vector<Series> some_series() {
  return {wave("A", 150), wave("B", 130, 3.0), wave("C", 170, 5000.0), wave("D", 90, 20.0)};
}

/// Losses by epoch, and the model.
struct Seen {
  std::vector<double> losses;
  std::vector<double> monitored;
  Model model;
};

Seen train_on(int ranks, const TrainOptions& options) {
  const std::vector<Series> series = some_series();
  std::vector<Seen> seen(static_cast<size_t>(ranks));
  auto results = on_ranks(ranks, [&](int rank, TrainingRanks* mine) {
    TrainContext context;
    context.ranks = mine;
    context.threads = ranks == 1 ? 1 : 2;  // members of one rank would tell in any order
    context.progress = [&, rank](const TrainProgress& progress) {
      seen[static_cast<size_t>(rank)].losses.push_back(progress.loss);
      seen[static_cast<size_t>(rank)].monitored.push_back(progress.monitored);
      return true;
    };
    return train_global(series, options, context);
  });
  for (size_t rank = 0; rank < seen.size(); ++rank) {
    REQUIRE(results[rank].ok());
    seen[rank].model = std::move(results[rank]->model);
    // The same bits on all ranks, decisions too.
    CHECK(seen[rank].losses == seen[0].losses);
    CHECK(seen[rank].monitored == seen[0].monitored);
    CHECK(seen[rank].model.members == seen[0].model.members);
    CHECK(seen[rank].model.training.dump() == seen[0].model.training.dump());
  }
  return std::move(seen.front());
}

double largest_difference(const std::vector<std::vector<float>>& a,
                          const std::vector<std::vector<float>>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t m = 0; m < a.size(); ++m) {
    REQUIRE(a[m].size() == b[m].size());
    for (size_t i = 0; i < a[m].size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(a[m][i] - b[m][i])));
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("parts of a batch have the loss, the gradient and the dropout of the whole") {
  NetworkShape shape;
  shape.lags = 3;
  shape.embeddings = {{5, 2}};
  shape.other_inputs = 4;
  shape.hidden = 8;
  constexpr int kBatch = 41;
  constexpr int kSteps = 7;
  base::Rng rng(7);
  const std::vector<float> parameters = initial_parameters(shape, &rng);
  const auto fill = [&](TrainingStep* step, int first, int count) {
    for (int b = 0; b < count; ++b) {
      base::Rng row(base::derive_seed(11, static_cast<uint64_t>(first + b)));
      step->set_category(b, 0, (first + b) % 5);
      step->scales()[b] = static_cast<float>(0.5 + row.uniform());
      for (int t = 0; t < kSteps; ++t) {
        step->target_row(t)[b] = static_cast<float>(row.normal());
        step->observed_row(t)[b] = (first + b + t) % 4 == 0 ? 0.0F : 1.0F;
        for (int i = 0; i < shape.inputs(); ++i) {
          step->input_row(t, b)[i] = static_cast<float>(row.normal());
        }
      }
    }
  };
  auto whole = TrainingStep::make(shape, kBatch, kSteps).value();
  fill(&whole, 0, kBatch);
  std::vector<float> expected(parameters.size());
  base::Rng dropout(3);
  const StepLoss loss = whole.loss_and_gradient(parameters, 0.3F, &dropout, expected);

  std::vector<float> sum(parameters.size());
  double loss_sum = 0.0;
  const int ends[] = {0, 16, 17, kBatch};
  for (int p = 0; p < 3; ++p) {
    const int count = ends[p + 1] - ends[p];
    auto part = TrainingStep::make(shape, count, kSteps, {ends[p], kBatch}).value();
    fill(&part, ends[p], count);
    std::vector<float> gradient(parameters.size());
    base::Rng same(3);
    loss_sum += part.loss_and_gradient(parameters, 0.3F, &same, gradient).loss;
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += gradient[i];
    }
  }
  CHECK(loss_sum == doctest::Approx(loss.loss).epsilon(1e-12));
  CHECK(largest_difference({sum}, {expected}) < 2e-7);
}

TEST_CASE("any number of ranks trains what one does, and all end with the same bits") {
  TrainOptions options = quick_options();
  options.batch = 12;
  options.epochs = 4;
  options.dropout = 0.2;
  const Seen alone = train_on(1, options);
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    const Seen shared = train_on(ranks, options);
    REQUIRE(shared.losses.size() == alone.losses.size());
    for (size_t e = 0; e < alone.losses.size(); ++e) {
      CHECK(shared.losses[e] == doctest::Approx(alone.losses[e]).epsilon(1e-8));
    }
    CHECK(largest_difference(shared.model.members, alone.model.members) < 1e-6);
    CHECK(train_on(ranks, options).model.members == shared.model.members);
  }
}

TEST_CASE("a rank of one is the training without ranks, bit for bit") {
  const auto plain = train_global(some_series(), quick_options()).value();
  CHECK(train_on(1, quick_options()).model.members == plain.model.members);
}

TEST_CASE("more ranks than windows in a batch: some have nothing to do, the result is the same") {
  TrainOptions options = quick_options();
  options.batch = 2;
  options.validation_windows = 1;
  const Seen alone = train_on(1, options);
  const Seen shared = train_on(5, options);
  CHECK(largest_difference(shared.model.members, alone.model.members) < 1e-6);
}

TEST_CASE("each monitor decides alike on all ranks, and as one rank does") {
  for (const char* monitor : {"horizon", "validation", "wql"}) {
    CAPTURE(monitor);
    TrainOptions options = quick_options();
    options.monitor = monitor;
    options.monitor_samples = 20;
    options.validation_windows = 1;
    options.epochs = 12;
    options.patience = 2;
    options.learning_rate = 0.03;
    options.refit = "full";
    options.snapshots = 2;
    options.members = 2;
    const Seen alone = train_on(1, options);
    const Seen shared = train_on(3, options);
    CHECK(shared.losses.size() == alone.losses.size());
    const auto epochs = [](const Seen& seen) {
      return seen.model.training.at("members").items()[0].get_number("best_epoch", -1.0);
    };
    CHECK(epochs(shared) == epochs(alone));
    CHECK(shared.monitored[0] == doctest::Approx(alone.monitored[0]).epsilon(1e-7));
  }
}

TEST_CASE("GluonTS's scale looks at the whole batch, whichever rank has the window") {
  std::vector<Series> series = {wave("A", 100, 100.0)};
  Series gap = wave("B", 100, 100.0);
  std::fill(gap.target.begin(), gap.target.begin() + 90, std::numeric_limits<double>::quiet_NaN());
  series.push_back(gap);  // most of its contexts have no value: the batch's mean is their scale
  TrainOptions options = quick_options();
  options.parity = true;
  options.epochs = 2;
  const auto train = [&](int, TrainingRanks* ranks) {
    TrainContext context;
    context.ranks = ranks;
    return train_global(series, options, context);
  };
  const auto alone = on_ranks(1, train);
  const auto shared = on_ranks(4, train);
  CHECK(largest_difference(shared[3]->model.members, alone[0]->model.members) < 1e-6);
}

TEST_CASE("what stops one rank ends the training on all of them with the same error") {
  for (const bool by_progress : {false, true}) {
    CAPTURE(by_progress);
    const auto results = on_ranks(3, [&](int rank, TrainingRanks* ranks) {
      TrainContext context;
      context.ranks = ranks;
      if (by_progress) {
        context.progress = [rank](const TrainProgress&) { return rank != 1; };
      } else {
        context.stop = [rank] { return rank == 1; };
      }
      return train_global(some_series(), quick_options(), context);
    });
    for (const auto& result : results) {
      REQUIRE_FALSE(result.ok());
      CHECK(result.error().code() == Errc::cancelled);
      CHECK(result.error().message() == results[0].error().message());
    }
  }
}

TEST_CASE("a loss that is not finite on one rank's part is skipped by all, and named by all") {
  TrainOptions options = quick_options();
  options.learning_rate = 1e30;
  options.clip_norm = 0.0;
  const auto results = on_ranks(3, [&](int, TrainingRanks* ranks) {
    TrainContext context;
    context.ranks = ranks;
    return train_global(some_series(), options, context);
  });
  for (const auto& result : results) {
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().message().find("was not finite in 10 steps") != std::string::npos);
  }
}

TEST_CASE("an error of the ranks ends the training with it") {
  class Broken final : public TrainingRanks {
   public:
    int rank() const override { return 0; }
    int size() const override { return 2; }
    Result<void> sum(std::span<float> /*values*/) override {
      return Error{Errc::peer_dead, "rank 1 has ended"};
    }
    Result<void> sum(std::span<double> /*values*/) override { return {}; }
    Result<void> copy_from_first(std::span<float> /*values*/) override { return {}; }
  } ranks;
  TrainContext context;
  context.ranks = &ranks;
  const auto result = train_global(some_series(), quick_options(), context);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code() == Errc::peer_dead);
  CHECK(result.error().message() == "rank 1 has ended");
}
