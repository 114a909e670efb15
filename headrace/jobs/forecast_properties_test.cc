// SPDX-License-Identifier: Apache-2.0
#include "headrace/jobs/forecast_properties.h"

#include <doctest/doctest.h>

namespace headrace::jobs {

namespace {

Json local_training() {
  return Json::object({{"operation", "train"},
                       {"scope", "local"},
                       {"table", "lake"},
                       {"item", "H1"},
                       {"model", "m4"},
                       {"warm_start", Json(Json::Array{Json("m4-global/member-0")})},
                       {"train", Json::object({{"horizon", 48}})}});
}

}  // namespace

TEST_CASE("options left to auto stay so until the model that training starts from is known") {
  const auto read = read_forecast_properties(local_training(), "/pipelines");

  REQUIRE(read.ok());
  CHECK(read->operation == ForecastOperation::train_local);
  CHECK(read->train.horizon == 48);
  CHECK(read->train.scale_input == "auto");
  CHECK(read->train.scale_rule == "auto");
}

TEST_CASE("options that do not fit one another are refused before anything is trained") {
  Json properties = local_training();
  properties.set("train", Json::object({{"horizon", 48}, {"scale_input", "sideways"}}));
  const auto unknown = read_forecast_properties(properties, "/pipelines");
  REQUIRE(!unknown.ok());
  CHECK(unknown.error().code() == Errc::invalid_argument);
  CHECK(unknown.error().message().find("scale_input") != std::string::npos);

  properties.set("train", Json::object());  // no horizon
  const auto incomplete = read_forecast_properties(properties, "/pipelines");
  REQUIRE(!incomplete.ok());
  CHECK(incomplete.error().message().find("horizon") != std::string::npos);
}

}  // namespace headrace::jobs
