// SPDX-License-Identifier: Apache-2.0
// Which past values a step sees: default lags by frequency, and the choice of those a series can
// use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/forecast/frequency.h"

namespace headrace::forecast {

/// Lags in steps, 1 = the previous value, ascending: 1..7 and k seasons +- a few steps up to 1200,
/// the lists of GluonTS 0.17 (rounding of odd multiples included).
HR_API std::vector<int> default_lags(const Frequency& frequency);

/// A choice of lags with the sentence for the log; the note is empty when nothing was dropped.
struct LagChoice {
  std::vector<int> lags;
  std::string note;
};

/// Keep the lags that have a value at half or more of the positions [0, length) of a training
/// range. A lag that is almost always before the start keeps its random weights, yet carries values
/// in the forecast: noise. For several series give the length that stands for them (the median). At
/// least the smallest lag stays.
HR_API LagChoice usable_lags(const std::vector<int>& lags, int64_t length);

/// Keep the lags up to `lag_max`.
HR_API LagChoice lags_up_to(const std::vector<int>& lags, int lag_max);

}  // namespace headrace::forecast
