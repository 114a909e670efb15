// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "headrace/forecast/example_series_test.h"
#include "headrace/forecast/plan_internal.h"
#include "headrace/forecast/plateau_internal.h"
#include "headrace/forecast/snapshots_internal.h"
#include "headrace/forecast/trainer_internal.h"

using namespace headrace;
using namespace headrace::forecast;
using doctest::Approx;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Everything `fit` needs, kept alive together.
struct Bench {
  TrainOptions options;
  Plan plan;
  std::vector<PreparedSeries> series;

  Bench(const TrainOptions& given, const std::vector<Series>& data, Scope scope = Scope::local)
      : options(resolve(given, scope).value()) {
    std::vector<const Series*> pointers;
    for (const Series& s : data) {
      pointers.push_back(&s);
    }
    plan = make_plan(options, pointers, nullptr).value();
    for (const Series& s : data) {
      series.push_back(
          prepare_series(plan.spec, plan.scaling, s, {s.length(), 0, s.length()}).value());
    }
  }
  FitInput input(uint64_t seed = 1) const {
    return {plan.spec, plan.scaling, options, series, seed, {}, "item \"A\"", 0, {}};
  }
};

}  // namespace

TEST_CASE("the plateau scheduler lowers the rate as torch's does") {
  // torch 2.13 ReduceLROnPlateau(mode="min", factor=0.5, patience=2), lr 1.0, threshold 1e-4
  // relative: losses 5, 4, 4, 3.9999, 4, (third bad epoch: halved) 4, 4, 4 (halved again).
  Plateau plateau({1.0, 2, 0.5, 0.0, true});
  const double losses[] = {5, 4, 4, 3.9999, 4, 4, 4, 4};
  const double rates[] = {1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25};
  for (size_t i = 0; i < std::size(losses); ++i) {
    plateau.step(losses[i]);
    CHECK(plateau.learning_rate() == rates[i]);
  }
}

TEST_CASE("an absolute threshold does not depend on what is added to the loss") {
  base::Rng rng(3);
  for (const double shift : {0.0, -30.0, 30.0}) {
    Plateau here({1.0, 1, 0.5, 0.0, false});
    Plateau there({1.0, 1, 0.5, 0.0, false});
    for (int i = 0; i < 50; ++i) {
      const double loss = std::round(rng.normal() * 1024) / 1024;
      here.step(loss);
      there.step(loss + shift);
      CHECK(here.learning_rate() == there.learning_rate());
    }
  }
}

TEST_CASE("the rate stops at its floor, and stays with patience 0") {
  Plateau floor({1.0, 1, 0.1, 0.05, false});
  Plateau off({1.0, 0, 0.1, 0.0, false});
  for (int i = 0; i < 50; ++i) {
    floor.step(1.0);
    off.step(1.0);
  }
  CHECK(floor.learning_rate() == 0.05);
  CHECK(off.learning_rate() == 1.0);
}

TEST_CASE("snapshots keep the best weights, earlier ones first among equals") {
  Snapshots snapshots(2);
  CHECK(snapshots.empty());
  const std::vector<std::pair<double, float>> offers = {
      {3, 30}, {1, 10}, {2, 20}, {1, 11}, {kInfinity, 99}};
  for (const auto& [value, weight] : offers) {
    snapshots.offer(value, std::vector<float>{weight});
  }
  CHECK(snapshots.best() == 1.0);
  CHECK(snapshots.take(true) == std::vector<std::vector<float>>{{10}, {11}});

  for (const auto& [value, weight] : offers) {
    snapshots.offer(value, std::vector<float>{weight});
  }
  CHECK(snapshots.take(false) == std::vector<std::vector<float>>{{10.5F}});
}

TEST_CASE("training lowers the loss of a regular series") {
  TrainOptions options = quick_options();
  options.epochs = 20;
  options.batches_per_epoch = 20;
  options.validation_windows = 0;
  Bench bench(options, {wave("A", 300)});
  std::vector<double> losses;
  FitInput input = bench.input();
  input.progress = [&](const TrainProgress& progress) {
    losses.push_back(progress.loss);
    return true;
  };
  const Fit fitted = fit(input).value();
  // A standard normal at the right place would cost log(sigma) + 1.42 + log(100) = 3.0 at sigma
  // 0.05.
  CHECK(losses.back() < losses.front() - 0.8);
  CHECK(fitted.summary.epochs == 20);
  CHECK(fitted.summary.steps == 400);
  CHECK(fitted.summary.skipped_steps == 0);
  CHECK(fitted.summary.monitored == *std::min_element(losses.begin(), losses.end()));
  CHECK(losses[static_cast<size_t>(fitted.summary.best_epoch) - 1] == fitted.summary.loss);
}

TEST_CASE("the same input gives the same bits, another seed gives others") {
  const Bench bench(quick_options(), {wave("A", 200)});
  const auto first = fit(bench.input(5)).value().parameters;
  CHECK(first == fit(bench.input(5)).value().parameters);
  CHECK(first != fit(bench.input(6)).value().parameters);
}

TEST_CASE("every monitor stops early and keeps the best epoch") {
  for (const char* monitor : {"horizon", "validation", "wql"}) {
    CAPTURE(monitor);
    TrainOptions options = quick_options();
    options.monitor = monitor;
    options.monitor_samples = 20;
    options.epochs = 60;
    options.patience = 2;
    options.learning_rate = 0.05;  // overshoots soon
    Bench bench(options, {wave("A", 200), wave("B", 150)});
    std::vector<double> monitored;
    FitInput input = bench.input();
    input.progress = [&](const TrainProgress& progress) {
      monitored.push_back(progress.monitored);
      return true;
    };
    const FitSummary summary = fit(input).value().summary;
    CHECK(summary.epochs < 60);
    CHECK(summary.epochs == summary.best_epoch + 2);
    CHECK(summary.monitored == *std::min_element(monitored.begin(), monitored.end()));
  }
}

TEST_CASE("training windows never touch the validation tail") {
  // Were the tail seen, its absurd values would ruin the training loss.
  TrainOptions options = quick_options();
  options.monitor = "training";
  Series series = wave("A", 200);
  const Fit clean = fit(Bench(options, {series}).input()).value();
  std::fill(series.target.end() - options.horizon, series.target.end(), 1e6);
  Bench spoilt(options, {series});
  spoilt.series[0].mean_absolute = 0.0;  // only what the windows read is compared here
  CHECK(fit(spoilt.input()).value().parameters == clean.parameters);
}

TEST_CASE("a refit runs the best number of epochs on everything") {
  TrainOptions options = quick_options();
  options.refit = "full";
  options.epochs = 8;
  const Bench bench(options, {wave("A", 200)});
  const Fit fitted = fit(bench.input()).value();
  CHECK(fitted.summary.refitted);

  // The same as training on everything for that many epochs; the loss still falls, so that the best
  // epoch is the last.
  TrainOptions plain = bench.options;
  plain.epochs = fitted.summary.best_epoch;
  plain.validation_windows = 0;
  plain.monitor = "training";
  plain.refit = "none";
  FitInput input = bench.input();
  const FitInput all{input.spec, input.scaling, plain, input.series, input.seed, {},
                     input.name, input.member,  {}};
  const Fit expected = fit(all).value();
  REQUIRE(expected.summary.best_epoch == plain.epochs);
  CHECK(fitted.parameters == expected.parameters);
  CHECK(fitted.parameters.size() == 1);
}

TEST_CASE("snapshots become one average or a mixture, a running average is what is kept") {
  TrainOptions options = quick_options();
  options.snapshots = 3;
  const auto average = fit(Bench(options, {wave("A", 200)}).input()).value().parameters;
  options.snapshot_use = "mixture";
  const auto mixture = fit(Bench(options, {wave("A", 200)}).input()).value().parameters;
  REQUIRE(average.size() == 1);
  REQUIRE(mixture.size() == 3);
  CHECK(average[0][5] == Approx((mixture[0][5] + mixture[1][5] + mixture[2][5]) / 3.0F));

  TrainOptions running = quick_options();
  running.weight_average = 0.9;
  CHECK(fit(Bench(running, {wave("A", 200)}).input()).value().parameters !=
        fit(Bench(quick_options(), {wave("A", 200)}).input()).value().parameters);
}

TEST_CASE("weights that are not finite end training with the item and a remedy, not with NaN") {
  Bench bench(quick_options(), {wave("A", 200)});
  const std::vector<float> broken(static_cast<size_t>(parameter_total(bench.plan.spec.shape())),
                                  std::numeric_limits<float>::quiet_NaN());
  FitInput input = bench.input();
  input.start = broken;
  const auto result = fit(input);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message().find(
            "item \"A\": the loss or gradient was not finite in 10 steps") != std::string::npos);
  CHECK(result.error().message().find("learning_rate") != std::string::npos);
}

TEST_CASE("a progress function that says no cancels") {
  const Bench bench(quick_options(), {wave("A", 200)});
  FitInput input = bench.input();
  int told = 0;
  input.progress = [&](const TrainProgress&) { return ++told < 2; };
  const auto result = fit(input);
  CHECK(result.error().code() == Errc::cancelled);
  CHECK(told == 2);
}

TEST_CASE("training tells its loss over observed cells too, which gaps do not shrink") {
  const Series full = wave("A", 200);
  Series gaps = full;
  for (size_t i = 0; i < gaps.target.size(); i += 2) {
    gaps.target[i] = std::numeric_limits<double>::quiet_NaN();
  }
  const Json whole = train_local(full, quick_options(6)).value().model.training;
  const Json holes = train_local(gaps, quick_options(6)).value().model.training;

  CHECK(std::isfinite(whole.get_number("masked_loss", NAN)));
  CHECK(whole.at("members").items()[0].get_number("masked_loss", NAN) ==
        whole.get_number("masked_loss", NAN));
  // Windows at the start reach before the series, so that some cells are unobserved there too.
  CHECK(whole.get_number("loss", 0.0) / whole.get_number("masked_loss", 0.0) > 0.7);
  CHECK(holes.get_number("loss", 0.0) / holes.get_number("masked_loss", 0.0) < 0.6);
}
