// SPDX-License-Identifier: Apache-2.0
// Choose among models of one item by how they forecast its recent past.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/accuracy.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/options.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

/// One of the models to choose from.
struct Candidate {
  std::string name;              ///< "local", "global", "seasonal_naive", ...
  const Model* model = nullptr;  ///< borrowed
};

struct CandidateScore {
  std::string name;
  Metrics metrics;
  double score = 0.0;  ///< what was compared: less is better
};

struct SelectOptions {
  int windows = 2;                     ///< origins n - horizon * (1 ... windows)
  std::string criterion = "mean_wql";  ///< "mean_wql", "mase", "crps"
  /// A later candidate must be better than the best before it by this share: the order of
  /// candidates is the order of trust.
  double margin = 0.1;
  /// Do not only choose: average the quantiles of the best network and of seasonal naive, with
  /// weights by the inverse square of their scores. Steadier than a choice where few windows decide
  /// (Bates & Granger, The combination of forecasts, 1969).
  bool combine = true;
};

struct Selection {
  int best = 0;                        ///< index into the candidates
  double naive_share = 0.0;            ///< for Model::naive_share of the best: with `combine`
  std::vector<CandidateScore> scores;  ///< one per candidate, in their order; then that of the
                                       ///< combination, named like "local+naive"
};

/// Forecast the last windows of the series with each candidate and take the best. The models should
/// not have been trained on these windows: a validation tail that only stopped the training is fair
/// to all.
HR_API Result<Selection> select_model(const Series& series, std::span<const Candidate> candidates,
                                      const SelectOptions& options, const PredictOptions& predict);

}  // namespace headrace::forecast
