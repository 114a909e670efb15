// SPDX-License-Identifier: Apache-2.0
// Small made-up series for tests.
#pragma once

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

/// A daily wave of mean 1 with noise, times `level`, hourly from 2015-07-01.
inline Series wave(const std::string& id, int length, double level = 100.0, double noise = 0.05) {
  Series series;
  series.id = id;
  series.frequency = parse_frequency("h").value();
  series.start_us = 1'435'708'800'000'000;
  base::Rng rng(base::derive_seed(17, id));
  for (int i = 0; i < length; ++i) {
    const double phase = 2.0 * std::numbers::pi * i / 24.0;
    series.target.push_back(level * (1.0 + 0.5 * std::sin(phase) + noise * rng.normal()));
  }
  return series;
}

/// Options that train in a moment.
inline TrainOptions quick_options(int horizon = 6) {
  TrainOptions options;
  options.horizon = horizon;
  options.context = 8;
  options.lags = {1, 2, 3, 24};
  options.hidden = 8;
  options.batch = 8;
  options.epochs = 3;
  options.batches_per_epoch = 5;
  options.learning_rate = 5e-3;
  return options;
}

}  // namespace headrace::forecast
