// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "headrace/forecast/example_series_test.h"
#include "headrace/forecast/windows_internal.h"

using namespace headrace;
using namespace headrace::forecast;
using doctest::Approx;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Context 3, horizon 2, lags 1 2 5: past = 3 + 5 - 1 = 7.
ModelSpec small_spec() {
  ModelSpec spec;
  spec.frequency = parse_frequency("h").value();
  spec.horizon = 2;
  spec.context = 3;
  spec.lags = {1, 2, 5};
  spec.time_features = {TimeFeature::hour_of_day};
  spec.age = true;
  spec.scale_input = ScaleInput::raw;
  return spec;
}

Series counting(int length) {
  Series series = wave("A", 0);
  for (int i = 0; i < length; ++i) {
    series.target.push_back(i + 1.0);
  }
  return series;
}

PreparedSeries prepared(const ModelSpec& spec, const Series& series,
                        const InputScaling& scaling = {}) {
  return prepare_series(spec, scaling, series, {series.length(), 0, series.length()}).value();
}

/// What section 3.3 of the specification says of the row of step t, computed cell by cell.
std::vector<double> expected_row(const ModelSpec& spec, const Series& series, int64_t split, int t,
                                 double scale) {
  const int64_t newest = split - spec.context + t;
  std::vector<double> row;
  for (const int lag : spec.lags) {
    const int64_t at = newest - (lag - 1);
    const double value = at < 0 ? 0.0 : series.target[static_cast<size_t>(at)];
    row.push_back(std::isnan(value) ? 0.0 : value / scale);
  }
  row.push_back(std::log(scale));
  const int64_t position = newest + 1;
  if (position < 0) {
    row.insert(row.end(), {0.0, 0.0});
  } else {
    row.push_back(static_cast<double>(position % 24) / 23.0 - 0.5);  // the start is at midnight
    row.push_back(std::log10(2.0 + static_cast<double>(position)));
  }
  return row;
}

double mean_of_context(const ModelSpec& spec, const Series& series, int64_t split) {
  double sum = 0.0;
  int count = 0;
  for (int64_t i = std::max<int64_t>(0, split - spec.context); i < split; ++i) {
    const double value = series.target[static_cast<size_t>(i)];
    sum += std::isnan(value) ? 0.0 : std::fabs(value);
    count += std::isnan(value) ? 0 : 1;
  }
  return sum / count;
}

}  // namespace

TEST_CASE("each row of a window holds lags, log(scale) and features of the step it predicts") {
  const ModelSpec spec = small_spec();
  Series series = counting(30);
  series.target[4] = kNaN;
  series.target[17] = -3.0;
  const PreparedSeries columns = prepared(spec, series);
  const int steps = spec.context + spec.horizon - 1;
  TrainingStep step = TrainingStep::make(spec.shape(), 1, steps).value();
  BatchFiller filler(spec, {});
  for (int64_t split = 1; split <= 28; ++split) {
    CAPTURE(split);
    const WindowIndex window{0, split};
    filler.fill({&columns, 1}, {&window, 1}, {0, 1}, false, &step);
    const double scale = mean_of_context(spec, series, split);
    CHECK(step.scales()[0] == Approx(scale));
    for (int t = 0; t < steps; ++t) {
      CAPTURE(t);
      const std::vector<double> row = expected_row(spec, series, split, t, scale);
      for (size_t c = 0; c < row.size(); ++c) {
        CHECK(step.input_row(t, 0)[c] == Approx(row[c]).epsilon(1e-6));
      }
      const int64_t position = split - spec.context + t + 1;
      const bool observed =
          position >= 0 && !std::isnan(series.target[static_cast<size_t>(position)]);
      CHECK(step.observed_row(t)[0] == (observed ? 1.0F : 0.0F));
      if (observed) {
        CHECK(step.target_row(t)[0] ==
              static_cast<float>(series.target[static_cast<size_t>(position)]));
      }
    }
  }
}

TEST_CASE("rows of lags alone, and lags with and without neighbours, hold the same values") {
  for (const std::vector<int>& lags :
       {std::vector<int>{1}, {3}, {1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 24, 25}}) {
    for (const bool bare : {true, false}) {
      ModelSpec spec = small_spec();
      spec.lags = lags;
      if (bare) {
        spec.time_features.clear();
        spec.age = false;
        spec.scale_input = ScaleInput::off;
      }
      const Series series = counting(40);
      const PreparedSeries columns = prepared(spec, series);
      RowWriter writer(spec, {});
      writer.load(columns, 30, 2, 4.0);
      std::vector<float> row(static_cast<size_t>(spec.shape().inputs()));
      for (int t = 0; t < 4; ++t) {
        writer.write(columns, 30, t, row.data());
        for (size_t c = 0; c < lags.size(); ++c) {
          const int64_t at = 30 - 3 + t - (lags[c] - 1);
          CHECK(row[c] == static_cast<float>(series.target[static_cast<size_t>(at)] / 4.0));
        }
      }
    }
  }
}

TEST_CASE("rows beyond the windows are unobserved, and the context can be hidden from the loss") {
  const ModelSpec spec = small_spec();
  const PreparedSeries columns = prepared(spec, counting(30));
  TrainingStep step = TrainingStep::make(spec.shape(), 3, 4).value();
  BatchFiller filler(spec, {});
  const std::vector<WindowIndex> windows = {{0, 10}, {0, 20}};
  CHECK(filler.fill({&columns, 1}, windows, {0, 3}, false, &step) == 8);
  CHECK(filler.fill({&columns, 1}, windows, {0, 3}, true, &step) == 4);
  for (int t = 0; t < 4; ++t) {
    CHECK(step.observed_row(t)[0] == (t >= 2 ? 1.0F : 0.0F));
    CHECK(step.observed_row(t)[2] == 0.0F);
  }
}

TEST_CASE("a context without values takes the item's mean, an item of zeros takes 1") {
  const ModelSpec spec = small_spec();
  Series series = counting(20);
  std::fill(series.target.begin() + 5, series.target.begin() + 12, 0.0);
  const PreparedSeries zeros = prepared(spec, series);
  CHECK(window_scale(spec, zeros, context_sums(zeros, 11, 3), 0.0) == zeros.mean_absolute);

  std::fill(series.target.begin() + 5, series.target.begin() + 12, kNaN);
  const PreparedSeries missing = prepared(spec, series);
  CHECK(window_scale(spec, missing, context_sums(missing, 11, 3), 0.0) == missing.mean_absolute);
  CHECK(window_scale(spec, missing, context_sums(missing, 0, 3), 0.0) == missing.mean_absolute);

  std::fill(series.target.begin(), series.target.end(), 0.0);
  const PreparedSeries nothing = prepared(spec, series);
  CHECK(window_scale(spec, nothing, context_sums(nothing, 11, 3), 0.0) == 1.0);
}

TEST_CASE("GluonTS's scale rule: batch mean or default without values, floor for zeros") {
  ModelSpec spec = small_spec();
  spec.gluonts_scale = true;
  Series series = counting(20);
  std::fill(series.target.begin() + 5, series.target.begin() + 12, kNaN);
  const PreparedSeries missing = prepared(spec, series);
  CHECK(window_scale(spec, missing, context_sums(missing, 11, 3), 7.0) == 7.0);
  spec.default_scale = 3.0;
  CHECK(window_scale(spec, missing, context_sums(missing, 11, 3), 7.0) == 3.0);
  CHECK(window_scale(spec, missing, {0.0, 3}, 7.0) == 1e-10);
}

TEST_CASE("a floor keeps the scale from falling far below the item's mean") {
  ModelSpec spec = small_spec();
  spec.scale_floor = 0.1;
  Series series = counting(20);
  series.target[10] = series.target[9] = series.target[8] = 1e-6;
  const PreparedSeries columns = prepared(spec, series);
  CHECK(window_scale(spec, columns, context_sums(columns, 11, 3), 0.0) ==
        Approx(0.1 * columns.mean_absolute));
}

TEST_CASE("scales from 1e-12 to 1e12 keep their precision") {
  const ModelSpec spec = small_spec();
  for (const double factor : {1e-12, 1.0, 1e12}) {
    Series series = counting(20);
    for (double& value : series.target) {
      value *= factor;
    }
    const PreparedSeries columns = prepared(spec, series);
    CHECK(window_scale(spec, columns, context_sums(columns, 11, 3), 0.0) == Approx(10.0 * factor));
  }
}

TEST_CASE("splits are drawn uniformly over all positions of all series") {
  const ModelSpec spec = small_spec();
  const std::vector<PreparedSeries> series = {
      prepared(spec, counting(4)), prepared(spec, counting(1)), prepared(spec, counting(7))};
  const WindowSampler sampler(series, {2, 0, 0, false});
  CHECK(sampler.windows() == 3 + 6);
  std::map<std::pair<int, int64_t>, int> counts;
  base::Rng rng(4);
  constexpr int kDraws = 90000;
  for (int i = 0; i < kDraws; ++i) {
    const WindowIndex window = sampler.draw(&rng);
    ++counts[{window.series, window.split}];
  }
  REQUIRE(counts.size() == 9);
  for (const auto& [window, count] : counts) {
    CHECK(std::abs(count - kDraws / 9) < 5 * std::sqrt(kDraws / 9.0));  // five standard errors
    CHECK(window.second >= 0);
    CHECK(window.second <= series[static_cast<size_t>(window.first)].length() - 2);
  }
}

TEST_CASE("held-out values and a least past bound the splits; a short series keeps its last") {
  const ModelSpec spec = small_spec();
  const std::vector<PreparedSeries> series = {prepared(spec, counting(10)),
                                              prepared(spec, counting(5))};
  const WindowSampler sampler(series, {2, 4, 3, false});
  std::set<std::pair<int, int64_t>> seen;
  base::Rng rng(4);
  for (int i = 0; i < 500; ++i) {
    const WindowIndex window = sampler.draw(&rng);
    seen.insert({window.series, window.split});
  }
  // 10 - 3 - 2 = 5 is the last split of the first, 0 the only one of the second.
  CHECK(seen == std::set<std::pair<int, int64_t>>{{0, 4}, {0, 5}, {1, 0}});
  CHECK(WindowSampler(series, {2, 0, 9, false}).windows() == 0);
}

TEST_CASE("drawn by scale, a series of ten times the level is drawn ten times as often") {
  const ModelSpec spec = small_spec();
  Series large = counting(12);
  for (double& value : large.target) {
    value *= 10.0;
  }
  const std::vector<PreparedSeries> series = {prepared(spec, counting(12)), prepared(spec, large)};
  const WindowSampler sampler(series, {2, 0, 0, true});
  base::Rng rng(4);
  int of_large = 0;
  constexpr int kDraws = 50000;
  for (int i = 0; i < kDraws; ++i) {
    of_large += sampler.draw(&rng).series;
  }
  const double share = 10.0 / 11.0;
  CHECK(std::abs(of_large - kDraws * share) < 5 * std::sqrt(kDraws * share * (1 - share)));
}

TEST_CASE("counts are asked for by the negative binomial, with the first bad value named") {
  ModelSpec spec = small_spec();
  spec.distribution = Distribution::negative_binomial;
  Series series = counting(10);
  CHECK(prepare_series(spec, {}, series, {10, 0, 10}).ok());
  series.target[3] = 2.5;
  const auto result = prepare_series(spec, {}, series, {10, 0, 10});
  CHECK(result.error().message().find("item \"A\"") != std::string::npos);
  CHECK(result.error().message().find("2.5 at 2015-07-01 03:00:00") != std::string::npos);
  series.target[3] = -1.0;
  CHECK_FALSE(prepare_series(spec, {}, series, {10, 0, 10}).ok());
}

TEST_CASE("values that 32-bit floats cannot square are refused") {
  Series series = counting(10);
  series.target[3] = 1e35;
  CHECK_FALSE(prepare_series(small_spec(), {}, series, {10, 0, 10}).ok());
  series.target[3] = 1e-35;
  CHECK_FALSE(prepare_series(small_spec(), {}, series, {10, 0, 10}).ok());
}

TEST_CASE("categories become indices, unknown ones index 0 or an error that names the value") {
  ModelSpec spec = small_spec();
  spec.categories = {"store"};
  spec.dictionaries = {{"", "north", "south"}};
  Series series = counting(10);
  series.categories = {"south"};
  CHECK(prepared(spec, series).categories == std::vector<int>{2});
  series.categories = {"east"};
  CHECK(prepared(spec, series).categories == std::vector<int>{0});

  spec.unknown_category = false;
  spec.dictionaries = {{"north", "south"}};
  const auto result = prepare_series(spec, {}, series, {10, 0, 10});
  CHECK(result.error().message().find("\"east\" of category \"store\"") != std::string::npos);
  series.categories = {};
  CHECK_FALSE(prepare_series(spec, {}, series, {10, 0, 10}).ok());
}

TEST_CASE("real covariates are standardised, and must reach to the end of the range") {
  ModelSpec spec = small_spec();
  spec.static_reals = {"area"};
  spec.dynamic_reals = {"price"};
  InputScaling scaling;
  scaling.static_reals = {{10.0, 2.0}};
  scaling.dynamic_reals = {{1.0, 0.5}};
  Series series = counting(4);
  series.static_reals = {16.0};
  series.dynamic_reals = {{1.0, 2.0, 1.5, 0.0}};
  const PreparedSeries columns = prepared(spec, series, scaling);
  CHECK(columns.fixed == std::vector<float>{3.0F});
  REQUIRE(columns.dynamic_columns == 3);
  CHECK(columns.dynamic[2] == 0.0F);
  CHECK(columns.dynamic[3 + 2] == 2.0F);
  CHECK(columns.dynamic[9 + 2] == -2.0F);

  const auto result = prepare_series(spec, scaling, series, {4, 1, 6});
  CHECK(result.error().message().find("\"price\" has 4 values; 6 are needed, 2 of them after") !=
        std::string::npos);
}

TEST_CASE("a series of another frequency is a mismatch") {
  Series series = counting(10);
  series.frequency = parse_frequency("D").value();
  CHECK(prepare_series(small_spec(), {}, series, {10, 0, 10}).error().code() == Errc::mismatch);
}
