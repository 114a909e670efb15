// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/forecaster.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "headrace/forecast/example_series_test.h"

using namespace headrace;
using namespace headrace::forecast;
using doctest::Approx;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

PredictOptions with_samples(int samples = 40) {
  PredictOptions options;
  options.samples = samples;
  options.keep_samples = true;
  return options;
}

Forecast forecast_one(const Model& model, const Series& series,
                      const PredictOptions& options = with_samples()) {
  const Forecasts forecasts = predict(model, {&series, 1}, options).value();
  REQUIRE(forecasts.errors.empty());
  REQUIRE(forecasts.items.size() == 1);
  return forecasts.items.front();
}

/// 0, but for every fifth value.
Series rare_counts(const std::string& id, int length) {
  Series series = wave(id, length, 4.0, 0.2);
  for (size_t i = 0; i < series.target.size(); ++i) {
    series.target[i] = i % 5 == 2 ? std::ceil(std::fabs(series.target[i])) : 0.0;
  }
  return series;
}

bool all_finite(const Forecast& forecast) {
  const auto finite = [](auto value) { return std::isfinite(value); };
  return std::all_of(forecast.samples.begin(), forecast.samples.end(), finite) &&
         std::all_of(forecast.quantiles.begin(), forecast.quantiles.end(), finite) &&
         std::all_of(forecast.mean.begin(), forecast.mean.end(), finite);
}

std::string message_of(const auto& result) { return result.ok() ? "" : result.error().message(); }

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool notes_mention(const Trained& trained, const std::string& part) {
  return std::any_of(trained.notes.begin(), trained.notes.end(),
                     [&](const std::string& note) { return mentions(note, part); });
}

}  // namespace

TEST_CASE("a local model learns a daily wave and forecasts it with sensible intervals") {
  TrainOptions options = quick_options(12);
  options.context = 24;
  options.hidden = 16;
  options.epochs = 20;
  options.batches_per_epoch = 25;
  options.batch = 16;
  const Series whole = wave("A", 412, 100.0, 0.05);
  const Series past = whole.without_last(12);
  const Trained trained = train_local(past, options).value();
  const Forecast forecast = forecast_one(trained.model, past, with_samples(200));
  CHECK(forecast.start_us == whole.stamp(400));
  CHECK(forecast.id == "A");
  const auto low = forecast.quantile(0.1);
  const auto median = forecast.quantile(0.5);
  const auto high = forecast.quantile(0.9);
  double error = 0.0;
  int inside = 0;
  for (size_t h = 0; h < 12; ++h) {
    const double actual = whole.target[400 + h];
    error += std::fabs(actual - median[h]) / 12.0;
    inside += low[h] <= actual && actual <= high[h] ? 1 : 0;
    CHECK(high[h] - low[h] > 1.0);    // noise has standard deviation 5
    CHECK(high[h] - low[h] < 100.0);  // the wave goes from 50 to 150
  }
  CHECK(error < 15.0);
  CHECK(inside >= 6);
  CHECK(trained.model.training.get_integer("steps") > 0);
}

TEST_CASE("quantiles are interpolated order statistics of the paths, the mean is theirs") {
  const Series series = wave("A", 120);
  const Model model = train_local(series, quick_options()).value().model;
  const Forecast forecast = forecast_one(model, series, with_samples(21));
  REQUIRE(forecast.samples.size() == 21 * 6);
  for (size_t h = 0; h < 6; ++h) {
    std::vector<double> column;
    double sum = 0.0;
    for (size_t p = 0; p < 21; ++p) {
      column.push_back(static_cast<double>(forecast.samples[p * 6 + h]));
      sum += column.back();
    }
    std::sort(column.begin(), column.end());
    CHECK(forecast.mean[h] == Approx(sum / 21));
    CHECK(forecast.quantile(0.5)[h] == column[10]);  // position 0.5 * 20
    CHECK(forecast.quantile(0.1)[h] == column[2]);
    CHECK(forecast.quantile(0.9)[h] == Approx(column[18]));
  }
}

TEST_CASE("an item's forecast is the same bits alone, among others, and in any order") {
  std::vector<Series> series;
  for (int i = 0; i < 30; ++i) {
    series.push_back(wave("item " + std::to_string(i), 60 + 3 * i, 10.0 + i));
  }
  TrainOptions options = quick_options();
  options.validation_windows = 0;
  const Model model = train_global(series, options).value().model;
  for (const int samples : {7, 100, 1300}) {
    CAPTURE(samples);
    const PredictOptions predict_options = with_samples(samples);
    const Forecasts together = predict(model, series, predict_options).value();
    std::vector<Series> reversed(series.rbegin(), series.rend());
    const Forecasts backwards = predict(model, reversed, predict_options).value();
    for (const size_t i : {size_t{0}, size_t{11}, size_t{29}}) {
      const Forecast alone = forecast_one(model, series[i], predict_options);
      CHECK(alone.samples == together.items[i].samples);
      CHECK(alone.samples == backwards.items[29 - i].samples);
      CHECK(alone.quantiles == together.items[i].quantiles);
    }
  }
}

TEST_CASE("a global model depends neither on the order of series nor on the number of threads") {
  std::vector<Series> series = {wave("A", 100), wave("B", 80, 3.0), wave("C", 120, 1e5)};
  TrainOptions options = quick_options();
  options.members = 3;
  TrainContext one;
  const Model first = train_global(series, options, one).value().model;
  std::swap(series[0], series[2]);
  TrainContext three;
  three.threads = 3;
  const Model second = train_global(series, options, three).value().model;
  CHECK(first.members == second.members);
  REQUIRE(first.members.size() == 3);
  CHECK(first.members[0] != first.members[1]);
  CHECK(to_data(first).header == to_data(second).header);
}

TEST_CASE("paths of an ensemble are split evenly over its members") {
  const Series series = wave("A", 120);
  TrainOptions options = quick_options();
  options.members = 2;
  const Model both = train_local(series, options).value().model;
  Model only_second = both;
  only_second.members = {both.members[1], both.members[1]};
  const Forecast mixed = forecast_one(both, series, with_samples(40));
  const Forecast second = forecast_one(only_second, series, with_samples(40));
  const size_t half = 20 * 6;
  CHECK(
      std::equal(mixed.samples.begin() + half, mixed.samples.end(), second.samples.begin() + half));
  CHECK_FALSE(
      std::equal(mixed.samples.begin(), mixed.samples.begin() + half, second.samples.begin()));
}

TEST_CASE("missing values are masked, and a series of them alone fails by name") {
  Series series = wave("A", 200);
  for (size_t i = 0; i < series.target.size(); i += 3) {
    series.target[i] = kNaN;
  }
  std::fill(series.target.end() - 20, series.target.end(), kNaN);  // longer than the context
  const Trained trained = train_local(series, quick_options()).value();
  CHECK(all_finite(forecast_one(trained.model, series)));

  std::fill(series.target.begin(), series.target.end(), kNaN);
  CHECK(mentions(message_of(train_local(series, quick_options())), "item \"A\": none of 200"));
  const Forecasts forecasts = predict(trained.model, {&series, 1}, with_samples()).value();
  CHECK(forecasts.items.empty());
  CHECK(forecasts.errors.at(0).item == "A");
}

TEST_CASE("a series too short to train is unsupported and falls back to a naive method") {
  const TrainOptions options = quick_options(6);
  const Series six = wave("A", 6);
  CHECK(train_local(six, options).error().code() == Errc::unsupported);
  CHECK(fallback_model(six, options).method == Method::last_value);
  const Series day = wave("A", 24);
  const Model model = fallback_model(day, options);
  CHECK(model.method == Method::seasonal_naive);
  const Forecast forecast = forecast_one(model, day);
  CHECK(forecast.mean[0] == day.target[0]);
  CHECK(forecast.method == Method::seasonal_naive);
  CHECK(all_finite(forecast));
}

TEST_CASE("lengths from the shortest possible on work by padding") {
  for (const int length : {7, 8, 12, 13, 19, 20, 31}) {
    CAPTURE(length);
    const Series series = wave("A", length);
    const Trained trained = train_local(series, quick_options(6)).value();
    CHECK(all_finite(forecast_one(trained.model, series)));
    CHECK(notes_mention(trained, "validation windows") == (length < 13));
  }
}

TEST_CASE("a constant series is forecast as its constant") {
  Series series = wave("A", 100);
  std::fill(series.target.begin(), series.target.end(), 7.5);
  series.target[4] = kNaN;
  const Trained trained = train_local(series, quick_options()).value();
  CHECK(trained.model.method == Method::last_value);
  CHECK(notes_mention(trained, "all observed values are equal"));
  const Forecast forecast = forecast_one(trained.model, series);
  for (const double value : forecast.quantiles) {
    CHECK(value == 7.5);
  }
  CHECK(all_finite(forecast));
}

TEST_CASE("a network trained on a constant closes in on it without NaN") {
  // The reference's rules, which know no special case.
  TrainOptions options = quick_options();
  options.parity = true;
  options.epochs = 40;
  options.batches_per_epoch = 25;
  Series series = wave("A", 100);
  std::fill(series.target.begin(), series.target.end(), 7.5);
  const Trained trained = train_local(series, options).value();
  REQUIRE(trained.model.method == Method::deepar);
  const Forecast forecast = forecast_one(trained.model, series);
  CHECK(all_finite(forecast));
  CHECK(forecast.quantile(0.5)[5] == Approx(7.5).epsilon(0.05));
  CHECK(forecast.quantile(0.9)[5] - forecast.quantile(0.1)[5] < 1.0);
}

TEST_CASE("series of zeros, and contexts of zeros in an intermittent one, stay in bounds") {
  Series zeros = wave("A", 100);
  std::fill(zeros.target.begin(), zeros.target.end(), 0.0);
  const Forecast none = forecast_one(train_local(zeros, quick_options()).value().model, zeros);
  CHECK(
      std::all_of(none.quantiles.begin(), none.quantiles.end(), [](double q) { return q == 0.0; }));

  Series intermittent = zeros;
  for (size_t i = 0; i < 60; i += 19) {
    intermittent.target[i] = 40.0;
  }
  const Trained trained = train_local(intermittent, quick_options()).value();
  const Forecast forecast = forecast_one(trained.model, intermittent);
  CHECK(all_finite(forecast));
  for (const float value : forecast.samples) {
    CHECK(std::fabs(value) <= 40.0F + 10.0F * 40.0F);
  }
}

TEST_CASE("scaling the target by a power of two scales the forecasts exactly") {
  for (const char* distribution : {"student_t", "normal"}) {
    for (const int exponent : {-40, -3, 1, 40}) {
      CAPTURE(distribution);
      CAPTURE(exponent);
      TrainOptions options = quick_options();
      options.distribution = distribution;
      options.scale_input = "off";  // log(scale) is the one input that knows the unit
      const Series series = wave("A", 150);
      Series scaled = series;
      for (double& value : scaled.target) {
        value = std::ldexp(value, exponent);
      }
      const Forecast here = forecast_one(train_local(series, options).value().model, series);
      const Forecast there = forecast_one(train_local(scaled, options).value().model, scaled);
      bool equal = true;
      for (size_t i = 0; i < here.samples.size(); ++i) {
        equal = equal && std::ldexp(here.samples[i], exponent) == there.samples[i];
      }
      CHECK(equal);
    }
  }
}

TEST_CASE("huge and tiny levels train with the default inputs") {
  for (const double level : {1e-12, 1e12}) {
    const Series series = wave("A", 150, level);
    const Forecast forecast =
        forecast_one(train_local(series, quick_options()).value().model, series);
    CHECK(all_finite(forecast));
    CHECK(forecast.quantile(0.5)[0] == Approx(level).epsilon(2.0));
  }
}

TEST_CASE("infinite values are an error with the stamp") {
  Series series = wave("A", 100);
  series.target[30] = std::numeric_limits<double>::infinity();
  CHECK(mentions(message_of(train_local(series, quick_options())),
                 "infinite at 2015-07-02 06:00:00"));
}

TEST_CASE("a path that runs away is cut at the limit and comes back") {
  const Series series = wave("A", 150);
  Model model = train_local(series, quick_options(24)).value().model;
  for (float& weight : model.members[0]) {
    weight *= 40.0F;  // an unstable network
  }
  PredictOptions options = with_samples(50);
  options.path_limit = 2.0;
  const Forecast forecast = forecast_one(model, series, options);
  const auto [low, high] = std::minmax_element(series.target.begin(), series.target.end());
  double mean = 0.0;
  for (const double value : series.target) {
    mean += value / 150.0;
  }
  const double range = std::max(*high - *low, mean);
  CHECK(forecast.limited_values > 0);
  for (const float value : forecast.samples) {
    CHECK(value <= *high + 2.001 * range);
    CHECK(value >= *low - 2.001 * range);
  }
  options.path_limit = 0.0;
  CHECK(all_finite(forecast_one(model, series, options)));
}

TEST_CASE("counts stay counts, and nonnegative cuts at zero after drawing") {
  TrainOptions options = quick_options();
  options.distribution = "negative_binomial";
  Series series = wave("A", 150, 20.0, 0.2);
  for (double& value : series.target) {
    value = std::max(0.0, std::floor(value));
  }
  const Forecast counts = forecast_one(train_local(series, options).value().model, series);
  for (const float value : counts.samples) {
    CHECK(value >= 0.0F);
    CHECK(std::fabs(value - std::round(value)) < 1e-3F);
  }
  series.target[7] = 0.5;
  CHECK(mentions(message_of(train_local(series, options)), "needs counts"));

  const Series around_zero = wave("B", 150, 1.0, 2.0);
  const Model model = train_local(around_zero, quick_options()).value().model;
  PredictOptions nonnegative = with_samples();
  const Forecast free = forecast_one(model, around_zero, nonnegative);
  nonnegative.nonnegative = true;
  const Forecast cut = forecast_one(model, around_zero, nonnegative);
  REQUIRE(*std::min_element(free.samples.begin(), free.samples.end()) < 0.0F);
  for (size_t i = 0; i < free.samples.size(); ++i) {
    CHECK(cut.samples[i] == std::max(0.0F, free.samples[i]));
  }
}

TEST_CASE("counts do not fall below 0 where seasonal naive is added, or stands for them") {
  TrainOptions options = quick_options();
  options.distribution = "negative_binomial";
  const Series series = rare_counts("A", 150);
  Model model = train_local(series, options).value().model;
  model.naive_share = 0.7;
  for (const Model& one : {model, fallback_model(series, options)}) {
    const Forecast forecast = forecast_one(one, series);
    CHECK(*std::ranges::min_element(forecast.samples) >= 0.0F);
    CHECK(*std::ranges::min_element(forecast.quantiles) >= 0.0);
    CHECK(*std::ranges::min_element(forecast.mean) >= 0.0);
  }
  options.distribution = "student_t";
  const Forecast free = forecast_one(fallback_model(series, options), series);
  CHECK(*std::ranges::min_element(free.quantiles) < 0.0);
}

TEST_CASE("training on counts that are mostly 0 names the distribution made for them") {
  const std::string told = "80 % of the values are 0: --distribution negative_binomial";
  TrainOptions options = quick_options();
  const Series series = rare_counts("A", 150);
  CHECK(notes_mention(train_local(series, options).value(), told));
  CHECK(notes_mention(train_global({{series, rare_counts("B", 150)}}, options).value(), told));
  CHECK_FALSE(notes_mention(train_global({{series, wave("B", 150)}}, options).value(), "are 0"));

  Series other = series;
  other.target[3] = 0.5;
  CHECK_FALSE(notes_mention(train_local(other, options).value(), "are 0"));
  other.target[3] = -2.0;
  CHECK_FALSE(notes_mention(train_local(other, options).value(), "are 0"));
  options.distribution = "negative_binomial";
  CHECK_FALSE(notes_mention(train_local(series, options).value(), "are 0"));
}

TEST_CASE("a value that training did not see is index 0, or an error for its item alone") {
  std::vector<Series> series = {wave("A", 100), wave("B", 100)};
  series[0].categories = {"north"};
  series[1].categories = {"south"};
  TrainOptions options = quick_options();
  options.categories = {"region"};
  std::vector<Series> asked = series;
  asked[1].categories = {"east"};
  const Model open = train_global(series, options).value().model;
  CHECK(open.spec.dictionaries == std::vector<std::vector<std::string>>{{"", "north", "south"}});
  CHECK(predict(open, asked, with_samples()).value().items.size() == 2);

  options.unknown_category = false;
  const Model closed = train_global(series, options).value().model;
  const Forecasts forecasts = predict(closed, asked, with_samples()).value();
  CHECK(forecasts.items.size() == 1);
  CHECK(forecasts.errors.at(0).item == "B");
  CHECK(mentions(forecasts.errors[0].error.message(), "\"east\""));
}

TEST_CASE("known covariates of the future are used, and missed by name when absent") {
  Series series = wave("A", 200, 100.0, 0.01);
  series.dynamic_reals.emplace_back();
  base::Rng rng(8);
  for (int i = 0; i < 206; ++i) {
    const double promotion = rng.below(2) == 0 ? 0.0 : 1.0;
    series.dynamic_reals[0].push_back(promotion);
    if (i < 200) {
      series.target[static_cast<size_t>(i)] = 100.0 + 100.0 * promotion + rng.normal();
    }
  }
  TrainOptions options = quick_options(6);
  options.dynamic_reals = {"promotion"};
  options.lags = {1, 2};
  options.epochs = 30;
  options.batches_per_epoch = 20;
  const Model model = train_local(series, options).value().model;
  const Forecast forecast = forecast_one(model, series);
  for (size_t h = 0; h < 6; ++h) {
    const double expected = 100.0 + 100.0 * series.dynamic_reals[0][200 + h];
    CHECK(std::fabs(forecast.quantile(0.5)[h] - expected) < 50.0);
  }
  series.dynamic_reals[0].resize(203);
  const Forecasts without = predict(model, {&series, 1}, with_samples()).value();
  CHECK(mentions(without.errors.at(0).error.message(),
                 "\"promotion\" has 203 values; 206 are needed"));
}

TEST_CASE("a warm start begins with the stored weights and refuses another architecture by field") {
  const std::vector<Series> series = {wave("A", 150), wave("B", 150)};
  TrainOptions options = quick_options();
  options.members = 2;
  const Model global = train_global(series, options).value().model;

  TrainOptions local = quick_options(4);  // the horizon may differ
  local.context = -1;
  local.lags = {};
  local.learning_rate = 1e-12;  // weights stay where they begin
  TrainContext warm;
  warm.warm = &global;
  const Model from_global = train_local(series[0], local, warm).value().model;
  CHECK(from_global.spec.lags == global.spec.lags);
  CHECK(from_global.spec.context == global.spec.context);
  REQUIRE(from_global.members.size() == 2);
  for (size_t m = 0; m < 2; ++m) {
    for (size_t i = 0; i < global.members[m].size(); ++i) {
      CHECK(std::fabs(from_global.members[m][i] - global.members[m][i]) < 1e-6F);
    }
  }
  local.hidden = 12;
  const auto wider = train_local(series[0], local, warm);
  CHECK(wider.error().code() == Errc::mismatch);
  CHECK(mentions(wider.error().message(), "hidden is 12 here and 8 there"));
  local.hidden = 8;
  local.lags = {1, 2};
  CHECK(mentions(message_of(train_local(series[0], local, warm)), "lags is [1, 2] here"));

  const Model naive = fallback_model(series[0], options);
  warm.warm = &naive;
  CHECK(train_local(series[0], local, warm).error().code() == Errc::mismatch);
}

TEST_CASE("lags without a value in half of the training range are left out with a note") {
  TrainOptions options = quick_options();
  options.lags = {};
  const Trained trained = train_local(wave("A", 100), options).value();
  CHECK(trained.model.spec.lags.back() == 47);  // 100 - 6 held out = 94, half of it is 47
  CHECK(notes_mention(trained, "look back 48-49"));
  options.max_lag = "all";
  CHECK(train_local(wave("A", 100), options).value().model.spec.lags.back() == 721);
  options.max_lag = "25";
  CHECK(train_local(wave("A", 100), options).value().model.spec.lags.back() == 25);
}

TEST_CASE("bad series are passed over by a global model with a note, and none left is an error") {
  Series bad = wave("bad", 100);
  bad.target[3] = std::numeric_limits<double>::infinity();
  std::vector<Series> series = {wave("A", 100), bad, wave("short", 3)};
  const Trained trained = train_global(series, quick_options()).value();
  CHECK(notes_mention(trained, "passed over: forecast: item \"bad\""));
  CHECK(notes_mention(trained, "1 of 3 series are shorter"));
  // The short one is still forecast.
  CHECK(all_finite(forecast_one(trained.model, series[2])));
  series.erase(series.begin());
  CHECK(mentions(message_of(train_global(series, quick_options())), "none of 2 series"));
}

TEST_CASE("any horizon can be forecast, and empty requests are refused") {
  const Series series = wave("A", 100);
  const Model model = train_local(series, quick_options()).value().model;
  PredictOptions options = with_samples();
  options.horizon = 40;
  const Forecast longer = forecast_one(model, series, options);
  CHECK(longer.mean.size() == 40);
  CHECK(all_finite(longer));
  options.samples = 0;
  CHECK(predict(model, {&series, 1}, options).error().code() == Errc::invalid_argument);
  Model empty = model;
  empty.members.clear();
  CHECK(predict(empty, {&series, 1}, with_samples()).error().code() == Errc::invalid_argument);
}

TEST_CASE("other frequencies train and forecast") {
  for (const char* name : {"D", "B", "W", "ME", "QS", "YE", "15min", "s"}) {
    CAPTURE(name);
    Series series = wave("A", 90);
    series.frequency = parse_frequency(name).value();
    series.start_us = add_steps(series.frequency, series.start_us, 0);
    TrainOptions options = quick_options(4);
    options.lags = {};
    const Forecast forecast = forecast_one(train_local(series, options).value().model, series);
    CHECK(all_finite(forecast));
    CHECK(forecast.start_us == series.stamp(90));
  }
}

TEST_CASE("a validation tail without a value is left out, with a note, in both scopes") {
  TrainOptions options = quick_options();
  options.epochs = 20;
  Series unobserved = wave("A", 100);
  std::fill(unobserved.target.end() - 6, unobserved.target.end(), kNaN);
  const Trained local = train_local(unobserved, options).value();
  CHECK(notes_mention(local, "no value of the validation tail (6 steps) is observed"));
  // As a series too short to validate: all of a few epochs, judged by the training loss.
  const Json& member = local.model.training.at("members").items().at(0);
  CHECK(member.at("epochs").integer() == 5);
  CHECK(local.model.training.at("monitor").string() == "training");
  CHECK(std::isfinite(member.at("monitored").number()));

  options.validation_windows = 1;
  CHECK(notes_mention(train_global({&unobserved, 1}, options).value(),
                      "of most series no value of the validation tail"));
  unobserved.target.back() = 100.0;
  CHECK_FALSE(
      notes_mention(train_local(unobserved, options).value(), "no value of the validation"));
}

TEST_CASE("a global model without a validation tail trains as long as one that was told none") {
  std::vector<Series> series = {wave("A", 100), wave("B", 100), wave("C", 100)};
  for (size_t i = 0; i < 2; ++i) {
    std::fill(series[i].target.end() - 6, series[i].target.end(), kNaN);
  }
  TrainOptions options = quick_options();
  options.epochs = -1;
  options.batches_per_epoch = 1;
  options.validation_windows = 1;
  options.patience = 1;
  options.refit = "full";
  // C alone has values there: the best epoch would be that of one series.
  const Trained most = train_global(series, options).value();
  CHECK(notes_mention(most, "of most series no value of the validation tail (6 steps) is"));
  const auto epochs = [](const Trained& trained) {
    return trained.model.training.at("members").items().at(0).at("epochs").integer();
  };
  TrainOptions none = quick_options();
  none.epochs = -1;
  none.batches_per_epoch = 1;
  const Trained plain = train_global(series, none).value();
  CHECK(epochs(plain) == resolve(none, Scope::global).value().epochs);
  CHECK(epochs(most) == epochs(plain));
  CHECK(most.model.members == plain.model.members);

  options.epochs = 7;  // what is told stays
  CHECK(epochs(train_global(series, options).value()) == 7);

  std::fill(series[1].target.end() - 6, series[1].target.end(), 100.0);
  const Trained watched = train_global(series, options).value();
  CHECK(watched.model.options.get_integer("validation_windows") == 1);
}

TEST_CASE("a validation tail that most series have no room for is shortened, not the training") {
  TrainOptions options = quick_options(6);
  options.validation_windows = 2;
  std::vector<Series> series = {wave("A", 100), wave("B", 17), wave("C", 12)};  // 18 are needed
  const Trained one = train_global(series, options).value();
  CHECK(notes_mention(one, "most series leave room for 1 of 2 validation windows"));
  CHECK(one.model.options.get_integer("validation_windows") == 1);

  series = {wave("A", 11), wave("B", 10)};
  const Trained none = train_global(series, options).value();
  CHECK(none.model.options.get_integer("validation_windows") == 0);
  CHECK(none.model.training.at("monitor").string() == "training");

  series = {wave("A", 100), wave("B", 100), wave("C", 12)};  // one short series changes nothing
  const Trained both = train_global(series, options).value();
  CHECK(both.model.options.get_integer("validation_windows") == 2);
}

TEST_CASE("a global model that nothing can be trained on says why of the first series") {
  TrainOptions options = quick_options();
  options.distribution = "negative_binomial";
  const std::vector<Series> series = {wave("A", 100), wave("B", 100)};
  const std::string message = message_of(train_global(series, options));
  CHECK(mentions(message, "none of 2 series"));
  CHECK(mentions(message, "item \"A\""));
}

TEST_CASE("training can be stopped within an epoch") {
  TrainOptions options = quick_options();
  options.batches_per_epoch = 1000;
  int asked = 0;
  TrainContext context;
  context.progress = [](const TrainProgress&) {
    FAIL("an epoch was finished");
    return true;
  };
  context.stop = [&] { return ++asked == 3; };
  CHECK(train_local(wave("A", 100), options, context).error().code() == Errc::cancelled);
  CHECK(asked == 3);
}

TEST_CASE("forecasting can be stopped in the midst of one series") {
  const Series series = wave("a", 100);
  const Model model = train_local(series, quick_options(12)).value().model;
  int all = 0;
  const auto count = [&all] {
    ++all;
    return false;
  };
  REQUIRE(predict(model, {&series, 1}, with_samples(), count).ok());
  REQUIRE(all >= 12);  // once a step at least

  for (int last = 1; last <= all; ++last) {
    int asked = 0;
    const auto stopped =
        predict(model, {&series, 1}, with_samples(), [&] { return ++asked == last; });
    CAPTURE(last);
    REQUIRE(!stopped.ok());
    CHECK(stopped.error().code() == Errc::cancelled);
    CHECK(asked == last);
  }
}

TEST_CASE("the unknown category is the mean of those that were trained") {
  std::vector<Series> series = {wave("A", 100), wave("B", 100), wave("C", 100)};
  for (size_t i = 0; i < series.size(); ++i) {
    series[i].categories = {std::string(1, "nsw"[i])};
  }
  TrainOptions options = quick_options();
  options.categories = {"region"};
  const Model model = train_global(series, options).value().model;
  const int dimension = model.spec.shape().embeddings.at(0).dimension;
  const std::vector<float>& weights = model.members.at(0);  // the embedding comes first
  for (int c = 0; c < dimension; ++c) {
    const auto row = [&](int r) { return weights[static_cast<size_t>(r * dimension + c)]; };
    CHECK(row(0) == Approx((row(1) + row(2) + row(3)) / 3));
  }
}
