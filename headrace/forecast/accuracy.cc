// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/accuracy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "headrace/base/check.h"

namespace headrace::forecast {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kDeciles[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};

/// Row of a level in `quantiles`, or nullptr.
const double* level_row(const Judged& judged, double level) {
  for (size_t q = 0; q < judged.levels.size(); ++q) {
    if (std::fabs(judged.levels[q] - level) < 1e-9) {
      return judged.quantiles.data() + q * judged.actual.size();
    }
  }
  return nullptr;
}

/// Mean |x - y| - mean |x - x'| / 2 over the paths at step h.
double path_crps(const Judged& judged, size_t h, std::vector<double>* sorted) {
  const size_t horizon = judged.actual.size();
  const size_t paths = judged.samples.size() / horizon;
  sorted->resize(paths);
  double distance = 0.0;
  for (size_t p = 0; p < paths; ++p) {
    (*sorted)[p] = static_cast<double>(judged.samples[p * horizon + h]);
    distance += std::fabs((*sorted)[p] - judged.actual[h]);
  }
  std::sort(sorted->begin(), sorted->end());
  // Sum over ordered pairs: the value of rank i counts 2 (2 i - paths + 1) times.
  double spread = 0.0;
  for (size_t i = 0; i < paths; ++i) {
    spread += (2.0 * static_cast<double>(i) - static_cast<double>(paths) + 1.0) * (*sorted)[i];
  }
  const auto count = static_cast<double>(paths);
  return distance / count - spread / (count * count);
}

double share(double sum, double total) { return total != 0.0 ? sum / total : kNaN; }

constexpr MetricField kMetricFields[] = {
    {"mase", &Metrics::mase},
    {"smape", &Metrics::smape},
    {"mean_wql", &Metrics::mean_wql},
    {"nd", &Metrics::nd},
    {"rmse", &Metrics::rmse},
    {"nrmse", &Metrics::nrmse},
    {"coverage_80", &Metrics::coverage_80},
    {"coverage_90", &Metrics::coverage_90},
    {"crps", &Metrics::crps},
    {"width_80", &Metrics::width_80},
};

void put(std::map<std::string, double>* named, const char* name, double value) {
  if (std::isfinite(value)) {
    named->emplace(name, value);
  }
}

}  // namespace

void ErrorSums::add(const ErrorSums& other) {
  cells += other.cells;
  absolute += other.absolute;
  symmetric += other.symmetric;
  squared += other.squared;
  actual += other.actual;
  covered_80 += other.covered_80;
  covered_90 += other.covered_90;
  width_80 += other.width_80;
  crps += other.crps;
  for (const auto& [level, loss] : other.quantile_loss) {
    quantile_loss[level] += loss;
  }
}

ErrorSums error_sums(const Judged& judged, std::vector<ErrorSums>* steps) {
  const size_t horizon = judged.actual.size();
  HR_CHECK(judged.median.size() == horizon && judged.mean.size() == horizon &&
               judged.quantiles.size() == judged.levels.size() * horizon,
           "a forecast must have as many steps as there are actual values");
  const double* low_80 = level_row(judged, 0.1);
  const double* high_80 = level_row(judged, 0.9);
  const double* low_90 = level_row(judged, 0.05);
  const double* high_90 = level_row(judged, 0.95);
  const bool has_80 = low_80 != nullptr && high_80 != nullptr;
  const bool has_90 = low_90 != nullptr && high_90 != nullptr;
  if (steps != nullptr && steps->size() < horizon) {
    steps->resize(horizon);
  }
  ErrorSums total;
  std::vector<double> sorted;
  for (size_t h = 0; h < horizon; ++h) {
    const double y = judged.actual[h];
    if (std::isnan(y)) {
      continue;
    }
    ErrorSums cell;
    cell.cells = 1;
    cell.absolute = std::fabs(y - judged.median[h]);
    const double sum = std::fabs(y) + std::fabs(judged.median[h]);
    cell.symmetric = sum > 0.0 ? 200.0 * cell.absolute / sum : 0.0;
    cell.squared = (y - judged.mean[h]) * (y - judged.mean[h]);
    cell.actual = std::fabs(y);
    cell.covered_80 = has_80 ? static_cast<double>(low_80[h] <= y && y <= high_80[h]) : kNaN;
    cell.covered_90 = has_90 ? static_cast<double>(low_90[h] <= y && y <= high_90[h]) : kNaN;
    cell.width_80 = has_80 ? high_80[h] - low_80[h] : kNaN;
    cell.crps = judged.samples.empty() ? kNaN : path_crps(judged, h, &sorted);
    for (size_t q = 0; q < judged.levels.size(); ++q) {
      const double error = y - judged.quantiles[q * horizon + h];
      const double level = judged.levels[q];
      cell.quantile_loss[level] = 2.0 * std::max(level * error, (level - 1.0) * error);
    }
    total.add(cell);
    if (steps != nullptr) {
      (*steps)[h].add(cell);
    }
  }
  return total;
}

double seasonal_error(std::span<const double> training, int season) {
  double sum = 0.0;
  int64_t count = 0;
  for (size_t i = static_cast<size_t>(season); i < training.size(); ++i) {
    const double difference = training[i] - training[i - static_cast<size_t>(season)];
    if (!std::isnan(difference)) {
      sum += std::fabs(difference);
      ++count;
    }
  }
  return count > 0 ? sum / static_cast<double>(count) : kNaN;
}

Metrics metrics_of(const ErrorSums& sums, double scale) {
  Metrics metrics;
  const auto cells = static_cast<double>(sums.cells);
  metrics.mase = scale > 0.0 ? share(sums.absolute, cells) / scale : kNaN;
  metrics.smape = share(sums.symmetric, cells);
  metrics.nd = share(sums.absolute, sums.actual);
  metrics.rmse = std::sqrt(share(sums.squared, cells));
  metrics.nrmse = share(metrics.rmse * cells, sums.actual);
  metrics.coverage_80 = share(sums.covered_80, cells);
  metrics.coverage_90 = share(sums.covered_90, cells);
  metrics.crps = share(sums.crps, cells);
  metrics.width_80 = share(sums.width_80, sums.actual);
  double deciles = 0.0;
  double losses = 0.0;
  int known = 0;
  for (const auto& [level, loss] : sums.quantile_loss) {
    metrics.wql[level] = share(loss, sums.actual);
    const bool is_decile =
        std::any_of(std::begin(kDeciles), std::end(kDeciles),
                    [&](double decile) { return std::fabs(decile - level) < 1e-9; });
    if (is_decile) {
      deciles += metrics.wql[level];
      losses += loss;
      ++known;
    }
  }
  // Over fewer levels it would be another number under the same name.
  metrics.mean_wql = known == std::ssize(kDeciles) ? deciles / known : kNaN;
  metrics.quantile_loss = known == std::ssize(kDeciles) ? share(losses, known * cells) : kNaN;
  return metrics;
}

std::span<const MetricField> metric_fields() { return kMetricFields; }

std::map<std::string, double> Metrics::named() const {
  std::map<std::string, double> named;
  for (const auto& [name, field] : kMetricFields) {
    put(&named, name, this->*field);
  }
  return named;
}

void Scoreboard::add(std::string id, std::string method, const Judged& judged) {
  std::vector<ErrorSums> steps;
  const ErrorSums sums = error_sums(judged, &steps);
  const double error = seasonal_error(judged.training, judged.season);
  add_steps(steps, error);
  // Several origins of one item follow one another and are pooled.
  if (!items_.empty() && items_.back().id == id) {
    Item& item = items_.back();
    item.sums.add(sums);
    item.scaled_errors += error > 0.0 ? sums.absolute / error : 0.0;
    item.scaled_cells += error > 0.0 ? sums.cells : 0;
    item.metrics = metrics_of(item.sums, kNaN);
    item.metrics.mase = share(item.scaled_errors, static_cast<double>(item.scaled_cells));
    return;
  }
  Item item{std::move(id), std::move(method), sums, error, metrics_of(sums, error), 0.0, 0};
  if (error > 0.0) {
    item.scaled_errors = sums.absolute / error;
    item.scaled_cells = sums.cells;
  }
  items_.push_back(std::move(item));
}

void Scoreboard::add_steps(const std::vector<ErrorSums>& steps, double error) {
  if (steps_.size() < steps.size()) {
    steps_.resize(steps.size());
    step_scaled_.resize(steps.size(), 0.0);
    step_cells_.resize(steps.size(), 0);
  }
  for (size_t h = 0; h < steps.size(); ++h) {
    steps_[h].add(steps[h]);
    if (error > 0.0) {
      step_scaled_[h] += steps[h].absolute / error;
      step_cells_[h] += steps[h].cells;
    }
  }
}

void Scoreboard::merge(const Scoreboard& other) {
  items_.insert(items_.end(), other.items_.begin(), other.items_.end());
  if (steps_.size() < other.steps_.size()) {
    steps_.resize(other.steps_.size());
    step_scaled_.resize(other.steps_.size(), 0.0);
    step_cells_.resize(other.steps_.size(), 0);
  }
  for (size_t h = 0; h < other.steps_.size(); ++h) {
    steps_[h].add(other.steps_[h]);
    step_scaled_[h] += other.step_scaled_[h];
    step_cells_[h] += other.step_cells_[h];
  }
}

Metrics Scoreboard::total() const {
  ErrorSums sums;
  double mase = 0.0;
  double smape = 0.0;
  int64_t with_mase = 0;
  int64_t with_smape = 0;
  for (const Item& item : items_) {
    sums.add(item.sums);
    if (std::isfinite(item.metrics.mase)) {
      mase += item.metrics.mase;
      ++with_mase;
    }
    if (std::isfinite(item.metrics.smape)) {
      smape += item.metrics.smape;
      ++with_smape;
    }
  }
  Metrics metrics = metrics_of(sums, kNaN);
  metrics.mase = share(mase, static_cast<double>(with_mase));
  metrics.smape = share(smape, static_cast<double>(with_smape));
  return metrics;
}

double Scoreboard::median_mase() const {
  std::vector<double> values;
  for (const Item& item : items_) {
    if (std::isfinite(item.metrics.mase)) {
      values.push_back(item.metrics.mase);
    }
  }
  if (values.empty()) {
    return kNaN;
  }
  std::sort(values.begin(), values.end());
  return 0.5 * (values[(values.size() - 1) / 2] + values[values.size() / 2]);
}

double Scoreboard::mean_item_wql() const {
  double sum = 0.0;
  int64_t count = 0;
  for (const Item& item : items_) {
    if (std::isfinite(item.metrics.mean_wql)) {
      sum += item.metrics.mean_wql;
      ++count;
    }
  }
  return share(sum, static_cast<double>(count));
}

std::vector<std::string> Scoreboard::constant_items() const {
  std::vector<std::string> ids;
  for (const Item& item : items_) {
    if (item.scaled_cells == 0 && item.seasonal_error == 0.0) {
      ids.push_back(item.id);
    }
  }
  return ids;
}

std::vector<std::string> Scoreboard::unscaled_items() const {
  std::vector<std::string> ids;
  for (const Item& item : items_) {
    if (item.scaled_cells == 0 && std::isnan(item.seasonal_error)) {
      ids.push_back(item.id);
    }
  }
  return ids;
}

std::map<std::string, double> Scoreboard::named_totals(const Scoreboard& reference) const {
  const Metrics whole = total();
  std::map<std::string, double> named = whole.named();
  put(&named, "median_mase", median_mase());
  put(&named, "mean_item_wql", mean_item_wql());
  put(&named, "owa", overall_weighted_average(whole, reference.total()));
  return named;
}

Metrics Scoreboard::step(int k) const {
  const auto h = static_cast<size_t>(k);
  Metrics metrics = metrics_of(steps_.at(h), kNaN);
  metrics.mase = share(step_scaled_[h], static_cast<double>(step_cells_[h]));
  return metrics;
}

double overall_weighted_average(const Metrics& total, const Metrics& reference) {
  return 0.5 * (total.mase / reference.mase + total.smape / reference.smape);
}

}  // namespace headrace::forecast
