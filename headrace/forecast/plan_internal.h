// SPDX-License-Identifier: Apache-2.0
// From options and series to the spec of a model: lags, features, dictionaries, scaling of
// covariates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

struct Plan {
  ModelSpec spec;
  InputScaling scaling;
  std::vector<std::string> notes;
};

/// What stays `auto` beside a warm start is as the stored model has it.
TrainOptions follow_warm(const TrainOptions& options, const Model* warm);

/// `options` are resolved. With `warm`, what is left to choose (lags, context, features,
/// dictionaries, scaling) is the warm model's, and what the options say otherwise is a `mismatch`
/// that names the field.
Result<Plan> make_plan(const TrainOptions& options, std::span<const Series* const> series,
                       const Model* warm);

}  // namespace headrace::forecast
