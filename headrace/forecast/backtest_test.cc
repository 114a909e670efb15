// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/backtest.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "headrace/forecast/example_series_test.h"
#include "headrace/forecast/m4_test.h"
#include "headrace/forecast/naive.h"
#include "headrace/forecast/selection.h"

using namespace headrace;
using namespace headrace::forecast;
using doctest::Approx;

namespace {

PredictOptions few_samples() {
  PredictOptions options;
  options.samples = 20;
  return options;
}

Model naive_of(const Series& series, Method method) {
  TrainOptions options;
  options.horizon = 6;
  Model model = fallback_model(series, options);
  model.method = method;
  return model;
}

}  // namespace

TEST_CASE("origins cut at n - horizon - j stride and are scored against what came") {
  const Series series = wave("A", 150);
  const Comparison result =
      backtest({&series, 1}, Scope::local, quick_options(6), {3, 4, false}, few_samples()).value();
  REQUIRE(result.model.items().size() == 1);
  CHECK(result.model.items()[0].sums.cells == 3 * 6);
  CHECK(result.model.items()[0].method == "deepar");
  CHECK(std::isfinite(result.model.total().coverage_90));
  CHECK(std::isfinite(result.model.total().crps));

  // Seasonal naive by hand: origins at 136, 140, 144 of 150.
  double absolute = 0.0;
  for (const int cut : {136, 140, 144}) {
    for (int h = 0; h < 6; ++h) {
      absolute += std::fabs(series.target[static_cast<size_t>(cut + h)] -
                            series.target[static_cast<size_t>(cut + h - 24)]);
    }
  }
  CHECK(result.seasonal_naive.items().at(0).sums.absolute == Approx(absolute));
  CHECK(result.naive2.items().size() == 1);
}

TEST_CASE("trained once at the oldest cut, later origins differ from training anew") {
  const Series series = wave("A", 150);
  const auto run = [&](bool retrain) {
    return backtest({&series, 1}, Scope::local, quick_options(6), {2, 0, retrain}, few_samples())
        .value()
        .model.items()
        .at(0)
        .sums;
  };
  CHECK(run(false).absolute == run(false).absolute);
  CHECK(run(false).absolute != run(true).absolute);
}

TEST_CASE("local backtests of single items merge to the backtest of all") {
  const std::vector<Series> series = {wave("A", 120), wave("B", 130)};
  const auto run = [&](std::span<const Series> some) {
    return backtest(some, Scope::local, quick_options(6), {1, 0, false}, few_samples()).value();
  };
  Comparison merged = run({&series[0], 1});
  merged.merge(run({&series[1], 1}));
  const Comparison all = run(series);
  CHECK(merged.model.total().mean_wql == all.model.total().mean_wql);
  CHECK(merged.model.step(2).rmse == all.model.step(2).rmse);
  CHECK(merged.naive2.items().size() == 2);
}

TEST_CASE("a global backtest pools its origins by item; short items are errors") {
  const std::vector<Series> series = {wave("A", 120), wave("B", 130), wave("short", 12)};
  const Comparison result =
      backtest(series, Scope::global, quick_options(6), {2, 0, false}, few_samples()).value();
  REQUIRE(result.model.items().size() == 2);
  CHECK(result.model.items()[1].sums.cells == 12);
  REQUIRE(result.errors.size() == 1);
  CHECK(result.errors[0].item == "short");
  CHECK(result.errors[0].error.message().find("12 values; the oldest of 2 origins would leave 0") !=
        std::string::npos);
  CHECK(backtest(series, Scope::global, quick_options(6), {0, 0, false}, few_samples())
            .error()
            .code() == Errc::invalid_argument);
}

TEST_CASE("forecasts are judged by item and stamp, against what lay before them") {
  const Series whole = wave("A", 150);
  const Series past = whole.without_last(6);
  const Model model = naive_of(past, Method::seasonal_naive);
  PredictOptions options = few_samples();
  const std::vector<Forecast> forecasts = predict(model, {&past, 1}, options).value().items;

  // The actual values may come with the past or alone.
  Series tail = whole;
  tail.start_us = whole.stamp(144);
  tail.target.assign(whole.target.begin() + 144, whole.target.end());
  const auto scored = [&](const Series& training, const Series& actual) {
    return evaluate(forecasts, {&training, 1}, {&actual, 1}).value().model.total();
  };
  const Metrics a = scored(past, tail);
  CHECK(a.mase == scored(whole, whole).mase);
  double absolute = 0.0;
  for (size_t h = 0; h < 6; ++h) {
    absolute += std::fabs(forecasts[0].quantile(0.5)[h] - whole.target[144 + h]) / 6;
  }
  CHECK(a.mase == Approx(absolute / seasonal_error(past.target, 24)));

  const Series other = wave("B", 150);
  const auto errors = [&](const Series& training, const Series& actual) {
    return evaluate(forecasts, {&training, 1}, {&actual, 1}).value().errors.at(0).error.message();
  };
  CHECK(errors(other, tail).find("no past") != std::string::npos);
  CHECK(errors(past, other).find("no actual values") != std::string::npos);
  CHECK(errors(past, past).find("no actual value lies in") != std::string::npos);
}

TEST_CASE("seasonal naive beside a forecast of M4 Hourly has the published MASE") {
  const auto train = read_m4("train");
  const auto test = read_m4("test");
  std::vector<Series> past;
  std::vector<Series> came;
  std::vector<Forecast> forecasts;
  for (size_t i = 0; i < train.size(); ++i) {
    past.push_back(hourly_series(train[i].first, train[i].second));
    came.push_back(hourly_series(train[i].first, test[i].second));
    came.back().start_us = past.back().stamp(past.back().length());
    TrainOptions options;
    options.horizon = 48;
    PredictOptions predict_options;
    const Model model = fallback_model(past.back(), options);
    forecasts.push_back(predict(model, {&past.back(), 1}, predict_options).value().items.at(0));
  }
  const Comparison result = evaluate(forecasts, past, came).value();
  CHECK(result.errors.empty());
  CHECK(result.seasonal_naive.total().mase == Approx(1.1932).epsilon(5e-5));
  CHECK(result.naive2.total().smape == Approx(18.383).epsilon(5e-5));
  // With its in-sample spread around it, seasonal naive is a better probabilistic forecast than the
  // bare point (0.04831), and its 80 % interval covers roughly that share.
  const Metrics spread = result.model.total();
  CHECK(spread.mean_wql < 0.04831);
  CHECK(spread.coverage_80 > 0.65);
  CHECK(spread.coverage_80 < 0.95);
}

TEST_CASE("the candidate that forecasts the recent past best is chosen, with all scores kept") {
  const Series series = wave("A", 150, 100.0, 0.01);
  const Model seasonal = naive_of(series, Method::seasonal_naive);
  const Model last = naive_of(series, Method::last_value);
  const std::vector<Candidate> candidates = {{"last_value", &last}, {"seasonal_naive", &seasonal}};
  const Selection selection = select_model(series, candidates, {}, few_samples()).value();
  CHECK(selection.best == 1);
  REQUIRE(selection.scores.size() == 2);
  CHECK(selection.scores[0].name == "last_value");
  CHECK(selection.scores[1].score < selection.scores[0].score);
  CHECK(selection.scores[1].score == selection.scores[1].metrics.mean_wql);

  // A margin that the second does not reach keeps the first.
  SelectOptions wary;
  wary.margin = 0.9999;
  CHECK(select_model(series, candidates, wary, few_samples()).value().best == 0);
  for (const char* criterion : {"mase", "crps"}) {
    SelectOptions options;
    options.criterion = criterion;
    options.windows = 2;
    CHECK(select_model(series, candidates, options, few_samples()).value().best == 1);
  }
}

TEST_CASE("network and seasonal naive are averaged by the inverse squares of their scores") {
  const Series series = wave("A", 150, 100.0, 0.1);
  const Model network = train_local(series, quick_options(6)).value().model;
  const Model naive = naive_of(series, Method::seasonal_naive);
  const std::vector<Candidate> candidates = {{"local", &network}, {"seasonal_naive", &naive}};
  SelectOptions options;
  PredictOptions predict_options;
  predict_options.samples = 101;
  const Selection selection = select_model(series, candidates, options, predict_options).value();
  CHECK(selection.best == 0);
  REQUIRE(selection.scores.size() == 3);
  const double a = selection.scores[0].score;
  const double b = selection.scores[1].score;
  CHECK(selection.naive_share == Approx(a * a / (a * a + b * b)));
  CHECK(selection.scores[2].name == "local+naive");
  CHECK(selection.scores[2].score < std::max(a, b));

  options.criterion = "crps";
  const Selection by_crps = select_model(series, candidates, options, predict_options).value();
  REQUIRE(by_crps.scores.size() == 3);
  CHECK(by_crps.scores[2].score < std::max(by_crps.scores[0].score, by_crps.scores[1].score));
  options.combine = false;
  CHECK(select_model(series, candidates, options, predict_options).value().scores.size() == 2);

  // Of 101 paths the middle one has level 1/2, so that the medians are averaged exactly.
  Model both = network;
  both.naive_share = 0.25;
  const auto alone = predict(network, {&series, 1}, predict_options).value().items.at(0);
  const auto season = predict(naive, {&series, 1}, predict_options).value().items.at(0);
  predict_options.keep_samples = true;
  const auto mixed = predict(both, {&series, 1}, predict_options).value().items.at(0);
  for (size_t h = 0; h < 6; ++h) {
    const double wanted = 0.75 * alone.quantile(0.5)[h] + 0.25 * season.quantile(0.5)[h];
    CHECK(mixed.quantile(0.5)[h] == Approx(wanted).epsilon(1e-6));
    double sum = 0.0;
    for (size_t path = 0; path < 101; ++path) {
      sum += static_cast<double>(mixed.samples[path * 6 + h]);
    }
    CHECK(mixed.mean[h] == Approx(sum / 101.0));
  }
}

TEST_CASE("what is far worse than the other gets no share") {
  const Series series = wave("A", 150, 100.0, 0.01);
  Model network = train_local(series, quick_options(6)).value().model;
  const Model naive = naive_of(series, Method::seasonal_naive);
  for (std::vector<float>& weights : network.members) {
    weights.assign(weights.size(), 0.0F);  // mu = 0: far off
  }
  SelectOptions options;
  const std::vector<Candidate> candidates = {{"local", &network}, {"seasonal_naive", &naive}};
  const Selection selection = select_model(series, candidates, options, few_samples()).value();
  CHECK(selection.best == 1);
  CHECK(selection.naive_share == 0.0);
  CHECK(selection.scores.size() == 2);
}

TEST_CASE("where a score has no value, models are compared by their quantile loss") {
  Series series = wave("A", 120);
  for (size_t i = 0; i < series.target.size(); ++i) {
    series.target[i] = i < 100 && i % 25 == 0 ? 5.0 : 0.0;
  }
  TrainOptions options = quick_options(6);
  const Model network = train_local(wave("B", 200), options).value().model;
  const Model naive = fallback_model(series, options);
  Model last = naive;
  last.method = Method::last_value;

  const Candidate candidates[] = {{"global", &network}, {"last_value", &last}};
  const Selection selection =
      select_model(series, candidates, {.windows = 1}, few_samples()).value();

  CHECK(selection.criterion == "quantile_loss");
  CHECK(selection.best == 1);
  CHECK(selection.naive_share == 0.0);
  CHECK(std::isfinite(selection.scores[0].score));
  CHECK(selection.scores[1].score < selection.scores[0].score);

  // Equals: the simplest. With values, the usual score.
  std::fill(series.target.begin(), series.target.end(), 0.0);
  const Candidate same[] = {{"global", &last}, {"seasonal_naive", &naive}};
  CHECK(select_model(series, same, {}, few_samples()).value().best == 0);
  CHECK(select_model(wave("A", 120), candidates, {}, few_samples()).value().criterion ==
        "mean_wql");
}

TEST_CASE("a choice needs candidates, a known criterion and enough values") {
  const Series series = wave("A", 12);
  const Model last = naive_of(series, Method::last_value);
  const std::vector<Candidate> candidates = {{"last_value", &last}};
  CHECK(select_model(series, {}, {}, few_samples()).error().code() == Errc::invalid_argument);
  SelectOptions options;
  options.criterion = "luck";
  CHECK(
      select_model(series, candidates, options, few_samples()).error().message().find("\"luck\"") !=
      std::string::npos);
  options = {};
  options.windows = 2;
  CHECK(select_model(series, candidates, options, few_samples()).error().code() ==
        Errc::unsupported);
}
