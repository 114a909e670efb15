// SPDX-License-Identifier: Apache-2.0
// Accuracy of forecasts: MASE, sMAPE, OWA, quantile losses, coverage and their kin, per item, per
// step and in total.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/json.h"

namespace headrace::forecast {

/// Sums over cells (an item's step); ratios of them are the metrics. Cells without an actual value
/// are left out everywhere.
struct ErrorSums {
  int64_t cells = 0;
  double absolute = 0.0;    ///< sum |y - median|
  double symmetric = 0.0;   ///< sum 200 |y - m| / (|y| + |m|), 0/0 counts 0
  double squared = 0.0;     ///< sum (y - mean)^2
  double actual = 0.0;      ///< sum |y|
  double covered_80 = 0.0;  ///< cells with q0.1 <= y <= q0.9
  double covered_90 = 0.0;  ///< cells with q0.05 <= y <= q0.95; NaN without these levels
  double width_80 = 0.0;    ///< sum (q0.9 - q0.1)
  double crps = 0.0;        ///< sum of mean|x - y| - mean|x - x'| / 2; NaN without samples
  std::map<double, double> quantile_loss;  ///< by level: sum 2 max(q (y - f), (q - 1) (y - f))

  HR_API void add(const ErrorSums& other);
};

/// Metrics of one set of cells.
struct Metrics {
  double mase = 0.0;   ///< NaN where the item's in-sample seasonal error is 0 (a constant series)
  double smape = 0.0;  ///< per cent
  double mean_wql = 0.0;  ///< mean over the levels 0.1 ... 0.9 of sum QL / sum |y|; NaN
                          ///< unless all nine are there
  double nd = 0.0;
  double rmse = 0.0;
  double nrmse = 0.0;
  double coverage_80 = 0.0;  ///< share in [0, 1]
  double coverage_90 = 0.0;
  double crps = 0.0;      ///< mean over cells
  double width_80 = 0.0;  ///< mean width of the 80 % interval / mean |y|
  /// Mean over cells and the levels 0.1 ... 0.9, in units of the target: what `mean_wql` is before
  /// it is divided by mean |y|. NaN as there. Not among those named: no item is like another in it.
  double quantile_loss = 0.0;
  std::map<double, double> wql;

  /// All finite values by name ("mase", "smape", "mean_wql", "coverage_80", ...); others are left
  /// out.
  HR_API std::map<std::string, double> named() const;
};

/// A number of `Metrics` under the name it has in files, tables and JSON.
struct MetricField {
  const char* name;
  double Metrics::* field;
};
/// All that `Metrics::named` may tell, in the order in which tables have them.
HR_API std::span<const MetricField> metric_fields();

/// One item's forecast to judge. Spans are borrowed during the call; [horizon] each.
struct Judged {
  std::span<const double> training;  ///< past values, NaN = missing: for MASE's denominator
  std::span<const double> actual;    ///< NaN = missing
  std::span<const double> median;
  std::span<const double> mean;
  std::span<const double> levels;
  std::span<const double> quantiles;  ///< [levels][horizon]
  std::span<const float> samples;     ///< [paths][horizon], may be empty
  int season = 1;
};

/// Sums of all steps of one item; `steps`, when given, gets one entry per step added to.
HR_API ErrorSums error_sums(const Judged& judged, std::vector<ErrorSums>* steps = nullptr);

/// Mean |y_t - y_(t-season)| over the pairs where both are observed; NaN when there is none.
HR_API double seasonal_error(std::span<const double> training, int season);

/// Metrics of sums; `scale` is the seasonal error for MASE (NaN or 0: MASE is NaN).
HR_API Metrics metrics_of(const ErrorSums& sums, double scale);

/// Collects items; the totals weigh cells as section 7 of the specification says: MASE and sMAPE
/// are means over items, quantile losses ratios of sums.
class HR_API Scoreboard {
 public:
  struct Item {
    std::string id;
    std::string method;
    ErrorSums sums;
    double seasonal_error = 0.0;  ///< of the first origin
    Metrics metrics;              ///< over all origins
    double scaled_errors = 0.0;   ///< sum of |error| / seasonal error of the origin
    int64_t scaled_cells = 0;
  };

  /// Origins of one item, added one after another, are pooled under its id.
  void add(std::string id, std::string method, const Judged& judged);
  /// Append the items of another board.
  void merge(const Scoreboard& other);
  const std::vector<Item>& items() const { return items_; }
  const std::vector<ErrorSums>& steps() const { return steps_; }

  /// Totals: mean MASE and sMAPE over items, wQL, ND, RMSE, coverage over cells.
  Metrics total() const;
  double median_mase() const;
  double mean_item_wql()
      const;  ///< mean over items of their own mean_wql: each item weighs the same
  /// Items without a MASE: their in-sample seasonal error is 0, or there is none without two values
  /// a season apart.
  std::vector<std::string> constant_items() const;
  std::vector<std::string> unscaled_items() const;
  /// All that is said of a whole board, by name: `Metrics::named` of the total, "median_mase",
  /// "mean_item_wql", and "owa" against the total of `reference` (Naive2's board). What is not
  /// finite is left out.
  std::map<std::string, double> named_totals(const Scoreboard& reference) const;
  /// Metrics of step k ahead (0-based) over all items; MASE from the mean of |error| / seasonal
  /// error.
  Metrics step(int k) const;

 private:
  void add_steps(const std::vector<ErrorSums>& steps, double error);

  std::vector<Item> items_;
  std::vector<ErrorSums> steps_;
  std::vector<double> step_scaled_;  // per step: sum of |error| / seasonal error
  std::vector<int64_t> step_cells_;
};

/// 0.5 (MASE / MASE of the reference + sMAPE / sMAPE of the reference); the reference is Naive2.
HR_API double overall_weighted_average(const Metrics& total, const Metrics& reference);

}  // namespace headrace::forecast
