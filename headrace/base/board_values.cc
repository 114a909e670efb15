// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/board_values.h"

namespace headrace::base {

namespace {

/// The value below which this part of the observations lies, in steps.
double quantile(const BoardSnapshot::Metric& metric, double part) {
  const double wanted = part * static_cast<double>(metric.count);
  double below = 0.0;
  for (int i = 0; i < Histogram::kBuckets; ++i) {
    const auto here = static_cast<double>(metric.buckets[static_cast<size_t>(i)]);
    if (here > 0.0 && below + here >= wanted) {
      const double from = i == 0 ? 0.0 : Histogram::upper_bound(i - 1);
      const double to = i == Histogram::kBuckets - 1 ? from : Histogram::upper_bound(i);
      return from + (to - from) * (wanted - below) / here;
    }
    below += here;
  }
  return 0.0;
}

Json value_of(const BoardSnapshot::Metric& metric) {
  switch (metric.type) {
    case MetricType::gauge: return metric.value;
    case MetricType::counter:
      return metric.unit == "seconds" ? Json(static_cast<double>(metric.count) / 1e9)
                                      : Json(static_cast<int64_t>(metric.count));
    case MetricType::histogram: break;
  }
  const double step = metric.unit == "seconds" ? 1e-6 : metric.unit == "ratio" ? 1e-3 : 1.0;
  return Json::object({{"count", static_cast<int64_t>(metric.count)},
                       {"sum", metric.value * step},
                       {"p50", quantile(metric, 0.5) * step},
                       {"p95", quantile(metric, 0.95) * step}});
}

}  // namespace

Json board_values(const BoardSnapshot& board) {
  Json values = Json::object();
  for (const BoardSnapshot::Metric& metric : board.metrics) {
    values.set(metric.labels.empty() ? metric.name : metric.name + "{" + metric.labels + "}",
               value_of(metric));
  }
  return values;
}

}  // namespace headrace::base
