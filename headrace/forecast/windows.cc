// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "headrace/base/check.h"
#include "headrace/forecast/windows_internal.h"

namespace headrace::forecast {

namespace {

constexpr double kGluontsFloor = 1e-10;
constexpr int kMove = 4;  // floats of one 16-byte move

}  // namespace

ContextSums context_sums(const PreparedSeries& series, int64_t split, int context) {
  ContextSums sums;
  for (int64_t i = std::max<int64_t>(0, split - context); i < split; ++i) {
    const auto at = static_cast<size_t>(i);
    if (series.observed[at] != 0.0F) {
      sums.absolute += std::fabs(series.values[at]);
      ++sums.observed;
    }
  }
  return sums;
}

double window_scale(const ModelSpec& spec, const PreparedSeries& series, const ContextSums& sums,
                    double batch_mean) {
  const double mean = sums.observed > 0 ? sums.absolute / static_cast<double>(sums.observed) : 0.0;
  if (spec.gluonts_scale) {
    const double otherwise = spec.default_scale > 0.0 ? spec.default_scale : batch_mean;
    return std::max(sums.observed > 0 ? mean : otherwise, kGluontsFloor);
  }
  const double scale = std::max(mean, spec.scale_floor * series.mean_absolute);
  if (scale > 0.0) {
    return scale;
  }
  return series.mean_absolute > 0.0 ? series.mean_absolute : 1.0;
}

RowWriter::RowWriter(const ModelSpec& spec, const InputScaling& scaling)
    : context_(spec.context),
      lags_(static_cast<int>(spec.lags.size())),
      past_(static_cast<size_t>(spec.past())),
      rest_offset_(lags_ + spec.shape().embedding_columns()),
      with_scale_(spec.scale_input != ScaleInput::off),
      log_scale_mean_(spec.scale_input == ScaleInput::centred ? scaling.log_scale_mean : 0.0) {
  for (const int lag : spec.lags) {
    const auto to = static_cast<int>(offsets_.size());
    offsets_.push_back(lag - 1);
    const bool is_moved = !moves_.empty() &&
                          lag - 1 - moves_.back().from == to - moves_.back().to &&
                          to - moves_.back().to < kMove;
    if (!is_moved) {
      moves_.push_back({lag - 1, to});
    }
  }
  may_spill_ = spec.shape().inputs() >= lags_ + kMove - 1;
  reversed_.resize(past_ + static_cast<size_t>(spec.horizon) + kMove);
}

void RowWriter::load(const PreparedSeries& series, int64_t split, int ahead, double scale) {
  const size_t count = past_ + static_cast<size_t>(ahead);
  if (reversed_.size() < count + kMove) {
    reversed_.resize(count + kMove);
  }
  loaded_ = count;
  ahead_ = ahead;
  log_scale_ = static_cast<float>(std::log(scale) - log_scale_mean_);
  const double factor = 1.0 / scale;
  const int64_t last = split + ahead - 1;  // position of reversed_[0]
  const auto known =
      static_cast<size_t>(std::clamp<int64_t>(last + 1, 0, static_cast<int64_t>(count)));
  const double* value = series.values.data() + last;
  for (size_t k = 0; k < known; ++k) {
    reversed_[k] = static_cast<float>(*(value - k) * factor);
  }
  std::fill(reversed_.begin() + static_cast<std::ptrdiff_t>(known),
            reversed_.begin() + static_cast<std::ptrdiff_t>(count), 0.0F);
}

void RowWriter::write_lags(int t, float* row) const {
  // Step t sees up to position split - context + t, which is this far from the newest value.
  const float* const newest = reversed_.data() + (ahead_ - 1 + context_ - t);
  if (!may_spill_) {
    for (const int offset : offsets_) {
      *row++ = newest[offset];
    }
    return;
  }
  // 16-byte moves: what is too much is overwritten by the next move or by the columns that follow.
  const Move* const end = moves_.data() + moves_.size();
  for (const Move* move = moves_.data(); move != end; ++move) {
    std::memcpy(row + move->to, newest + move->from, kMove * sizeof(float));
  }
}

void RowWriter::write_rest(const PreparedSeries& series, int64_t position, float* row) const {
  row = std::copy(series.fixed.begin(), series.fixed.end(), row);
  if (with_scale_) {
    *row++ = log_scale_;
  }
  const auto columns = static_cast<size_t>(series.dynamic_columns);
  if (position < 0) {
    std::fill_n(row, columns, 0.0F);
    return;
  }
  const float* source =
      series.dynamic.data() + static_cast<size_t>(position - series.dynamic_first) * columns;
  std::copy_n(source, columns, row);
}

void RowWriter::write(const PreparedSeries& series, int64_t split, int t, float* row) const {
  write_lags(t, row);
  write_rest(series, split - context_ + t + 1, row + rest_offset_);
}

WindowSampler::WindowSampler(std::span<const PreparedSeries> series, const Options& options) {
  double weight = 0.0;
  for (size_t s = 0; s < series.size(); ++s) {
    const int64_t last = series[s].length() - options.held_out - options.horizon;
    if (last < 0) {
      continue;
    }
    const int64_t first = std::min<int64_t>(options.min_past, last);
    const int64_t count = last - first + 1;
    ranges_.push_back({static_cast<int>(s), first, count});
    windows_ += count;
    ends_.push_back(windows_);
    if (options.by_scale) {
      weight += static_cast<double>(count) *
                (series[s].mean_absolute > 0.0 ? series[s].mean_absolute : 1e-12);
      weights_.push_back(weight);
    }
  }
}

WindowIndex WindowSampler::draw(base::Rng* rng) const {
  if (!weights_.empty()) {
    const double at = rng->uniform() * weights_.back();
    const auto found = std::upper_bound(weights_.begin(), weights_.end() - 1, at);
    const Range& range = ranges_[static_cast<size_t>(found - weights_.begin())];
    return {range.series,
            range.first + static_cast<int64_t>(rng->below(static_cast<uint64_t>(range.count)))};
  }
  const auto at = static_cast<int64_t>(rng->below(static_cast<uint64_t>(windows_)));
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), at);
  const Range& range = ranges_[static_cast<size_t>(found - ends_.begin())];
  return {range.series, range.first + range.count - (*found - at)};
}

BatchFiller::BatchFiller(const ModelSpec& spec, const InputScaling& scaling)
    : spec_(spec), blank_(spec, scaling) {}

void BatchFiller::load(std::span<const PreparedSeries> series, std::span<const WindowIndex> windows,
                       const RowRange& rows, TrainingStep* step) {
  const auto first = static_cast<size_t>(rows.first);
  const auto count = static_cast<size_t>(rows.count);
  double absolute = 0.0;
  int64_t observed = 0;
  sums_.resize(windows.size());
  for (size_t b = 0; b < windows.size(); ++b) {
    const bool is_here = b >= first && b < first + count;
    if (!is_here && b > 0 && !spec_.gluonts_scale) {
      continue;  // only GluonTS's rule looks at the whole batch
    }
    sums_[b] = context_sums(series[static_cast<size_t>(windows[b].series)], windows[b].split,
                            spec_.context);
    absolute += sums_[b].absolute;
    observed += sums_[b].observed;
  }
  const double batch_mean = absolute / static_cast<double>(std::max<int64_t>(1, observed));
  writers_.resize(count, blank_);
  sources_.resize(count);
  for (size_t b = 0; b < count; ++b) {
    const bool is_window = first + b < windows.size();
    const size_t w = is_window ? first + b : 0;
    const PreparedSeries& source = series[static_cast<size_t>(windows[w].series)];
    const double scale = window_scale(spec_, source, sums_[w], batch_mean);
    step->scales()[b] = static_cast<float>(scale);
    writers_[b].load(source, windows[w].split, spec_.horizon, scale);
    sources_[b] = {&source, windows[w].split, is_window};
    for (size_t e = 0; e < source.categories.size(); ++e) {
      step->set_category(static_cast<int>(b), static_cast<int>(e), source.categories[e]);
    }
  }
}

int64_t BatchFiller::fill(std::span<const PreparedSeries> series,
                          std::span<const WindowIndex> windows, const RowRange& rows,
                          bool horizon_only, TrainingStep* step) {
  HR_DCHECK(!windows.empty() && rows.count > 0, "a batch of windows");
  load(series, windows, rows, step);
  int64_t observed = 0;
  // Step by step, as the rows lie in memory: a step of training leaves nothing of them in the
  // caches, and the other order (window by window) took twice the time.
  for (int t = 0; t < spec_.context + spec_.horizon - 1; ++t) {
    float* const targets = step->target_row(t);
    float* const masks = step->observed_row(t);
    for (size_t b = 0; b < sources_.size(); ++b) {
      const Source& source = sources_[b];
      writers_[b].write(*source.series, source.split, t, step->input_row(t, static_cast<int>(b)));
      const int64_t position = source.split - spec_.context + t + 1;
      const bool is_shown =
          position >= 0 && source.is_window && !(horizon_only && position < source.split);
      const auto at = static_cast<size_t>(std::max<int64_t>(0, position));
      masks[b] = is_shown ? source.series->observed[at] : 0.0F;
      targets[b] = position >= 0 ? static_cast<float>(source.series->values[at]) : 0.0F;
      observed += static_cast<int64_t>(masks[b] != 0.0F);
    }
  }
  return observed;
}

}  // namespace headrace::forecast
