// SPDX-License-Identifier: Apache-2.0
// What options say together: autos, parity, contradictions.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "headrace/forecast/options.h"

namespace headrace::forecast {

namespace {

constexpr int kAuto = -1;
constexpr int kGluonTsEpochs = 100;
// On M4 Hourly the running average makes the mean_wQL of one global model steady between seeds
// (0.030 to 0.038 against 0.037 to 0.067 without), and 800 steps are enough for it.
constexpr int kGlobalEpochs = 16;
constexpr double kGlobalWeightAverage = 0.99;
constexpr int kLocalEpochs = 20;
constexpr int kLocalPatience = 3;

Error contradiction(std::string message) {
  return Error{Errc::invalid_argument, "forecast: " + std::move(message)};
}

/// GluonTS's behaviour; what a user set otherwise on these options is a contradiction told by name.
Result<void> apply_parity(TrainOptions* options) {
  const TrainOptions defaults;
  const auto fix = [&](auto TrainOptions::* member, const auto& value,
                       std::string_view name) -> Result<void> {
    if (options->*member != defaults.*member && options->*member != value) {
      return contradiction(fmt::format("parity sets {} itself; leave one of the two out", name));
    }
    options->*member = value;
    return {};
  };
  HR_TRY(fix(&TrainOptions::max_lag, std::string("all"), "max_lag"));
  HR_TRY(fix(&TrainOptions::scale_input, std::string("raw"), "scale_input"));
  HR_TRY(fix(&TrainOptions::scale_rule, std::string("gluonts"), "scale_rule"));
  HR_TRY(fix(&TrainOptions::scale_floor, 0.0, "scale_floor"));
  HR_TRY(fix(&TrainOptions::standardize, false, "standardize"));
  HR_TRY(fix(&TrainOptions::unknown_category, false, "unknown_category"));
  HR_TRY(fix(&TrainOptions::validation_windows, 0, "validation_windows"));
  HR_TRY(fix(&TrainOptions::patience, 0, "patience"));
  HR_TRY(fix(&TrainOptions::monitor, std::string("training"), "monitor"));
  HR_TRY(fix(&TrainOptions::refit, std::string("none"), "refit"));
  HR_TRY(fix(&TrainOptions::snapshots, 1, "snapshots"));
  HR_TRY(fix(&TrainOptions::weight_average, 0.0, "weight_average"));
  HR_TRY(fix(&TrainOptions::window_sampling, std::string("uniform"), "window_sampling"));
  HR_TRY(fix(&TrainOptions::min_past, 0, "min_past"));
  if (options->epochs == kAuto) {
    options->epochs = kGluonTsEpochs;
  }
  return {};
}

Result<void> check_max_lag(const std::string& text) {
  if (text == "auto" || text == "all") {
    return {};
  }
  int number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size() || number < 1) {
    return contradiction(
        fmt::format("option \"max_lag\" is \"{}\": it must be auto, all or a number from 1", text));
  }
  return {};
}

Result<void> check_time_features(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if ((name == "auto" || name == "none") && names.size() > 1) {
      return contradiction(
          fmt::format("option \"time_features\": \"{}\" stands alone, not in a list", name));
    }
  }
  return {};
}

Result<void> check_validation(const TrainOptions& options) {
  const bool validates = options.validation_windows > 0;
  if (!validates && options.monitor != "training") {
    return contradiction(fmt::format(
        "monitor \"{}\" needs a validation tail; set validation_windows to 1", options.monitor));
  }
  if (!validates && options.refit != "none") {
    return contradiction("refit needs a validation tail; set validation_windows to 1");
  }
  return {};
}

}  // namespace

Result<TrainOptions> resolve(const TrainOptions& options, Scope scope) {
  TrainOptions resolved = options;
  if (resolved.horizon < 1) {
    return contradiction("no horizon is given; set horizon to the number of steps to forecast");
  }
  if (resolved.parity) {
    HR_TRY(apply_parity(&resolved));
  }
  HR_TRY(check_max_lag(resolved.max_lag));
  HR_TRY(check_time_features(resolved.time_features));
  const bool local = scope == Scope::local;
  const auto settle = [](int* value, int otherwise) {
    if (*value == kAuto) {
      *value = otherwise;
    }
  };
  settle(&resolved.epochs, local ? kLocalEpochs : kGlobalEpochs);
  if (resolved.weight_average == kAuto) {
    resolved.weight_average = local ? 0.0 : kGlobalWeightAverage;
  }
  settle(&resolved.validation_windows, local ? 1 : 0);
  settle(&resolved.patience, local && resolved.validation_windows > 0 ? kLocalPatience : 0);
  const auto settle_text = [](std::string* value, std::string_view otherwise) {
    if (*value == "auto") {
      *value = otherwise;
    }
  };
  settle_text(&resolved.monitor, resolved.validation_windows > 0 ? "horizon" : "training");
  settle_text(&resolved.scale_input, "centred");
  settle_text(&resolved.scale_rule, "item");
  HR_TRY(check_validation(resolved));
  std::sort(resolved.lags.begin(), resolved.lags.end());
  resolved.lags.erase(std::unique(resolved.lags.begin(), resolved.lags.end()), resolved.lags.end());
  return resolved;
}

}  // namespace headrace::forecast
