// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_pipeline.h"

#include <doctest/doctest.h>

#include <string>

#include "headrace/forecast/selection.h"

namespace headrace::jobs {

namespace {

ForecastPipeline sales() {
  ForecastPipeline spec;
  spec.name = "sales";
  spec.table.url = "/lake/sales";
  spec.table.frequency = "D";
  spec.train = Json::object({{"horizon", "7"}});
  return spec;
}

const Json* activity(const Json& pipeline, const std::string& name) {
  for (const Json& one : pipeline.at("properties").at("activities").items()) {
    if (one.at("name").string() == name) {
      return &one;
    }
  }
  return nullptr;
}

/// typeProperties of the one forecast activity in a loop.
const Json& looped(const Json& pipeline, const std::string& loop) {
  return activity(pipeline, loop)
      ->at("typeProperties")
      .at("activities")
      .items()
      .at(0)
      .at("typeProperties");
}

std::string member_seed(const std::string& seed) {
  ForecastPipeline spec = sales();
  spec.train.set("seed", seed);  // as typed on a command line
  return looped(forecast_pipeline(spec).value(), "TrainGlobal").at("train").at("seed").string();
}

}  // namespace

TEST_CASE("members of another seed have other seeds, however large it is") {
  CHECK(member_seed("1") == "@add(1000, item())");
  CHECK(member_seed("7") == "@add(7000, item())");
  // Its last twelve digits are nines.
  CHECK(member_seed("8999999999999999") == "@add(999999999999000, item())");
}

TEST_CASE("options of the validation tail go to the local stage alone") {
  ForecastPipeline spec = sales();
  for (const auto& [name, value] :
       {std::pair("refit", "full"), std::pair("monitor", "wql"), std::pair("patience", "2")}) {
    spec.train.set(name, value);
  }
  const auto pipeline = forecast_pipeline(spec);
  REQUIRE(pipeline.ok());
  for (const char* name : {"refit", "monitor", "patience"}) {
    CHECK(looped(*pipeline, "TrainGlobal").at("train").find(name) == nullptr);
    CHECK(looped(*pipeline, "TrainEach").at("train").find(name) != nullptr);
  }
}

TEST_CASE("global members leave out the windows on which they are compared") {
  ForecastPipeline spec = sales();
  const Json usual = forecast_pipeline(spec).value();
  CHECK(looped(usual, "TrainGlobal").at("train").at("validation_windows").integer() ==
        forecast::SelectOptions().windows);
  spec.train.set("validation_windows", "5");
  const Json told = forecast_pipeline(spec).value();
  CHECK(looped(told, "TrainGlobal").at("train").at("validation_windows").string() == "5");
}

TEST_CASE("options that a stage refuses are told before there is a document") {
  ForecastPipeline spec = sales();
  spec.train.set("monitor", "wql");
  spec.train.set("validation_windows", "0");
  const auto pipeline = forecast_pipeline(spec);
  REQUIRE_FALSE(pipeline.ok());
  CHECK(pipeline.error().code() == Errc::invalid_argument);
  CHECK(pipeline.error().message().find("local") != std::string::npos);
}

TEST_CASE("parity is possible beside global members") {
  ForecastPipeline spec = sales();
  spec.train.set("parity", true);
  CHECK(forecast_pipeline(spec).ok());
}

TEST_CASE("every activity on the table is told its frequency and how to read it") {
  ForecastPipeline spec = sales();
  spec.table.zone = "UTC";
  spec.table.allow_missing_columns = true;
  const Json pipeline = forecast_pipeline(spec).value();
  for (const Json* properties :
       {&activity(pipeline, "Items")->at("typeProperties"), &looped(pipeline, "TrainGlobal"),
        &looped(pipeline, "TrainEach"), &activity(pipeline, "Evaluate")->at("typeProperties")}) {
    CHECK(properties->at("frequency").string() == "D");
    CHECK(properties->at("zone").string() == "UTC");
    CHECK(properties->at("allow_missing_columns").boolean());
  }
}

TEST_CASE("with a stored model to start from no global members are trained") {
  ForecastPipeline spec = sales();
  spec.warm_start = "demand:3";
  const Json pipeline = forecast_pipeline(spec).value();
  CHECK(activity(pipeline, "TrainGlobal") == nullptr);
  const Json& each = looped(pipeline, "TrainEach");
  CHECK(each.at("warm_start").items().at(0).string() == "demand:3");
  CHECK(each.at("train_warm").at("epochs").integer() ==
        3);  // from a model a few steps go a long way
}

TEST_CASE("a run whose items or whose evaluation failed is no success") {
  const Json pipeline = forecast_pipeline(sales()).value();
  const Json* last = activity(pipeline, "AllTrained");
  REQUIRE(last != nullptr);
  std::string waits_for;
  for (const Json& one : last->at("dependsOn").items()) {
    waits_for += one.at("activity").string() + one.at("dependencyConditions").dump() + " ";
  }
  CHECK(waits_for == "TrainEach[\"Succeeded\"] Evaluate[\"Succeeded\"] ");
}

}  // namespace headrace::jobs
