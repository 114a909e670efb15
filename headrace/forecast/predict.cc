// SPDX-License-Identifier: Apache-2.0
// Forecasts of many items: paths through the network, or a naive method.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "headrace/base/check.h"
#include "headrace/forecast/forecaster.h"
#include "headrace/forecast/naive.h"
#include "headrace/forecast/quantile_internal.h"
#include "headrace/forecast/sampler_internal.h"

namespace headrace::forecast {

namespace {

constexpr const char* kWithNaive = "+naive";
constexpr std::string_view kGlobal = "global";  // also the name of its scope
constexpr std::string_view kUnnamed = "forecast";

constexpr int64_t kSamplesAtOnce = 4 << 20;  // floats of paths held for one group of items

Result<void> go_on(const std::function<bool()>& stop) {
  return stop && stop() ? Error{Errc::cancelled, "forecast: stopped"} : Result<void>();
}

/// Quantiles and mean of the paths in `samples`, [paths][horizon].
Result<void> summarize(std::span<const float> samples, const PredictOptions& options,
                       const std::function<bool()>& stop, Forecast* forecast) {
  const auto horizon = static_cast<size_t>(forecast->horizon);
  const size_t paths = samples.size() / horizon;
  forecast->mean.resize(horizon);
  forecast->quantiles.resize(forecast->levels.size() * horizon);
  std::vector<float> column(paths);
  for (size_t h = 0; h < horizon; ++h) {
    HR_TRY(go_on(stop));
    double sum = 0.0;
    for (size_t p = 0; p < paths; ++p) {
      column[p] = samples[p * horizon + h];
      sum += static_cast<double>(column[p]);
    }
    forecast->mean[h] = sum / static_cast<double>(paths);
    std::sort(column.begin(), column.end());
    for (size_t q = 0; q < forecast->levels.size(); ++q) {
      forecast->quantiles[q * horizon + h] = sorted_quantile<float>(column, forecast->levels[q]);
    }
  }
  if (options.keep_samples) {
    forecast->samples.assign(samples.begin(), samples.end());
  }
  return {};
}

/// Average the quantile functions of paths and seasonal naive, step by step: the path of rank r
/// moves towards the naive quantile at (r + 1/2) / paths and keeps its rank, so that quantiles,
/// mean and paths stay of one piece (averaging quantiles: Lichtendahl, Grushka-Cockayne & Winkler,
/// Is it better to average probabilities or quantiles?, Management Science 59, 2013).
Result<void> mix_with_naive(const Model& model, const Series& series, int horizon,
                            const std::function<bool()>& stop, std::span<float> samples) {
  const int season = series.length() < model.spec.season ? 1 : std::max(1, model.spec.season);
  const NaiveSpread spread(series.target, seasonal_naive(series.target, horizon, season), season);
  const auto steps = static_cast<size_t>(horizon);
  const size_t paths = samples.size() / steps;
  std::vector<size_t> order(paths);
  for (size_t h = 0; h < steps; ++h) {
    HR_TRY(go_on(stop));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return samples[a * steps + h] < samples[b * steps + h];
    });
    for (size_t rank = 0; rank < paths; ++rank) {
      float& value = samples[order[rank] * steps + h];
      const double level = (static_cast<double>(rank) + 0.5) / static_cast<double>(paths);
      const double naive = spread.quantile(static_cast<int>(h), level);
      value = static_cast<float>((1.0 - model.naive_share) * static_cast<double>(value) +
                                 model.naive_share * naive);
    }
  }
  return {};
}

/// Counts have no values below 0, whatever seasonal naive adds to them or stands for them.
bool is_of_counts(const Model& model) {
  const std::string_view counts = distribution_name(Distribution::negative_binomial);
  return model.spec.distribution == Distribution::negative_binomial ||
         model.options.get_string("distribution") == counts;
}

Forecast empty_forecast(const Model& model, const Series& series, const PredictOptions& options) {
  Forecast forecast;
  forecast.id = series.id;
  forecast.frequency = series.frequency;
  forecast.start_us = series.stamp(series.length());
  forecast.horizon = options.horizon;
  forecast.method = model.method;
  forecast.with_naive = model.method == Method::deepar && model.naive_share > 0.0;
  forecast.levels = options.quantiles;
  return forecast;
}

/// Point and spread of a method without parameters. Samples are drawn step by step from the spread:
/// right in each step, without the dependence between steps.
Forecast naive_forecast(const Model& model, const Series& series, const PredictOptions& options) {
  Forecast forecast = empty_forecast(model, series, options);
  const bool seasonal = model.method != Method::last_value;
  const int season = seasonal ? std::max(1, model.spec.season) : 1;
  const std::vector<double> point = model.method == Method::naive2
                                        ? naive2(series.target, options.horizon, season)
                                        : seasonal_naive(series.target, options.horizon, season);
  const NaiveSpread spread(series.target, point, season);
  const auto cut = [&](double value) { return options.nonnegative ? std::max(0.0, value) : value; };
  for (const double level : forecast.levels) {
    for (int h = 0; h < options.horizon; ++h) {
      forecast.quantiles.push_back(cut(spread.quantile(h, level)));
    }
  }
  for (const double value : point) {
    forecast.mean.push_back(cut(value));
  }
  if (options.keep_samples) {
    base::Rng rng(base::derive_seed(static_cast<uint64_t>(options.seed), series.id));
    for (int i = 0; i < options.samples * options.horizon; ++i) {
      forecast.samples.push_back(
          static_cast<float>(cut(spread.quantile(i % options.horizon, rng.uniform()))));
    }
  }
  return forecast;
}

/// Items of one group with the memory of their paths.
class Group {
 public:
  Group(const Model& model, const PredictOptions& options, const std::function<bool()>& stop)
      : model_(model), options_(options), stop_(stop) {}

  Result<void> add(const Series& series) {
    const int64_t first = std::max<int64_t>(0, series.length() - model_.spec.context);
    HR_TRY(PreparedSeries prepared,
           prepare_series(model_.spec, model_.scaling, series,
                          {series.length(), first, series.length() + options_.horizon}));
    prepared_.push_back(std::move(prepared));
    series_.push_back(&series);
    return {};
  }
  bool full() const {
    return static_cast<int64_t>(series_.size() + 1) * options_.samples * options_.horizon >
           kSamplesAtOnce;
  }
  bool empty() const { return series_.empty(); }

  /// Draw the paths and append the forecasts. When an item makes the network give no number, each
  /// is drawn alone, with the same result, so that only this one fails. Error: `cancelled`.
  Result<void> run(Forecasts* out) {
    const Result<void> together = draw(0, series_.size(), out);
    if (together.ok() || together.error().code() == Errc::cancelled) {
      clear();
      return together;
    }
    for (size_t i = 0; i < series_.size(); ++i) {
      if (auto drawn = draw(i, 1, out); !drawn.ok()) {
        if (drawn.error().code() == Errc::cancelled) {
          return drawn;
        }
        out->errors.push_back({series_[i]->id, std::move(drawn).error()});
      }
    }
    clear();
    return {};
  }

 private:
  void clear() {
    series_.clear();
    prepared_.clear();
  }

  /// Paths of items [begin, begin + count), evenly over the members.
  Result<void> draw(size_t begin, size_t count, Forecasts* out) {
    const auto cells =
        static_cast<size_t>(options_.samples) * static_cast<size_t>(options_.horizon);
    std::vector<float> samples(count * cells);
    std::vector<int64_t> limited(count, 0);
    const auto members = static_cast<int64_t>(model_.members.size());
    for (int64_t m = 0; m < members; ++m) {
      const auto first = static_cast<size_t>(options_.samples * m / members);
      const auto last = static_cast<size_t>(options_.samples * (m + 1) / members);
      if (first == last) {
        continue;
      }
      std::vector<PathRequest> requests;
      for (size_t i = 0; i < count; ++i) {
        const PreparedSeries& prepared = prepared_[begin + i];
        const uint64_t seed = base::derive_seed(static_cast<uint64_t>(options_.seed), prepared.id);
        requests.push_back(
            {&prepared, prepared.length(), base::derive_seed(seed, static_cast<uint64_t>(m)),
             &samples[i * cells + first * static_cast<size_t>(options_.horizon)], 0});
      }
      HR_TRY(sample_paths(
          model_.spec, model_.scaling, model_.members[static_cast<size_t>(m)],
          {options_.horizon, static_cast<int>(last - first), options_.path_limit, stop_},
          requests));
      for (size_t i = 0; i < requests.size(); ++i) {
        limited[i] += requests[i].limited_values;
      }
    }
    for (size_t i = 0; i < count; ++i) {
      Forecast forecast = empty_forecast(model_, *series_[begin + i], options_);
      const std::span<float> mine = std::span(samples).subspan(i * cells, cells);
      if (model_.naive_share > 0.0) {
        HR_TRY(mix_with_naive(model_, *series_[begin + i], options_.horizon, stop_, mine));
      }
      if (options_.nonnegative) {
        for (float& value : mine) {
          value = std::max(0.0F, value);
        }
      }
      HR_TRY(summarize(mine, options_, stop_, &forecast));
      forecast.limited_values = limited[i];
      out->items.push_back(std::move(forecast));
    }
    return {};
  }

  const Model& model_;
  const PredictOptions& options_;
  const std::function<bool()>& stop_;
  std::vector<const Series*> series_;
  std::vector<PreparedSeries> prepared_;
};

}  // namespace

std::span<const double> Forecast::quantile(double level) const {
  const auto found = std::find(levels.begin(), levels.end(), level);
  HR_CHECK(found != levels.end(), fmt::format("the forecast has no quantile level {}", level));
  const auto index = static_cast<size_t>(found - levels.begin());
  return std::span(quantiles).subspan(index * static_cast<size_t>(horizon),
                                      static_cast<size_t>(horizon));
}

std::string made_by(const Forecast& forecast) {
  if (forecast.unnamed) {
    return std::string(kUnnamed);
  }
  return std::string(forecast.by_global ? kGlobal : method_name(forecast.method)) +
         (forecast.with_naive ? kWithNaive : "");
}

Result<void> set_made_by(std::string_view text, Forecast* forecast) {
  forecast->unnamed = text == kUnnamed;
  if (forecast->unnamed) {
    return {};
  }
  forecast->with_naive = text.ends_with(kWithNaive);
  if (forecast->with_naive) {
    text.remove_suffix(std::string_view(kWithNaive).size());
  }
  forecast->by_global = text == kGlobal;
  HR_TRY(forecast->method, parse_method(forecast->by_global ? method_name(Method::deepar) : text));
  return {};
}

void mark_global(const Model& model, Forecast* forecast) {
  forecast->by_global =
      model.method == Method::deepar && model.training.get_string("scope") == kGlobal;
}

Result<Forecasts> predict(const Model& model, std::span<const Series> series,
                          const PredictOptions& options, const std::function<bool()>& stop) {
  PredictOptions settled = options;
  settled.nonnegative = options.nonnegative || is_of_counts(model);
  settled.horizon = options.horizon > 0 ? options.horizon : model.spec.horizon;
  std::sort(settled.quantiles.begin(), settled.quantiles.end());
  settled.quantiles.erase(std::unique(settled.quantiles.begin(), settled.quantiles.end()),
                          settled.quantiles.end());
  if (settled.samples < 1 || settled.horizon < 1) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: {} samples of {} steps; both must be at least 1",
                             settled.samples, settled.horizon)};
  }
  if (model.method == Method::deepar && model.members.empty()) {
    return Error{Errc::invalid_argument, "forecast: the model has no weights"};
  }
  Forecasts forecasts;
  Group group(model, settled, stop);
  for (const Series& s : series) {
    HR_TRY(go_on(stop));
    if (model.method != Method::deepar) {
      if (auto checked = check_series(s); !checked.ok()) {
        forecasts.errors.push_back({s.id, std::move(checked).error()});
      } else {
        forecasts.items.push_back(naive_forecast(model, s, settled));
      }
      continue;
    }
    if (!group.empty() && group.full()) {
      HR_TRY(group.run(&forecasts));
    }
    if (auto added = group.add(s); !added.ok()) {
      forecasts.errors.push_back({s.id, std::move(added).error()});
    }
  }
  if (!group.empty()) {
    HR_TRY(group.run(&forecasts));
  }
  return forecasts;
}

}  // namespace headrace::forecast
