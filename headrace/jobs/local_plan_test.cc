// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/local_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "headrace/forecast/example_series_test.h"
#include "headrace/forecast/seen.h"
#include "headrace/jobs/model_store.h"

namespace headrace::jobs {

namespace {

using forecast::quick_options;
using forecast::wave;

LocalPlan quick_plan() {
  LocalPlan plan;
  plan.train = quick_options(6);
  plan.predict.samples = 20;
  return plan;
}

forecast::Model global_model(int validation_windows = 0) {
  const std::vector<forecast::Series> series = {wave("x", 200), wave("y", 200), wave("z", 200)};
  forecast::TrainOptions options = quick_options(6);
  options.epochs = 2;
  options.validation_windows = validation_windows;
  return forecast::train_global(series, options).value().model;
}

bool notes_mention(const LocalOutcome& outcome, std::string_view part) {
  return std::any_of(outcome.notes.begin(), outcome.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("the model that forecasts the last window best is taken") {
  // A wave without noise: seasonal naive is exact, a network after 15 steps is not.
  const forecast::Series series = wave("A", 200, 100.0, 0.0);

  const auto outcome = train_one(series, quick_plan());

  REQUIRE(outcome.ok());
  CHECK(outcome->winner == "seasonal_naive");
  CHECK(outcome->model.method == forecast::Method::seasonal_naive);
  REQUIRE(outcome->scores.size() == 3);
  CHECK(outcome->scores[0].name == "local");
  CHECK(outcome->scores[1].name == "seasonal_naive");
  CHECK(outcome->scores[2].name == "naive2");  // for comparison: it is not chosen
  CHECK(std::isfinite(outcome->scores[2].score));
  CHECK(outcome->scores[1].score < outcome->scores[0].score);
  CHECK(outcome->forecast.horizon == 6);
  CHECK(outcome->forecast.start_us == series.stamp(200));
  CHECK(outcome->forecast.mean[0] == doctest::Approx(series.target[200 - 24]));
}

TEST_CASE("the result depends on the series and the plan alone") {
  const forecast::Series series = wave("A", 200);
  LocalPlan plan = quick_plan();
  plan.choose = false;

  const auto first = train_one(series, plan);
  const auto second = train_one(series, plan);

  REQUIRE((first.ok() && second.ok()));
  CHECK(first->winner == "local");
  CHECK(first->scores.empty());
  CHECK(first->model.method == forecast::Method::deepar);
  CHECK(first->forecast.quantiles == second->forecast.quantiles);
}

TEST_CASE("a global model competes and may be started from") {
  const forecast::Series series = wave("A", 200);
  const forecast::Model global = global_model(2);
  LocalPlan plan = quick_plan();
  plan.global = &global;

  auto outcome = train_one(series, plan);

  REQUIRE_MESSAGE(outcome.ok(), (outcome.ok() ? "" : outcome.error().message()));
  REQUIRE(outcome->scores.size() >= 4);
  CHECK(outcome->scores.back().name == "naive2");
  outcome->scores.pop_back();
  CHECK(outcome->scores.front().name == "global");
  CHECK(!notes_mention(*outcome, "has seen"));
  const auto best =
      std::min_element(outcome->scores.begin(), outcome->scores.end(),
                       [](const auto& a, const auto& b) { return a.score < b.score; });
  CHECK(outcome->winner == best->name + (outcome->naive_share > 0.0 ? "+naive" : ""));
}

TEST_CASE("a model is not compared on windows that it was trained on") {
  const forecast::Series now = wave("y", 200);  // one of those of `global_model`
  const auto trained = [](const forecast::Series& series, int windows, const char* refit) {
    forecast::TrainOptions options = quick_options(6);
    options.validation_windows = windows;
    options.refit = refit;
    return forecast::train_local(series, options).value().model;
  };
  const auto outcome_of = [&](const forecast::Model& earlier, const char* name, bool warm_start) {
    LocalPlan plan = quick_plan();
    plan.global = &earlier;
    plan.global_name = name;
    plan.warm_start = warm_start;
    return train_one(now, plan).value();
  };
  const auto competes = [](const LocalOutcome& outcome, std::string_view name) {
    return std::ranges::any_of(outcome.scores, [&](const auto& one) { return one.name == name; });
  };

  // All of it: refitted, or never held back; as one of all series too.
  for (const forecast::Model& model :
       {trained(now, 2, "full"), trained(now, 0, "none"), global_model()}) {
    const std::string name = model.training.get_string("scope") == "global" ? "global" : "earlier";
    const LocalOutcome outcome = outcome_of(model, name.c_str(), true);
    CHECK(!competes(outcome, name));
    CHECK(competes(outcome, "local"));
    CHECK(notes_mention(outcome, "the " + name +
                                     " model has seen the last 2 windows and is left "
                                     "out of the comparison, which flatters the local model"));
    CHECK(!notes_mention(outcome_of(model, name.c_str(), false), "flatters"));
  }

  // None of it: held back, or older than the windows.
  for (const forecast::Model& model :
       {trained(now, 2, "none"), trained(now.without_last(12), 2, "full"),
        trained(now.without_last(20), 0, "none")}) {
    const LocalOutcome outcome = outcome_of(model, "earlier", true);
    CHECK(competes(outcome, "earlier"));
    CHECK(!notes_mention(outcome, "has seen"));
  }

  // A part: the newest window came after its training.
  for (const forecast::Model& model :
       {trained(now, 1, "none"), trained(now.without_last(6), 1, "full"),
        trained(now.without_last(11), 0, "none")}) {
    const LocalOutcome outcome = outcome_of(model, "earlier", true);
    CHECK(competes(outcome, "earlier"));
    CHECK(notes_mention(outcome,
                        "the earlier model has seen 1 of the last 2 windows: compared on the "
                        "newest alone"));
  }

  // A table that was cut since: what it ends with now was fitted to then.
  for (const forecast::Model& model : {trained(now, 2, "none"), global_model(2)}) {
    CHECK(forecast::unseen_windows(model, now, 6, 2) == 2);
    CHECK(forecast::unseen_windows(model, now.without_last(6), 6, 2) == 1);
    CHECK(forecast::unseen_windows(model, now.without_last(12), 6, 2) == 0);
    const auto back = forecast::from_data(forecast::to_data(model)).value();
    CHECK(forecast::unseen_windows(back, now.without_last(12), 6, 2) == 0);
  }

  // The last one, of a series that has no more.
  const forecast::Series short_one = now.without_last(160);
  LocalPlan plan = quick_plan();
  const forecast::Model earlier = trained(short_one, 0, "none");
  plan.global = &earlier;
  REQUIRE(selection_windows(short_one, plan) == 2);
  plan.select.windows = 1;
  CHECK(notes_mention(train_one(short_one, plan).value(),
                      "the global model has seen the last window and is left out"));
}

TEST_CASE("a model of all series has not seen an item that was not among them") {
  const forecast::Model global = global_model();  // of x, y and z, all their values
  const forecast::Series fresh = wave("new", 200);
  CHECK(forecast::seen_until(global, fresh) == fresh.stamp(0));
  CHECK(forecast::seen_until(global, wave("y", 200)) == fresh.stamp(200));
  LocalPlan plan = quick_plan();
  plan.global = &global;

  const LocalOutcome outcome = train_one(fresh, plan).value();

  CHECK(outcome.scores.front().name == "global");
  CHECK(!notes_mention(outcome, "has seen"));

  // Read back, joined, gone on from: the same items.
  const forecast::Model back = forecast::from_data(forecast::to_data(global)).value();
  CHECK(forecast::seen_until(back, fresh) == fresh.stamp(0));
  CHECK(forecast::seen_until(back, wave("z", 200)) == fresh.stamp(200));
  const forecast::Model joined = join_members({global, back}).value();
  CHECK(forecast::seen_until(joined, fresh) == fresh.stamp(0));
  CHECK(forecast::seen_until(joined, wave("x", 200)) == fresh.stamp(200));
  const std::vector<forecast::Series> others = {wave("v", 150), wave("w", 150)};
  forecast::TrainOptions options = quick_options(6);
  options.epochs = 1;
  options.validation_windows = 2;
  forecast::TrainContext context;
  context.warm = &global;
  const forecast::Model further = forecast::train_global(others, options, context).value().model;
  CHECK(forecast::seen_until(further, fresh) == fresh.stamp(0));
  CHECK(forecast::seen_until(further, wave("x", 200)) == fresh.stamp(200));
  CHECK(forecast::seen_until(further, wave("v", 200)) > fresh.stamp(138));

  // A file that does not tell its items: any may have been among them.
  forecast::Model older = global;
  older.seen_items.clear();
  CHECK(forecast::seen_until(older, fresh) == fresh.stamp(200));
  CHECK(forecast::seen_until(join_members({global, older}).value(), fresh) == fresh.stamp(200));
}

TEST_CASE("weights have seen what those have seen that they started from") {
  const forecast::Series now = wave("A", 200);
  forecast::TrainOptions options = quick_options(6);
  options.validation_windows = 0;
  const forecast::Model all = forecast::train_local(now.without_last(3), options).value().model;
  options.validation_windows = 2;
  const forecast::Model cold = forecast::train_local(now, options).value().model;
  forecast::TrainContext context;
  context.warm = &all;
  const forecast::Model warm = forecast::train_local(now, options, context).value().model;

  CHECK(forecast::seen_until(all, now) == now.stamp(197));
  CHECK(forecast::seen_until(cold, now) == now.stamp(188));
  CHECK(forecast::seen_until(warm, now) == now.stamp(197));
  const forecast::Model joined = join_members({cold, all}).value();
  CHECK(forecast::seen_until(joined, now) == now.stamp(197));

  // An older file, or one of another program, does not say it: by its options then.
  forecast::Model older = cold;
  older.training = Json::object({{"scope", "local"}});
  CHECK(forecast::seen_until(older, now) == now.stamp(188));
  older.options.set("refit", "full");
  CHECK(forecast::seen_until(older, now) == now.stamp(200));
}

TEST_CASE("a series too short for a model of its own falls back and says so") {
  const forecast::Series five = wave("A", 5);
  LocalPlan plan = quick_plan();
  CHECK(selection_windows(five, plan) == 0);

  const auto naive = train_one(five, plan);
  REQUIRE(naive.ok());
  CHECK(naive->winner == "last_value");
  CHECK(notes_mention(*naive, "too short for a model of its own (5 values, horizon 6)"));
  CHECK(naive->forecast.mean == std::vector<double>(6, five.target.back()));

  const forecast::Model global = global_model();
  plan.global = &global;
  const auto helped = train_one(five, plan);
  REQUIRE_MESSAGE(helped.ok(), (helped.ok() ? "" : helped.error().message()));
  CHECK(helped->winner == "global");
  CHECK(forecast::made_by(helped->forecast) == "global");
  forecast::Forecast back;
  REQUIRE(forecast::set_made_by("global+naive", &back).ok());
  CHECK(forecast::made_by(back) == "global+naive");
  CHECK(back.method == forecast::Method::deepar);
  CHECK(notes_mention(*helped, "no window that training left out; took global"));
}

TEST_CASE("parity trains, holds nothing back and takes the local model") {
  LocalPlan plan = quick_plan();
  plan.train.parity = true;
  plan.train.lags = {1, 2, 3};
  const forecast::Model global = [&] {
    const std::vector<forecast::Series> series = {wave("x", 200), wave("y", 200)};
    return forecast::train_global(series, plan.train).value().model;
  }();

  for (const forecast::Model* start : {static_cast<const forecast::Model*>(nullptr), &global}) {
    plan.global = start;
    const auto outcome = train_one(wave("A", 200), plan);
    REQUIRE_MESSAGE(outcome.ok(), (outcome.ok() ? "" : outcome.error().message()));
    CHECK(outcome->winner == "local");
    CHECK(outcome->scores.empty());
    CHECK(outcome->model.options.get_integer("validation_windows") == 0);
    CHECK(notes_mention(*outcome, "parity leaves out no window to compare on; took local"));
  }
}

TEST_CASE("without a window to judge by, what was asked for is taken: the local model") {
  const forecast::Model global = global_model();
  LocalPlan plan = quick_plan();
  plan.global = &global;
  plan.train.validation_windows = 0;

  const auto outcome = train_one(wave("A", 200), plan);

  REQUIRE_MESSAGE(outcome.ok(), (outcome.ok() ? "" : outcome.error().message()));
  CHECK(outcome->winner == "local");
  CHECK(outcome->model.training.get_string("scope") == "local");
  CHECK(notes_mention(*outcome, "validation_windows 0 leaves out no window to compare on"));
}

TEST_CASE("a winner is judged on windows first and trained again on all values") {
  LocalPlan plan = quick_plan();
  plan.select.combine = false;
  plan.train.epochs = 60;
  plan.train.batches_per_epoch = 20;
  // A walk: the last day tells little, so that a network wins.
  forecast::Series series = wave("A", 300, 100.0, 0.0);
  for (size_t i = 0; i < series.target.size(); ++i) {
    series.target[i] = 100.0 + 40.0 * std::sin(0.37 * static_cast<double>(i));
  }
  const auto judged = train_one(series, plan);
  REQUIRE_MESSAGE(judged.ok(), (judged.ok() ? "" : judged.error().message()));
  REQUIRE(judged->winner == "local");

  plan.train.refit = "full";
  const auto outcome = train_one(series, plan);

  REQUIRE_MESSAGE(outcome.ok(), (outcome.ok() ? "" : outcome.error().message()));
  CHECK(outcome->winner == "local");
  REQUIRE(outcome->scores.size() == judged->scores.size());
  CHECK(outcome->scores[0].score == judged->scores[0].score);
  CHECK(outcome->model.training.at("members").items()[0].get_bool("refitted"));
  CHECK(outcome->model.members != judged->model.members);
}

TEST_CASE("a series of zeros, or of one value, is forecast by that value") {
  const forecast::Model global = global_model();
  LocalPlan plan = quick_plan();
  plan.global = &global;
  for (const double value : {0.0, 3.0}) {
    for (const int length : {8, 200}) {  // 8: trained, but too short to be compared
      CAPTURE(value);
      CAPTURE(length);
      forecast::Series series = wave("A", length);
      std::fill(series.target.begin(), series.target.end(), value);

      const auto outcome = train_one(series, plan);

      REQUIRE_MESSAGE(outcome.ok(), (outcome.ok() ? "" : outcome.error().message()));
      CHECK(outcome->winner == "local");
      CHECK(outcome->model.method == forecast::Method::last_value);
      CHECK(outcome->forecast.mean == std::vector<double>(6, value));
      CHECK(outcome->forecast.quantiles ==
            std::vector<double>(plan.predict.quantiles.size() * 6, value));
    }
  }
}

TEST_CASE("an intermittent series that ends in zeros is still given what forecasts it best") {
  const forecast::Model global = global_model();
  LocalPlan plan = quick_plan();
  plan.global = &global;
  forecast::Series series = wave("A", 200);
  for (size_t i = 0; i < series.target.size(); ++i) {
    series.target[i] = i < 100 && i % 25 == 0 ? 5.0 : 0.0;
  }

  const auto outcome = train_one(series, plan);

  REQUIRE_MESSAGE(outcome.ok(), (outcome.ok() ? "" : outcome.error().message()));
  CHECK(outcome->winner == "seasonal_naive");
  CHECK(notes_mention(*outcome,
                      "mean_wql has no value on the last 2 windows; compared by the mean "
                      "quantile loss"));
  for (const forecast::CandidateScore& score : outcome->scores) {
    CHECK(std::isfinite(score.score));
  }
}

TEST_CASE("windows to choose by leave a season and a horizon of past") {
  LocalPlan plan = quick_plan();
  plan.train.season = 24;
  plan.select.windows = 3;
  CHECK(selection_windows(wave("A", 30), plan) == 0);  // 24 + 1 + 6 = 31 are needed
  CHECK(selection_windows(wave("A", 31), plan) == 1);
  CHECK(selection_windows(wave("A", 43), plan) == 3);
  CHECK(selection_windows(wave("A", 500), plan) == 3);
}

TEST_CASE("whoever asks to stop gets cancelled after the epoch") {
  int asked = 0;
  const auto outcome = train_one(wave("A", 200), quick_plan(), [&] { return ++asked == 2; });
  REQUIRE(!outcome.ok());
  CHECK(outcome.error().code() == Errc::cancelled);
  CHECK(asked == 2);
}

TEST_CASE("a series without a finite past fails with its reason") {
  forecast::Series series = wave("A", 200);
  series.target[7] = std::numeric_limits<double>::infinity();
  const auto outcome = train_one(series, quick_plan());
  REQUIRE(!outcome.ok());
  CHECK(outcome.error().message().find("item \"A\": \"target\" is infinite") != std::string::npos);
}

}  // namespace headrace::jobs
