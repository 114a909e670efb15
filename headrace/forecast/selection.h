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
  std::string criterion = "mean_wql";  ///< "mean_wql", "mase", "crps", "quantile_loss"
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
  std::string criterion;               ///< what was compared: that asked for, or "quantile_loss"
};

/// Forecast the last windows of the series with each candidate and take the best. The models should
/// not have been trained on these windows: a validation tail that only stopped the training is fair
/// to all. Where the criterion has no value for any (sums of zeros do not scale a loss), they are
/// compared by their mean quantile loss, the simplest first: methods without parameters, then in
/// their order.
HR_API Result<Selection> select_model(const Series& series, std::span<const Candidate> candidates,
                                      const SelectOptions& options, const PredictOptions& predict);

/// The score of one model on the same windows, for comparison: nothing is chosen.
HR_API Result<CandidateScore> score_model(const Series& series, const Candidate& candidate,
                                          const SelectOptions& options,
                                          const PredictOptions& predict);

}  // namespace headrace::forecast
