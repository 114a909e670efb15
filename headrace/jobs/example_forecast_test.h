// SPDX-License-Identifier: Apache-2.0
// For tests: a small forecast as a worker would store it.
#pragma once

#include <string>
#include <vector>

#include "headrace/jobs/forecast_store.h"

namespace headrace::jobs {

/// Two days after 2026-01-04; the levels 0.1, 0.5, 0.9 are `median` - 2, `median`, `median` + 2.
inline ItemForecast example_forecast(const std::string& id, double median = 7.0) {
  ItemForecast item;
  item.forecast.id = id;
  item.forecast.frequency = forecast::parse_frequency("D").value();
  item.forecast.start_us = 1'767'571'200'000'000;  // 2026-01-05
  item.forecast.horizon = 2;
  item.forecast.levels = {0.1, 0.5, 0.9};
  item.forecast.quantiles = {median - 2, median - 2, median, median, median + 2, median + 2};
  item.forecast.mean = {median, median};
  item.winner = "local";
  item.model = "m/" + id + ":1";
  item.seconds = 0.25;
  item.notes = {"a note"};
  item.scores = {{"local", {{"mase", 1.0}}}, {"seasonal_naive", {{"mase", 2.0}}}};
  return item;
}

}  // namespace headrace::jobs
