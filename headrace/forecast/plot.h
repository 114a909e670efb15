// SPDX-License-Identifier: Apache-2.0
// A plot of one forecast as SVG text: history, what came, median and central intervals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/frequency.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

/// A central interval, one value per step of the horizon.
struct PlotBand {
  double percent = 80.0;
  std::vector<double> low;
  std::vector<double> high;
};

/// What is drawn, a value per step. NaN leaves a gap.
struct PlotData {
  std::string title;
  Frequency frequency;
  int64_t start_us = 0;  ///< stamp of history[0]
  std::vector<double> history;
  int64_t overlap = 0;         ///< so many last values of the history lie in the forecast's range
  std::vector<double> actual;  ///< of the horizon; may be empty
  std::vector<double> median;  ///< decides the horizon's length
  std::vector<PlotBand> bands;
};

struct PlotOptions {
  int width = 960;
  int height = 360;
};

/// The central intervals that are drawn where the forecast has their two levels, in per cent.
inline constexpr int kPlotPercents[] = {95, 80, 50};

/// Where the forecast's stamps lie in the series: `history_steps` values before it (0: four
/// horizons) and what the series has of its range, and of the forecast the median
/// and the bands of `kPlotPercents`; where it has none of them, every pair of levels that are
/// symmetric about the median (0.2 and 0.8 make 60 %). `actual` may be empty or hold the values
/// that came. `invalid_argument`: the forecast has no median, or lies apart from the series.
HR_API Result<PlotData> plot_data(const Series& series, const Forecast& forecast,
                                  int64_t history_steps = 0, std::vector<double> actual = {});

/// A whole SVG document on white. The axis of values covers history and median; bands may add up to
/// 60 % of that a side. `invalid_argument`: vectors of the horizon differ in length, nothing to
/// draw, or a size below 200 by 120.
HR_API Result<std::string> forecast_svg(const PlotData& data, const PlotOptions& options = {});

}  // namespace headrace::forecast
