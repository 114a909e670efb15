// SPDX-License-Identifier: Apache-2.0
// How one series gets its model: trained from its own past, started from a global model, and chosen
// by backtest among local, global and seasonal naive.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/selection.h"

namespace headrace::jobs {

struct LocalPlan {
  forecast::TrainOptions train;
  forecast::SelectOptions select;
  forecast::PredictOptions predict;
  /// Ensemble trained on all series; null without one. Borrowed.
  const forecast::Model* global = nullptr;
  std::string global_name = "global";  ///< as a candidate
  bool warm_start = true;              ///< start local training from `global`
  bool choose = true;                  ///< false: the local model is taken as it is
};

struct LocalOutcome {
  forecast::Model model;  ///< the winner
  /// "local", "global", each possibly averaged with seasonal naive ("local+naive"),
  /// "seasonal_naive", "last_value".
  std::string winner;
  double naive_share = 0.0;  ///< as Model::naive_share
  /// Of the candidates, of their combination where there is one, and of Naive2, which is there for
  /// comparison alone; empty when nothing was compared.
  std::vector<forecast::CandidateScore> scores;
  std::string criterion;        ///< that decided, as `Selection::criterion`
  forecast::Forecast forecast;  ///< of the steps after the series
  std::vector<std::string> notes;
  double seconds = 0.0;  ///< wall time of all of it
};

/// Train, choose and forecast one series on the calling thread. A series that is too short for a
/// model of its own falls back to `global`, else to a naive method, and says so in `winner` and
/// `notes`. The result depends on the series and the plan alone. `should_stop` is asked every few
/// steps; true ends with `cancelled`.
HR_API Result<LocalOutcome> train_one(const forecast::Series& series, const LocalPlan& plan,
                                      const std::function<bool()>& should_stop = {});

/// How many windows of the series a fair choice may look at: those that training leaves out. 0 when
/// the series is too short, or when training is told to leave none out (parity, validation_windows
/// 0): then the local model is taken. With refit "full" the winner is trained again on all values
/// after the choice, where it is local. Of these, `train_one` compares on the
/// newest that `global` has not seen either; where it has seen all of them, without it.
HR_API int selection_windows(const forecast::Series& series, const LocalPlan& plan);

}  // namespace headrace::jobs
