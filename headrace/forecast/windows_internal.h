// SPDX-License-Identifier: Apache-2.0
// Windows: a series laid out once as columns, then each window is an index into them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/base/result.h"
#include "headrace/forecast/model.h"
#include "headrace/forecast/network.h"
#include "headrace/forecast/series.h"

namespace headrace::forecast {

/// One series as the network reads it. Positions are steps since its start.
struct PreparedSeries {
  std::string id;
  std::vector<double> values;   ///< missing ones are 0
  std::vector<float> observed;  ///< 1 or 0
  std::vector<float> dynamic;   ///< [rows][columns]: time features | age | dynamic reals
  int64_t dynamic_first = 0;    ///< position of the first row
  int dynamic_columns = 0;
  std::vector<float> fixed;     ///< static reals
  std::vector<int> categories;  ///< index per embedding
  double mean_absolute = 0.0;   ///< over the training range; 0 when nothing but zeros is observed
  double lowest = 0.0;          ///< of the observed values
  double highest = 0.0;

  int64_t length() const { return static_cast<int64_t>(values.size()); }
};

struct PrepareRange {
  int64_t training = 0;  ///< positions [0, training) count for `mean_absolute`
  int64_t dynamic_first =
      0;  ///< calendar and covariates are laid out for [dynamic_first, dynamic_end)
  int64_t dynamic_end = 0;
};

/// Errors name the item: an unknown category, covariates that end before `dynamic_end`, values
/// beyond what 32-bit floats hold, negative binomial on other than counts.
Result<PreparedSeries> prepare_series(const ModelSpec& spec, const InputScaling& scaling,
                                      const Series& series, const PrepareRange& range);

/// Sums over the context of a window.
struct ContextSums {
  double absolute = 0.0;
  int64_t observed = 0;
};
ContextSums context_sums(const PreparedSeries& series, int64_t split, int context);

/// Scale of a window. `batch_mean` is the mean |y| over the observed contexts of the batch, for
/// GluonTS's rule.
double window_scale(const ModelSpec& spec, const PreparedSeries& series, const ContextSums& sums,
                    double batch_mean);

/// Writes input rows. One per thread: it has scratch memory, made once.
class RowWriter {
 public:
  RowWriter(const ModelSpec& spec, const InputScaling& scaling);

  /// Scale the values of the window that splits at `split` (past [split - P, split), then `ahead`
  /// more values); positions before the start read 0.
  void load(const PreparedSeries& series, int64_t split, int ahead, double scale);

  /// The input row that predicts position `split - context + 1 + t` of the loaded window.
  void write(const PreparedSeries& series, int64_t split, int t, float* row) const;

  /// The lag values of the row above alone, [lags].
  void write_lags(int t, float* row) const;
  /// The loaded values, scaled, newest first.
  std::span<const float> reversed() const { return std::span(reversed_).first(loaded_); }
  int rest_offset() const { return rest_offset_; }  ///< first column after the embeddings
  /// All columns after the embeddings, for predicting `position`.
  void write_rest(const PreparedSeries& series, int64_t position, float* row) const;

 private:
  int context_;
  int lags_;
  size_t past_;
  int rest_offset_;
  bool with_scale_;
  double log_scale_mean_;
  struct Move {
    int from = 0;  ///< distance from the newest value
    int to = 0;    ///< column
  };
  std::vector<int> offsets_;  // lag - 1
  std::vector<Move> moves_;   // the same, neighbouring lags together
  bool may_spill_;            // rows have room for the last copy's surplus
  int ahead_ = 0;
  float log_scale_ = 0.0F;
  size_t loaded_ = 0;
  std::vector<float> reversed_;  // scaled values, newest first: lags then lie in rising order
};

/// A window of a training set.
struct WindowIndex {
  int series = 0;
  int64_t split = 0;
};

/// Draws training windows: the split is uniform over all positions of all series, or a series is
/// drawn by its number of positions times its mean |y|.
class WindowSampler {
 public:
  struct Options {
    int horizon = 0;
    int min_past = 0;
    int64_t held_out = 0;  ///< last values of each series that no window may touch
    bool by_scale = false;
  };
  WindowSampler(std::span<const PreparedSeries> series, const Options& options);
  int64_t windows() const { return windows_; }  ///< 0: nothing to train on
  WindowIndex draw(base::Rng* rng) const;

 private:
  struct Range {
    int series = 0;
    int64_t first = 0;
    int64_t count = 0;
  };
  std::vector<Range> ranges_;
  std::vector<int64_t> ends_;    // running sums of counts
  std::vector<double> weights_;  // running sums of weights, when drawn by scale
  int64_t windows_ = 0;
};

/// Rows of a batch.
struct RowRange {
  int first = 0;
  int count = 0;
};

/// Fill a training step from windows; rows beyond `windows` are unobserved copies of the first.
/// `horizon_only` hides the cells of the context from the loss.
class BatchFiller {
 public:
  BatchFiller(const ModelSpec& spec, const InputScaling& scaling);
  /// `windows` are those of the whole batch, `rows` what of it the step is for. Returns the number
  /// of observed cells in these rows.
  int64_t fill(std::span<const PreparedSeries> series, std::span<const WindowIndex> windows,
               const RowRange& rows, bool horizon_only, TrainingStep* step);

 private:
  struct Source {
    const PreparedSeries* series = nullptr;
    int64_t split = 0;
    bool is_window = false;
  };
  void load(std::span<const PreparedSeries> series, std::span<const WindowIndex> windows,
            const RowRange& rows, TrainingStep* step);

  ModelSpec spec_;
  RowWriter blank_;
  std::vector<RowWriter> writers_;  // one per row of the batch
  std::vector<Source> sources_;
  std::vector<ContextSums> sums_;
};

}  // namespace headrace::forecast
