// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/options.h"

#include <doctest/doctest.h>

#include <string>

using namespace headrace;
using namespace headrace::forecast;

namespace {

std::string message_of(const Result<void>& result) {
  return result.ok() ? "" : result.error().message();
}

TrainOptions with_horizon() {
  TrainOptions options;
  options.horizon = 48;
  return options;
}

}  // namespace

TEST_CASE("options are set from JSON and from text as typed") {
  TrainOptions options;
  REQUIRE(
      set_options(&options, parse_json(R"({"horizon": 48, "learning_rate": "0.01", "lags": [2, 1],
                                  "age": false, "time_features": "hour_of_day, day_of_week",
                                  "epochs": "auto", "max_lag": 169})")
                                .value())
          .ok());
  CHECK(options.horizon == 48);
  CHECK(options.learning_rate == 0.01);
  CHECK(options.lags == std::vector<int>{2, 1});
  CHECK_FALSE(options.age);
  CHECK(options.time_features == std::vector<std::string>{"hour_of_day", "day_of_week"});
  CHECK(options.epochs == -1);
  CHECK(options.max_lag == "169");
  CHECK(set_option(&options, "lags", "1,24").ok());
  CHECK(options.lags == std::vector<int>{1, 24});
  CHECK(set_option(&options, "lags", "").ok());
  CHECK(options.lags.empty());
}

TEST_CASE("every option's JSON reads back to the same options") {
  TrainOptions options = with_horizon();
  options.epochs = 7;
  options.categories = {"store"};
  options.weight_average = 0.99;
  options.seed = 1234567890123;
  TrainOptions copy;
  REQUIRE(set_options(&copy, to_json(options)).ok());
  CHECK(to_json(copy) == to_json(options));

  for (const OptionInfo& info : train_option_list()) {
    CAPTURE(info.name);
    TrainOptions fresh;
    if (info.name != "horizon") {  // its default says that it is absent
      CHECK(set_option(&fresh, info.name, Json(info.default_text)).ok());
    }
    CHECK_FALSE(info.help.empty());
    CHECK(to_json(fresh) == to_json(TrainOptions()));
  }
  PredictOptions predict;
  CHECK(set_options(&predict, to_json(PredictOptions())).ok());
  BacktestOptions backtest;
  CHECK(set_options(&backtest, to_json(BacktestOptions())).ok());
}

TEST_CASE("an unknown option is an error with the nearest name") {
  TrainOptions options;
  CHECK(message_of(set_option(&options, "lerning_rate", 0.1)) ==
        "forecast: there is no option \"lerning_rate\"; did you mean \"learning_rate\"?");
  CHECK(message_of(set_option(&options, "frobnicate", 1)).find("did you mean") ==
        std::string::npos);
  PredictOptions predict;
  CHECK(message_of(set_option(&predict, "sample", 3)).find("\"samples\"") != std::string::npos);
}

TEST_CASE("an option by the name it has elsewhere is an error with its name here") {
  TrainOptions options;
  for (const auto& [theirs, ours] : {std::pair("prediction_length", "horizon"),
                                     {"context_length", "context"},
                                     {"num_layers", "layers"},
                                     {"max_epochs", "epochs"},
                                     {"lr", "learning_rate"}}) {
    CHECK(message_of(set_option(&options, theirs, 1)) ==
          std::string("forecast: there is no option \"") + theirs + "\"; did you mean \"" + ours +
              "\"?");
  }
  CHECK(message_of(set_option(&options, "freq", "D")) ==
        "forecast: there is no option \"freq\"; the frequency is told with the table "
        "(--frequency, \"frequency\" beside \"table\", forecast.Table(frequency=))");
  PredictOptions predict;
  CHECK(message_of(set_option(&predict, "num_samples", 3)).ends_with("did you mean \"samples\"?"));
}

TEST_CASE("values out of range and of the wrong type are errors that say the range") {
  TrainOptions options;
  CHECK(message_of(set_option(&options, "epochs", 0)) ==
        "forecast: option \"epochs\" is 0: it must be 1 to 1000000, or \"auto\"");
  CHECK(message_of(set_option(&options, "hidden", "forty")) ==
        "forecast: option \"hidden\" is \"forty\": it is no integer");
  CHECK(message_of(set_option(&options, "hidden", 1.5)).find("no integer") != std::string::npos);
  CHECK(message_of(set_option(&options, "dropout", 1.0)).find("0 to 0.99") != std::string::npos);
  CHECK(message_of(set_option(&options, "distribution", "poisson"))
            .find("must be one of student_t") != std::string::npos);
  CHECK(message_of(set_option(&options, "age", 3)).find("neither true nor false") !=
        std::string::npos);
  CHECK(message_of(set_option(&options, "lags", "1,0")).find("1 to 100000") != std::string::npos);
  CHECK(
      message_of(set_option(&options, "categories", Json(Json::Array{1}))).find("list of texts") !=
      std::string::npos);
  CHECK(message_of(set_options(&options, Json(1))).find("an object") != std::string::npos);
}

TEST_CASE("autos are settled by scope") {
  const TrainOptions local = resolve(with_horizon(), Scope::local).value();
  CHECK(local.validation_windows == 1);
  CHECK(local.patience > 0);
  CHECK(local.monitor == "horizon");
  const TrainOptions global = resolve(with_horizon(), Scope::global).value();
  CHECK(global.epochs == 16);
  CHECK(global.weight_average == 0.99);
  CHECK(local.weight_average == 0.0);
  CHECK(global.validation_windows == 0);
  CHECK(global.patience == 0);
  CHECK(global.monitor == "training");
}

TEST_CASE("parity means the reference's rules and refuses what contradicts them") {
  TrainOptions options = with_horizon();
  options.parity = true;
  const TrainOptions parity = resolve(options, Scope::local).value();
  CHECK(parity.max_lag == "all");
  CHECK(parity.epochs == 100);
  CHECK(parity.validation_windows == 0);
  CHECK(parity.monitor == "training");
  CHECK(parity.scale_rule == "gluonts");
  CHECK(parity.scale_input == "raw");

  options.snapshots = 3;
  CHECK(resolve(options, Scope::local).error().message().find("parity sets snapshots itself") !=
        std::string::npos);
}

TEST_CASE("options that contradict one another are refused") {
  CHECK(resolve(TrainOptions(), Scope::local).error().message().find("no horizon") !=
        std::string::npos);
  TrainOptions options = with_horizon();
  options.validation_windows = 0;
  options.monitor = "wql";
  CHECK(resolve(options, Scope::local).error().message().find("validation tail") !=
        std::string::npos);
  options = with_horizon();
  options.max_lag = "many";
  CHECK_FALSE(resolve(options, Scope::global).ok());
  options = with_horizon();
  options.time_features = {"auto", "hour_of_day"};
  CHECK_FALSE(resolve(options, Scope::global).ok());
  options = with_horizon();
  options.lags = {24, 1, 24};
  CHECK(resolve(options, Scope::global).value().lags == std::vector<int>{1, 24});
}
