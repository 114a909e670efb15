// SPDX-License-Identifier: Apache-2.0
// What the network sees: sizes, and how two specs differ.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "headrace/forecast/model.h"

namespace headrace::forecast {

namespace {

constexpr std::array<std::string_view, 4> kMethods = {"deepar", "seasonal_naive", "naive2",
                                                      "last_value"};
constexpr std::array<std::string_view, 3> kScaleInputs = {"off", "raw", "centred"};

/// GluonTS's rule for the width of an embedding.
int embedding_dimension(size_t cardinality) {
  return static_cast<int>(std::min<size_t>(50, (cardinality + 1) / 2));
}

std::vector<std::string_view> feature_names(const std::vector<TimeFeature>& features) {
  std::vector<std::string_view> names;
  for (const TimeFeature feature : features) {
    names.push_back(time_feature_name(feature));
  }
  return names;
}

std::string list_text(const auto& list) { return fmt::format("[{}]", fmt::join(list, ", ")); }

}  // namespace

std::string_view method_name(Method method) { return kMethods[static_cast<size_t>(method)]; }

Result<Method> parse_method(std::string_view name) {
  const auto found = std::find(kMethods.begin(), kMethods.end(), name);
  if (found == kMethods.end()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: method \"{}\" is unknown; known: {}", name,
                             fmt::join(kMethods, ", "))};
  }
  return static_cast<Method>(found - kMethods.begin());
}

std::string_view scale_input_name(ScaleInput input) {
  return kScaleInputs[static_cast<size_t>(input)];
}

Result<ScaleInput> parse_scale_input(std::string_view name) {
  const auto found = std::find(kScaleInputs.begin(), kScaleInputs.end(), name);
  if (found == kScaleInputs.end()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: scale_input \"{}\" is unknown; known: {}", name,
                             fmt::join(kScaleInputs, ", "))};
  }
  return static_cast<ScaleInput>(found - kScaleInputs.begin());
}

int64_t ModelSpec::past() const { return lags.empty() ? context : context + lags.back() - 1; }

NetworkShape ModelSpec::shape() const {
  NetworkShape shape;
  shape.lags = static_cast<int>(lags.size());
  for (const std::vector<std::string>& dictionary : dictionaries) {
    shape.embeddings.push_back(
        {static_cast<int>(dictionary.size()), embedding_dimension(dictionary.size())});
  }
  shape.other_inputs =
      static_cast<int>(static_reals.size() + time_features.size() + dynamic_reals.size() +
                       (age ? 1U : 0U) + (scale_input != ScaleInput::off ? 1U : 0U));
  shape.hidden = hidden;
  shape.layers = layers;
  shape.distribution = distribution;
  return shape;
}

std::string spec_difference(const ModelSpec& here, const ModelSpec& there) {
  std::string difference;
  const auto compare = [&](std::string_view name, const std::string& a, const std::string& b) {
    if (difference.empty() && a != b) {
      difference = fmt::format("{} is {} here and {} there", name, a, b);
    }
  };
  const auto number = [](auto value) { return fmt::format("{}", value); };
  compare("frequency", here.frequency.name(), there.frequency.name());
  compare("horizon", number(here.horizon), number(there.horizon));
  compare("context", number(here.context), number(there.context));
  compare("distribution", std::string(distribution_name(here.distribution)),
          std::string(distribution_name(there.distribution)));
  compare("hidden", number(here.hidden), number(there.hidden));
  compare("layers", number(here.layers), number(there.layers));
  compare("lags", list_text(here.lags), list_text(there.lags));
  compare("time_features", list_text(feature_names(here.time_features)),
          list_text(feature_names(there.time_features)));
  compare("age", number(here.age), number(there.age));
  compare("scale_input", std::string(scale_input_name(here.scale_input)),
          std::string(scale_input_name(there.scale_input)));
  compare("scale_rule", here.gluonts_scale ? "gluonts" : "item",
          there.gluonts_scale ? "gluonts" : "item");
  compare("default_scale", number(here.default_scale), number(there.default_scale));
  compare("scale_floor", number(here.scale_floor), number(there.scale_floor));
  compare("categories", list_text(here.categories), list_text(there.categories));
  compare("static_reals", list_text(here.static_reals), list_text(there.static_reals));
  compare("dynamic_reals", list_text(here.dynamic_reals), list_text(there.dynamic_reals));
  compare("unknown_category", number(here.unknown_category), number(there.unknown_category));
  for (size_t k = 0; k < std::min(here.dictionaries.size(), there.dictionaries.size()); ++k) {
    compare(fmt::format("the dictionary of \"{}\"", here.categories[k]),
            list_text(here.dictionaries[k]), list_text(there.dictionaries[k]));
  }
  compare("season", number(here.season), number(there.season));
  return difference;
}

}  // namespace headrace::forecast
