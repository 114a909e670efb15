// SPDX-License-Identifier: Apache-2.0
#include "headrace/forecast/backtest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "headrace/forecast/naive.h"

namespace headrace::forecast {

namespace {

constexpr double kDeciles[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};

/// The levels metrics need, beside those the caller asked for.
PredictOptions with_metric_levels(const PredictOptions& options) {
  PredictOptions wanted = options;
  for (const double level : {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}) {
    if (std::find(wanted.quantiles.begin(), wanted.quantiles.end(), level) ==
        wanted.quantiles.end()) {
      wanted.quantiles.push_back(level);
    }
  }
  wanted.keep_samples = true;
  return wanted;
}

/// A point forecast as its own median, mean and quantiles: how naive methods are scored.
void add_point(std::span<const double> training, std::span<const double> actual,
               const std::vector<double>& point, int season, const std::string& id,
               std::string_view method, Scoreboard* board) {
  std::vector<double> quantiles;
  for (size_t q = 0; q < std::size(kDeciles); ++q) {
    quantiles.insert(quantiles.end(), point.begin(), point.end());
  }
  board->add(id, std::string(method),
             {training, actual, point, point, kDeciles, quantiles, {}, season});
}

/// Score one forecast and the naive ones beside it.
void score(std::span<const double> training, std::span<const double> actual,
           const Forecast& forecast, int season, Comparison* out) {
  out->model.add(forecast.id, made_by(forecast),
                 {training, actual, forecast.quantile(0.5), forecast.mean, forecast.levels,
                  forecast.quantiles, forecast.samples, season});
  const auto horizon = static_cast<int>(actual.size());
  add_point(training, actual, seasonal_naive(training, horizon, season), season, forecast.id,
            method_name(Method::seasonal_naive), &out->seasonal_naive);
  add_point(training, actual, naive2(training, horizon, season), season, forecast.id,
            method_name(Method::naive2), &out->naive2);
}

/// Values left of origin j, 0 = the newest; below 1 there is none.
int64_t origin_length(const Series& series, int horizon, int stride, int j) {
  return series.length() - horizon - int64_t{j} * stride;
}

/// One walk over the origins, oldest first.
class Walk {
 public:
  Walk(Scope scope, const TrainOptions& train, const BacktestOptions& options,
       const PredictOptions& predict, const TrainContext& context)
      : scope_(scope),
        train_(train),
        options_(options),
        predict_(with_metric_levels(predict)),
        context_(context),
        horizon_(train.horizon),
        stride_(options.stride > 0 ? options.stride : train.horizon) {
    predict_.horizon = horizon_;
  }

  Result<Comparison> run(std::span<const Series> series) {
    std::vector<const Series*> usable;
    for (const Series& s : series) {
      const int64_t oldest = origin_length(s, horizon_, stride_, options_.windows - 1);
      if (auto checked = check_series(s); !checked.ok()) {
        out_.errors.push_back({s.id, std::move(checked).error()});
      } else if (oldest < horizon_ + 1) {
        out_.errors.push_back({s.id, too_short(s, oldest)});
      } else {
        usable.push_back(&s);
      }
    }
    if (scope_ == Scope::global) {
      HR_TRY(walk(usable));
    } else {
      for (const Series* s : usable) {
        HR_TRY(walk({&s, 1}));
      }
    }
    return std::move(out_);
  }

 private:
  Error too_short(const Series& series, int64_t oldest) const {
    return Error{
        Errc::unsupported,
        fmt::format("forecast: item \"{}\": {} values; the oldest of {} origins would leave {} to "
                    "train on and {} are needed",
                    series.id, series.length(), options_.windows, std::max<int64_t>(0, oldest),
                    horizon_ + 1)};
  }

  Result<void> walk(std::span<const Series* const> series) {
    std::optional<Model> model;
    std::map<std::string, std::vector<Forecast>> by_item;  // origins of an item stay together
    for (int j = options_.windows - 1; j >= 0; --j) {
      std::vector<Series> cut;
      for (const Series* s : series) {
        cut.push_back(s->without_last(s->length() - origin_length(*s, horizon_, stride_, j)));
      }
      if (!model || options_.retrain) {
        auto trained = train(cut);
        if (!trained.ok() &&
            (scope_ == Scope::global || trained.error().code() == Errc::cancelled)) {
          return std::move(trained).error();
        }
        if (!trained.ok()) {
          out_.errors.push_back({series.front()->id, std::move(trained).error()});
          return {};
        }
        const std::string whose = scope_ == Scope::local ? series.front()->id : "";
        for (std::string& note : trained->notes) {
          out_.notes.push_back({whose, std::move(note)});
        }
        model = std::move(trained->model);
      }
      HR_TRY(Forecasts forecasts, forecast::predict(*model, cut, predict_, context_.stop));
      std::move(forecasts.errors.begin(), forecasts.errors.end(), std::back_inserter(out_.errors));
      for (Forecast& forecast : forecasts.items) {
        by_item[forecast.id].push_back(std::move(forecast));
      }
    }
    for (const Series* s : series) {
      for (const Forecast& forecast : by_item[s->id]) {
        score_origin(*s, forecast, model->spec.season);
      }
    }
    return {};
  }

  Result<Trained> train(std::span<const Series> series) const {
    return scope_ == Scope::global ? train_global(series, train_, context_)
                                   : train_local(series.front(), train_, context_);
  }

  void score_origin(const Series& series, const Forecast& forecast, int season) {
    const int64_t cut = *steps_between(series.frequency, series.start_us, forecast.start_us);
    const std::span<const double> values = series.target;
    score(values.first(static_cast<size_t>(cut)),
          values.subspan(static_cast<size_t>(cut), static_cast<size_t>(horizon_)), forecast, season,
          &out_);
  }

  Scope scope_;
  const TrainOptions& train_;
  const BacktestOptions& options_;
  PredictOptions predict_;
  const TrainContext& context_;
  int horizon_;
  int stride_;
  Comparison out_;
};

/// The values a forecast is about, from a series that may begin before or after it; NaN where there
/// are none.
std::vector<double> aligned(const Series& actual, const Forecast& forecast) {
  std::vector<double> values(static_cast<size_t>(forecast.horizon),
                             std::numeric_limits<double>::quiet_NaN());
  for (int h = 0; h < forecast.horizon; ++h) {
    const int64_t stamp = add_steps(forecast.frequency, forecast.start_us, h);
    const std::optional<int64_t> index = steps_between(actual.frequency, actual.start_us, stamp);
    if (index && *index >= 0 && *index < actual.length()) {
      values[static_cast<size_t>(h)] = actual.target[static_cast<size_t>(*index)];
    }
  }
  return values;
}

/// Which stamps are held, and which are needed, where none of these has a value.
std::string ranges_text(const Series& actual, const Forecast& forecast) {
  const auto last = [](const Frequency& frequency, int64_t start_us, int64_t steps) {
    return stamp_text(add_steps(frequency, start_us, steps - 1));
  };
  return fmt::format(
      "no actual value lies in the forecast's range: the actual values are of {} to {}, the "
      "forecast is of {} to {}",
      stamp_text(actual.start_us), last(actual.frequency, actual.start_us, actual.length()),
      stamp_text(forecast.start_us), last(forecast.frequency, forecast.start_us, forecast.horizon));
}

}  // namespace

void Comparison::merge(const Comparison& other) {
  model.merge(other.model);
  seasonal_naive.merge(other.seasonal_naive);
  naive2.merge(other.naive2);
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
  notes.insert(notes.end(), other.notes.begin(), other.notes.end());
}

Result<Comparison> backtest(std::span<const Series> series, Scope scope, const TrainOptions& train,
                            const BacktestOptions& options, const PredictOptions& predict,
                            const TrainContext& context) {
  HR_TRY(resolve(train, scope));
  if (options.windows < 1 || options.stride < 0) {
    return Error{
        Errc::invalid_argument,
        fmt::format("forecast: a backtest of {} windows with stride {}; windows must be at least "
                    "1, stride at least 0",
                    options.windows, options.stride)};
  }
  return Walk(scope, train, options, predict, context).run(series);
}

Result<Comparison> evaluate(std::span<const Forecast> forecasts, std::span<const Series> training,
                            std::span<const Series> actual, int season) {
  const auto by_id = [](std::span<const Series> series) {
    std::map<std::string_view, const Series*> map;
    for (const Series& s : series) {
      map.emplace(s.id, &s);
    }
    return map;
  };
  const auto past = by_id(training);
  const auto came = by_id(actual);
  Comparison out;
  for (const Forecast& forecast : forecasts) {
    const auto before = past.find(forecast.id);
    const auto after = came.find(forecast.id);
    const auto fail = [&](std::string_view what) {
      out.errors.push_back(
          {forecast.id,
           Error{Errc::not_found, fmt::format("forecast: item \"{}\": {}", forecast.id, what)}});
    };
    if (before == past.end() || after == came.end()) {
      fail(before == past.end() ? "there is no past to scale its errors by"
                                : "there are no actual values to compare with");
      continue;
    }
    if (std::find(forecast.levels.begin(), forecast.levels.end(), 0.5) == forecast.levels.end()) {
      fail("the forecast has no median; ask for the quantile 0.5");
      continue;
    }
    const std::vector<double> values = aligned(*after->second, forecast);
    if (std::all_of(values.begin(), values.end(), [](double value) { return std::isnan(value); })) {
      fail(ranges_text(*after->second, forecast));
      continue;
    }
    // Only what lies before the forecast is its past.
    const Series& whole = *before->second;
    const int64_t cut = std::clamp<int64_t>(
        steps_floor(whole.frequency, whole.start_us, forecast.start_us - 1) + 1, 0, whole.length());
    score(std::span(whole.target).first(static_cast<size_t>(cut)), values, forecast,
          season > 0 ? season : season_length(forecast.frequency), &out);
  }
  return out;
}

}  // namespace headrace::forecast
