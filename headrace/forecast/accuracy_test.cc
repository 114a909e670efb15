// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/accuracy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/forecast/m4_test.h"
#include "headrace/forecast/naive.h"

using namespace headrace;
using namespace headrace::forecast;
using doctest::Approx;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A point forecast stands for its median, its mean and all its quantiles.
struct PointForecast {
  std::vector<double> point;
  std::vector<double> levels = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
  std::vector<double> quantiles;

  explicit PointForecast(std::vector<double> values) : point(std::move(values)) {
    for (size_t q = 0; q < levels.size(); ++q) {
      quantiles.insert(quantiles.end(), point.begin(), point.end());
    }
  }
  Judged judged(std::span<const double> training, std::span<const double> actual,
                int season) const {
    return {training, actual, point, point, levels, quantiles, {}, season};
  }
};

double number_or_nan(const Json& value) { return value.is_number() ? value.number() : kNaN; }

std::vector<double> numbers(const Json& list) {
  std::vector<double> values;
  for (const Json& item : list.items()) {
    values.push_back(number_or_nan(item));
  }
  return values;
}

/// An item of the golden file with quantiles and mean of its samples.
struct GoldenItem {
  std::vector<double> training;
  std::vector<double> actual;
  std::vector<float> samples;
  std::vector<double> levels;
  std::vector<double> quantiles;
  std::vector<double> median;
  std::vector<double> mean;

  GoldenItem(const Json& item, const std::vector<double>& quantile_levels)
      : training(numbers(item.at("train"))),
        actual(numbers(item.at("actual"))),
        levels(quantile_levels) {
    std::vector<std::vector<double>> paths;
    for (const Json& path : item.at("samples").items()) {
      paths.push_back(numbers(path));
      for (const double value : paths.back()) {
        samples.push_back(static_cast<float>(value));
      }
    }
    quantiles.resize(levels.size() * actual.size());
    for (size_t h = 0; h < actual.size(); ++h) {
      std::vector<double> column;
      double sum = 0.0;
      for (const std::vector<double>& path : paths) {
        column.push_back(path[h]);
        sum += path[h];
      }
      std::sort(column.begin(), column.end());
      mean.push_back(sum / static_cast<double>(paths.size()));
      for (size_t q = 0; q < levels.size(); ++q) {
        // Position level * (paths - 1), between order statistics.
        const double position = levels[q] * static_cast<double>(column.size() - 1);
        const auto below = static_cast<size_t>(position);
        const size_t above = std::min(below + 1, column.size() - 1);
        quantiles[q * actual.size() + h] =
            column[below] + (position - std::floor(position)) * (column[above] - column[below]);
        if (levels[q] == 0.5) {
          median.push_back(quantiles[q * actual.size() + h]);
        }
      }
    }
  }
  Judged judged(int season) const {
    return {training, actual, median, mean, levels, quantiles, samples, season};
  }
};

}  // namespace

TEST_CASE("metrics agree with the golden file, missing and constant items included") {
  // tests/data/gluonts_metrics.json names the program and versions that wrote it.
  const std::string path = HEADRACE_SOURCE_DIR "/tests/data/gluonts_metrics.json";
  const Json golden = parse_json(base::read_file(path).value(), path).value();
  const auto season = static_cast<int>(golden.get_integer("season"));
  const std::vector<double> levels = numbers(golden.at("quantile_levels"));
  Scoreboard first_three;
  int index = 0;
  for (const Json& json : golden.at("items").items()) {
    CAPTURE(index);
    const GoldenItem item(json, levels);
    Scoreboard board;
    board.add("item", "samples", item.judged(season));
    const Metrics& got = board.items().at(0).metrics;
    const Json& expected = json.at("expected");
    const auto check = [&](const char* name, double value) {
      CAPTURE(name);
      CHECK(value == Approx(number_or_nan(expected.at(name))).epsilon(1e-6));
    };
    if (expected.at("mase").is_null()) {
      CHECK(std::isnan(got.mase));
      CHECK(board.constant_items() == std::vector<std::string>{"item"});
      CHECK(got.named().count("mase") == 0);
    } else {
      check("mase", got.mase);
      CHECK(board.constant_items().empty());
    }
    check("smape", got.smape);
    check("mean_wql", got.mean_wql);
    check("nd", got.nd);
    check("rmse", got.rmse);
    check("nrmse", got.nrmse);
    check("coverage_80", got.coverage_80);
    check("coverage_90", got.coverage_90);
    check("crps", got.crps);
    const ErrorSums& sums = board.items().at(0).sums;
    check("width_80", sums.width_80 / static_cast<double>(sums.cells));
    check("abs_sum", sums.actual);
    const std::vector<double> losses = numbers(expected.at("quantile_loss"));
    for (size_t q = 0; q < losses.size(); ++q) {
      const double level = 0.1 * static_cast<double>(q + 1);
      double loss = kNaN;
      for (const auto& [known, sum] : sums.quantile_loss) {
        loss = std::fabs(known - level) < 1e-9 ? sum : loss;
      }
      CHECK(loss == Approx(losses[q]).epsilon(1e-6));
    }
    if (++index <= 3) {
      first_three.add("item " + std::to_string(index), "samples", item.judged(season));
    }
  }
  // GluonTS rounds quantiles to an order statistic and weighs MASE by cells, not by items: what
  // does not hang on that must agree.
  const Json& gluonts = golden.at("gluonts_first_three_items");
  const Metrics total = first_three.total();
  CHECK(total.nd == Approx(gluonts.get_number("ND[0.5]")).epsilon(1e-6));
  CHECK(total.rmse == Approx(gluonts.get_number("RMSE[mean]")).epsilon(1e-6));
  CHECK(total.nrmse == Approx(gluonts.get_number("NRMSE[mean]")).epsilon(1e-6));
}

TEST_CASE("the naive methods give the published scores on M4 Hourly") {
  // Seasonal naive MASE 1.1932, sMAPE 13.912, mean_wQL 0.04831, RMSE 1901.1; Naive2 MASE 2.3950,
  // sMAPE 18.383 (M4 competition); OWA of seasonal naive 0.6275.
  const auto train = read_m4("train");
  const auto test = read_m4("test");
  REQUIRE(train.size() == 414);
  REQUIRE(test.size() == 414);
  Scoreboard seasonal;
  Scoreboard second;
  for (size_t i = 0; i < train.size(); ++i) {
    const auto& [id, values] = train[i];
    const std::vector<double>& actual = test[i].second;
    REQUIRE(test[i].first == id);
    const PointForecast one(seasonal_naive(values, 48, 24));
    seasonal.add(id, "seasonal_naive", one.judged(values, actual, 24));
    const PointForecast two(naive2(values, 48, 24));
    second.add(id, "naive2", two.judged(values, actual, 24));
  }
  const Metrics a = seasonal.total();
  CHECK(a.mase == Approx(1.1932).epsilon(5e-5));
  CHECK(a.smape == Approx(13.912).epsilon(5e-5));
  CHECK(a.mean_wql == Approx(0.04831).epsilon(2e-4));
  CHECK(a.rmse == Approx(1901.1).epsilon(5e-5));
  const Metrics b = second.total();
  CHECK(b.mase == Approx(2.3950).epsilon(5e-5));
  CHECK(b.smape == Approx(18.383).epsilon(5e-5));
  CHECK(overall_weighted_average(a, b) == Approx(0.6275).epsilon(1e-4));
}

TEST_CASE("errors of a hand-made forecast") {
  // Training 1 2 3 5, season 1: mean |difference| = (1 + 1 + 2) / 3 = 4/3.
  // Actual 6 8, forecast 7 6: |error| 1 2, MASE = 1.5 / (4/3) = 1.125;
  // sMAPE = (200 * 1/13 + 200 * 2/14) / 2 = 21.978...; RMSE = sqrt(5/2); ND = 3/14.
  const std::vector<double> training = {1, 2, 3, 5};
  const std::vector<double> actual = {6, 8};
  const PointForecast forecast({7, 6});
  Scoreboard board;
  board.add("A", "point", forecast.judged(training, actual, 1));
  const Metrics total = board.total();
  CHECK(total.mase == Approx(1.125));
  CHECK(total.smape == Approx(100.0 / 13 + 200.0 / 14));
  CHECK(total.rmse == Approx(std::sqrt(2.5)));
  CHECK(total.nd == Approx(3.0 / 14));
  // At q the loss of a point is 2 max(q e, (q - 1) e): e = -1, 2; over the deciles the mean is |e|.
  CHECK(total.mean_wql == Approx(3.0 / 14));
  CHECK(board.step(1).mase == Approx(2 / (4.0 / 3)));
  CHECK(board.step(0).rmse == Approx(1.0));
}

TEST_CASE("the totals of a board are said by name, beside another board's") {
  // Errors 1 and 2 against 2 and 2: MASE 1.125 against 1.5, sMAPE as above against 200/14 + 200/14
  // halved, so that OWA is the mean of 0.75 and their ratio.
  const std::vector<double> training = {1, 2, 3, 5};
  const std::vector<double> actual = {6, 8};
  Scoreboard board;
  Scoreboard reference;
  board.add("A", "point", PointForecast({7, 6}).judged(training, actual, 1));
  reference.add("A", "point", PointForecast({8, 6}).judged(training, actual, 1));
  const auto named = board.named_totals(reference);
  CHECK(named.at("mase") == Approx(1.125));
  CHECK(named.at("median_mase") == Approx(1.125));
  CHECK(named.at("mean_item_wql") == Approx(3.0 / 14));
  CHECK(named.at("owa") == Approx(0.5 * (0.75 + (1.0 / 13 + 2.0 / 14) / (2.0 * 2.0 / 14))));
  CHECK(reference.named_totals(reference).at("owa") == Approx(1.0));
  // What cannot be said is absent: against a perfect reference there is no OWA.
  Scoreboard perfect;
  perfect.add("A", "point", PointForecast({6, 8}).judged(training, actual, 1));
  CHECK(board.named_totals(perfect).count("owa") == 0);
  CHECK(Scoreboard().named_totals(Scoreboard()).empty());
}

TEST_CASE("cells without an actual value are left out everywhere") {
  const std::vector<double> training = {1, 2, kNaN, 5};
  const std::vector<double> actual = {6, kNaN};
  const PointForecast forecast({7, 1000});
  Scoreboard board;
  board.add("A", "point", forecast.judged(training, actual, 1));
  CHECK(board.items().at(0).sums.cells == 1);
  CHECK(board.total().mase == Approx(1.0));  // one pair: |2 - 1|
  CHECK(std::isnan(board.step(1).rmse));
}

TEST_CASE("zero against zero costs nothing in sMAPE, and nothing is divided by zero") {
  const std::vector<double> training = {0, 0, 0};
  const std::vector<double> actual = {0, 0};
  Scoreboard board;
  board.add("A", "point", PointForecast({0, 0}).judged(training, actual, 1));
  const Metrics total = board.total();
  CHECK(total.smape == 0.0);
  CHECK(std::isnan(total.mase));
  CHECK(std::isnan(total.nd));
  CHECK(total.named().count("nd") == 0);
}

TEST_CASE("origins of one item are pooled, boards are merged") {
  const std::vector<double> training = {1, 2, 3, 5};
  const std::vector<double> actual = {6, 8};
  Scoreboard pooled;
  pooled.add("A", "point", PointForecast({7, 8}).judged(training, actual, 1));
  pooled.add("A", "point", PointForecast({6, 6}).judged(training, actual, 1));
  REQUIRE(pooled.items().size() == 1);
  CHECK(pooled.items()[0].sums.cells == 4);
  CHECK(pooled.items()[0].metrics.mase == Approx(3.0 / 4 / (4.0 / 3)));

  Scoreboard other;
  other.add("B", "point", PointForecast({6, 8}).judged(training, actual, 1));
  pooled.merge(other);
  CHECK(pooled.items().size() == 2);
  CHECK(pooled.median_mase() == Approx(0.5 * 3.0 / 4 / (4.0 / 3)));
  CHECK(pooled.step(0).nd == Approx(1.0 / 18));
}

TEST_CASE("mean_wQL is said only where all nine deciles are forecast") {
  const std::vector<double> training = {1, 2, 3, 5};
  const std::vector<double> actual = {6, 8};
  const std::vector<double> point = {7, 6};
  std::vector<double> levels = {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
  const auto total = [&] {
    std::vector<double> quantiles;
    for (size_t i = 0; i < levels.size(); ++i) {
      quantiles.insert(quantiles.end(), point.begin(), point.end());
    }
    Scoreboard board;
    board.add("A", "point", {training, actual, point, point, levels, quantiles, {}, 1});
    return board.total();
  };
  CHECK(std::isnan(total().mean_wql));
  CHECK(total().wql.at(0.1) > 0.0);
  levels.push_back(0.9);
  CHECK(total().mean_wql == Approx(3.0 / 14));
}
