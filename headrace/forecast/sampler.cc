// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "headrace/forecast/sampler_internal.h"

namespace headrace::forecast {

namespace {

constexpr double kHardLimit = 1e30;       // beyond it squares overflow floats
constexpr double kPoissonMeanMax = 1e15;  // above, a count's spread is below its float's precision

struct Bounds {
  double low = 0.0;
  double high = 0.0;
};

Bounds path_bounds(const PreparedSeries& series, double limit) {
  if (limit <= 0.0) {
    return {-kHardLimit, kHardLimit};
  }
  double range = std::max(series.highest - series.lowest, series.mean_absolute);
  range = range > 0.0 ? range : 1.0;
  return {std::max(series.lowest - limit * range, -kHardLimit),
          std::min(series.highest + limit * range, kHardLimit)};
}

/// The items of one pass and their paths, rows item by item.
class Pass {
 public:
  Pass(const ModelSpec& spec, const InputScaling& scaling, const PathOptions& options,
       Decoder* decoder)
      : spec_(spec),
        scaling_(scaling),
        options_(options),
        decoder_(*decoder),
        inputs_(static_cast<size_t>(spec.shape().inputs())),
        horizon_(static_cast<size_t>(options.horizon)) {}

  /// Draw paths [first, first + count) of each request.
  Result<void> run(std::span<PathRequest> requests, int first, int count) {
    begin(requests, first);
    encode(requests);
    decoder_.repeat(count);
    scaled_.resize(requests.size() * static_cast<size_t>(count) * horizon_);
    for (int step = 0; step < options_.horizon; ++step) {
      if (options_.stop && options_.stop()) {
        return Error{Errc::cancelled, "forecast: stopped while paths were drawn"};
      }
      if (step > 0) {
        write_inputs(requests, step, count);
        decoder_.step();
      }
      HR_TRY(draw(requests, step, first, count));
    }
    return {};
  }

 private:
  struct Item {
    RowWriter writer;
    base::Rng rng;
    double scale = 1.0;
    Bounds bounds;
  };

  void begin(std::span<PathRequest> requests, int first) {
    items_.clear();
    for (const PathRequest& request : requests) {
      const PreparedSeries& series = *request.series;
      const ContextSums sums = context_sums(series, request.origin, spec_.context);
      // Another item's values must not decide: without a context the item's own mean stands in.
      const double otherwise = series.mean_absolute > 0.0 ? series.mean_absolute : 1.0;
      Item item{RowWriter(spec_, scaling_),
                base::Rng(base::derive_seed(request.seed, static_cast<uint64_t>(first))),
                window_scale(spec_, series, sums, otherwise), path_bounds(series, options_.limit)};
      item.writer.load(series, request.origin, 0, item.scale);
      items_.push_back(std::move(item));
    }
  }

  void encode(std::span<PathRequest> requests) {
    decoder_.reset(static_cast<int>(requests.size()));
    for (size_t r = 0; r < requests.size(); ++r) {
      const std::vector<int>& categories = requests[r].series->categories;
      for (size_t e = 0; e < categories.size(); ++e) {
        decoder_.set_category(static_cast<int>(r), static_cast<int>(e), categories[e]);
      }
    }
    for (int t = 0; t < spec_.context; ++t) {
      for (size_t r = 0; r < requests.size(); ++r) {
        items_[r].writer.write(*requests[r].series, requests[r].origin, t,
                               decoder_.input_row(static_cast<int>(r)));
      }
      decoder_.step();
    }
  }

  /// Inputs that predict position origin + step: lags up to `step` come from the path, longer ones
  /// from the item's past.
  void write_inputs(std::span<PathRequest> requests, int step, int count) {
    const std::vector<int>& lags = spec_.lags;
    const auto own =
        static_cast<size_t>(std::upper_bound(lags.begin(), lags.end(), step) - lags.begin());
    row_.resize(inputs_);
    for (size_t r = 0; r < requests.size(); ++r) {
      const RowWriter& writer = items_[r].writer;
      for (size_t c = own; c < lags.size(); ++c) {
        row_[c] = writer.reversed()[static_cast<size_t>(lags[c] - step - 1)];
      }
      writer.write_rest(*requests[r].series, requests[r].origin + step,
                        row_.data() + writer.rest_offset());
      for (int path = 0; path < count; ++path) {
        const size_t row = r * static_cast<size_t>(count) + static_cast<size_t>(path);
        float* input = decoder_.input_row(static_cast<int>(row));
        std::copy(row_.begin(), row_.end(), input);
        const float* values = &scaled_[row * horizon_];
        for (size_t c = 0; c < own; ++c) {
          input[c] = values[step - lags[c]];
        }
      }
    }
  }

  Result<void> draw(std::span<PathRequest> requests, int step, int first, int count) {
    const std::span<const float> rows = decoder_.distributions();
    const auto width = static_cast<size_t>(parameter_count(spec_.distribution));
    for (size_t r = 0; r < requests.size(); ++r) {
      PathRequest& request = requests[r];
      Item& item = items_[r];
      for (int path = 0; path < count; ++path) {
        const size_t row = r * static_cast<size_t>(count) + static_cast<size_t>(path);
        const double z = draw_scaled(spec_.distribution, &rows[row * width], item.scale, &item.rng);
        if (std::isnan(z)) {
          return Error{
              Errc::invalid_argument,
              fmt::format("forecast: item \"{}\": the network gives no number at step {} ahead; "
                          "its weights or inputs are not finite",
                          request.series->id, step + 1)};
        }
        const double value = z * item.scale;
        const double kept = std::clamp(value, item.bounds.low, item.bounds.high);
        request.limited_values += static_cast<int64_t>(kept != value);
        scaled_[row * horizon_ + static_cast<size_t>(step)] = static_cast<float>(kept / item.scale);
        request.samples[static_cast<size_t>(first + path) * horizon_ + static_cast<size_t>(step)] =
            static_cast<float>(kept);
      }
    }
    return {};
  }

  const ModelSpec& spec_;
  const InputScaling& scaling_;
  const PathOptions& options_;
  Decoder& decoder_;
  size_t inputs_;
  size_t horizon_;
  std::vector<Item> items_;
  std::vector<float> scaled_;  // [row][horizon]: values drawn, scaled
  std::vector<float> row_;
};

}  // namespace

double draw_scaled(Distribution distribution, const float* parameters, double scale,
                   base::Rng* rng) {
  const auto a = static_cast<double>(parameters[0]);
  const auto b = static_cast<double>(parameters[1]);
  switch (distribution) {
    case Distribution::student_t: {
      if (!std::isfinite(a)) {
        return std::numeric_limits<double>::quiet_NaN();
      }
      const double normal = rng->normal();
      const double chi_squared = 2.0 * rng->gamma(0.5 * a);
      return b + static_cast<double>(parameters[2]) * normal / std::sqrt(chi_squared / a);
    }
    case Distribution::normal: return a + b * rng->normal();
    case Distribution::negative_binomial: break;
  }
  if (!(a >= 0.0) || !std::isfinite(a) || std::isnan(b)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  // logit of the success probability of the raw counts; mean = total count * exp(logit).
  const double odds = std::exp(b + std::log(scale));
  const double mean = a > 0.0 ? rng->gamma(a) * odds : 0.0;
  const double count = mean < kPoissonMeanMax ? static_cast<double>(rng->poisson(mean)) : mean;
  return count / scale;
}

Result<void> sample_paths(const ModelSpec& spec, const InputScaling& scaling,
                          std::span<const float> parameters, const PathOptions& options,
                          std::span<PathRequest> requests) {
  const int per_pass = std::min(options.paths, kPathsPerPass);
  const auto group = static_cast<size_t>(std::max(1, kPathsPerPass / per_pass));
  const int rows_max =
      static_cast<int>(std::min(group, std::max<size_t>(1, requests.size()))) * per_pass;
  HR_TRY(Decoder decoder, Decoder::make(spec.shape(), rows_max, parameters));
  Pass pass(spec, scaling, options, &decoder);
  for (PathRequest& request : requests) {
    request.limited_values = 0;
  }
  for (size_t begin = 0; begin < requests.size(); begin += group) {
    const std::span<PathRequest> now =
        requests.subspan(begin, std::min(group, requests.size() - begin));
    for (int first = 0; first < options.paths; first += per_pass) {
      HR_TRY(pass.run(now, first, std::min(per_pass, options.paths - first)));
    }
  }
  return {};
}

}  // namespace headrace::forecast
