// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "headrace/base/random.h"

using namespace headrace;
using namespace headrace::forecast;

namespace {

Model small_model(int members) {
  Model model;
  ModelSpec& spec = model.spec;
  spec.frequency = parse_frequency("QE-NOV").value();
  spec.horizon = 4;
  spec.context = 6;
  spec.season = 4;
  spec.lags = {1, 2, 12};
  spec.time_features = {TimeFeature::month_of_year};
  spec.scale_input = ScaleInput::raw;
  spec.scale_floor = 0.01;
  spec.categories = {"store"};
  spec.static_reals = {"area"};
  spec.dynamic_reals = {"price"};
  spec.dictionaries = {{"", "north", "south"}};
  spec.distribution = Distribution::negative_binomial;
  spec.hidden = 5;
  spec.layers = 2;
  model.scaling.log_scale_mean = 1.0 / 3.0;
  model.naive_share = 0.375;
  model.scaling.static_reals = {{0.1, 2.0}};
  model.scaling.dynamic_reals = {{-7.0, 0.5}};
  model.options = Json::object({{"seed", 3}});
  model.training = Json::object(
      {{"steps", 20}, {"best_step", 10}, {"loss", 1.5}, {"monitored", 1.25}, {"skipped_steps", 0}});
  base::Rng rng(1);
  for (int m = 0; m < members; ++m) {
    model.members.push_back(initial_parameters(spec.shape(), &rng));
  }
  return model;
}

Errc code_of(const ModelData& data, std::string* message) {
  const auto result = from_data(data);
  REQUIRE_FALSE(result.ok());
  *message = result.error().message();
  return result.error().code();
}

}  // namespace

TEST_CASE("a model read back from its portable form is the same") {
  const Model model = small_model(3);
  const ModelData data = to_data(model);
  const std::string text = data.header.dump(0, true);
  const Model copy = from_data({parse_json(text).value(), data.tensors}).value();
  CHECK(copy.spec == model.spec);
  CHECK(copy.members == model.members);
  CHECK(copy.scaling.log_scale_mean == model.scaling.log_scale_mean);
  CHECK(copy.scaling.static_reals == model.scaling.static_reals);
  CHECK(copy.scaling.dynamic_reals == model.scaling.dynamic_reals);
  CHECK(copy.naive_share == 0.375);
  CHECK(copy.options == model.options);
  CHECK(copy.training == model.training);
  CHECK(to_data(copy).header.dump(0, true) == text);
  CHECK(data.header.at("cardinalities").items().at(0).integer() == 3);
}

TEST_CASE("a model without parameters has a header alone") {
  Model model = small_model(0);
  model.method = Method::seasonal_naive;
  model.spec.context = 0;
  const ModelData data = to_data(model);
  CHECK(data.tensors.empty());
  CHECK(from_data(data).value().method == Method::seasonal_naive);
}

TEST_CASE("an item of a bundle finds its numbers beside the shared header") {
  const Model model = small_model(1);
  Json header = shared_header(model);
  CHECK(header.find("training") == nullptr);
  Json scalars = Json::object();
  for (const auto& [name, value] : item_scalars(model)) {
    scalars.set(name, value);
  }
  header.set("item", Json::object({{"key", "H1"}, {"scalars", std::move(scalars)}}));
  const Model copy = from_data({header, to_data(model).tensors}).value();
  CHECK(copy.scaling.log_scale_mean == model.scaling.log_scale_mean);
  CHECK(copy.training.get_number("best_step") == 10.0);
  CHECK(copy.training.get_number("monitored") == 1.25);
  CHECK(copy.naive_share == 0.375);
}

TEST_CASE("tensors that are absent, of another shape or not finite are named") {
  ModelData data = to_data(small_model(2));
  std::string message;
  ModelData absent = data;
  absent.tensors.pop_back();
  CHECK(code_of(absent, &message) == Errc::corrupt);
  CHECK(message.find("\"member.1.") != std::string::npos);

  ModelData reshaped = data;
  reshaped.tensors.at(0).shape.push_back(1);
  CHECK(code_of(reshaped, &message) == Errc::corrupt);
  CHECK(message.find("has shape") != std::string::npos);

  ModelData infinite = data;
  infinite.tensors.at(1).data.at(0) = std::numeric_limits<float>::infinity();
  CHECK(code_of(infinite, &message) == Errc::corrupt);
  CHECK(message.find("is not finite") != std::string::npos);
}

TEST_CASE("every header field that is taken away or spoilt is named") {
  const ModelData data = to_data(small_model(1));
  for (const char* name :
       {"kind", "frequency", "horizon", "context", "season", "lags", "features", "dictionaries",
        "unknown_category", "scale", "distribution", "network", "members"}) {
    CAPTURE(name);
    for (const bool absent : {true, false}) {
      ModelData broken = data;
      Json::Object& members = broken.header.members();
      const auto found =
          std::find_if(members.begin(), members.end(),
                       [&](const Json::Member& member) { return member.first == name; });
      REQUIRE(found != members.end());
      if (absent) {
        members.erase(found);
      } else {
        found->second = Json(-1.5);
      }
      std::string message;
      CHECK(code_of(broken, &message) == Errc::corrupt);
      CHECK(message.find(name) != std::string::npos);
    }
  }
}

TEST_CASE("ids that a model has seen are read as they were written, or named") {
  Model model = small_model(1);
  model.seen_items = {0, 0x1234, 0xFFFFFFFF};
  const ModelData data = to_data(model);
  CHECK(data.header.get_string("seen_items") == "0000000000001234ffffffff");
  CHECK(from_data(data).value().seen_items == model.seen_items);
  for (const char* spoilt : {"0000000", "0000123400000000", "0000123400001234", "0000123g"}) {
    ModelData broken = data;
    broken.header.set("seen_items", spoilt);
    std::string message;
    CHECK(code_of(broken, &message) == Errc::corrupt);
    CHECK(message.find("seen_items") != std::string::npos);
  }
}

TEST_CASE("names of torch with a prefix are read, unknown ones are passed over") {
  const Model model = small_model(1);
  const NetworkShape shape = model.spec.shape();
  std::vector<Tensor> tensors = tensors_from_parameters(shape, model.members[0], "model.");
  tensors.push_back({"model.scaler.buffer", {1}, {0.0F}});
  CHECK(parameters_from_tensors(shape, tensors, "model.").value() == model.members[0]);
  CHECK_FALSE(parameters_from_tensors(shape, tensors).ok());
}

TEST_CASE("the first field in which two specs differ is named with both values") {
  const ModelSpec spec = small_model(0).spec;
  CHECK(spec_difference(spec, spec).empty());
  ModelSpec other = spec;
  other.hidden = 7;
  CHECK(spec_difference(spec, other) == "hidden is 5 here and 7 there");
  other = spec;
  other.lags = {1, 2};
  CHECK(spec_difference(spec, other) == "lags is [1, 2, 12] here and [1, 2] there");
  other = spec;
  other.dictionaries[0][1] = "east";
  CHECK(spec_difference(spec, other).find("dictionary of \"store\"") != std::string::npos);
}
