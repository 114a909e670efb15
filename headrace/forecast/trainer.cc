// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "headrace/forecast/monitor_internal.h"
#include "headrace/forecast/plateau_internal.h"
#include "headrace/forecast/sharing_internal.h"
#include "headrace/forecast/snapshots_internal.h"
#include "headrace/forecast/trainer_internal.h"

namespace headrace::forecast {

namespace {

constexpr int kSkippedInARowMax = 10;
constexpr int kStepsPerQuestion = 8;  // between two looks at `stop`: some tens of milliseconds

/// Exponential average of the weights over steps. The first steps weigh less, so that the random
/// start fades at once (the usual warm-up (1 + t) / (10 + t)).
class RunningWeights {
 public:
  RunningWeights(double decay, size_t count) : decay_(decay), mean_(decay > 0.0 ? count : 0) {}

  void add(std::span<const float> weights) {
    if (decay_ <= 0.0) {
      return;
    }
    const auto t = static_cast<double>(steps_++);
    const auto keep = static_cast<float>(t == 0.0 ? 0.0 : std::min(decay_, (1.0 + t) / (10.0 + t)));
    for (size_t i = 0; i < mean_.size(); ++i) {
      mean_[i] = keep * mean_[i] + (1.0F - keep) * weights[i];
    }
  }
  std::span<const float> pick(std::span<const float> weights) const {
    return decay_ > 0.0 ? std::span<const float>(mean_) : weights;
  }

 private:
  double decay_;
  std::vector<float> mean_;
  int64_t steps_ = 0;
};

/// Random streams of one run; a stream's purpose is in its seed, so that none shifts another.
struct Streams {
  base::Rng initial;
  base::Rng windows;
  base::Rng dropout;
  explicit Streams(uint64_t seed)
      : initial(base::derive_seed(seed, "initial")),
        windows(base::derive_seed(seed, "windows")),
        dropout(base::derive_seed(seed, "dropout")) {}
};

/// Mean losses of an epoch's steps.
struct EpochLoss {
  double loss = 0.0;         ///< over all cells: what is minimised
  double masked_loss = 0.0;  ///< over observed ones
};

/// One pass of training: early stopping, or a refit for a known number of epochs.
class Run {
 public:
  static Result<Run> make(const FitInput& input, int64_t held_out) {
    const Sharing sharing(input.ranks);
    const RowRange rows = sharing.part(input.options.batch);
    // A rank without a part has a workspace too, for the monitor.
    HR_TRY(TrainingStep step, TrainingStep::make(input.spec.shape(), std::max(1, rows.count),
                                                 input.spec.context + input.spec.horizon - 1,
                                                 {std::min(rows.first, input.options.batch - 1),
                                                  input.options.batch}));
    Run run(input, held_out, rows, std::move(step));
    HR_TRY(sharing.copy_from_first(run.parameters_));
    return run;
  }

  int64_t windows() const { return sampler_.windows(); }
  std::span<const float> weights() const { return running_.pick(parameters_); }
  int64_t skipped() const { return skipped_; }
  TrainingStep* step() { return &step_; }

  Result<EpochLoss> epoch(double learning_rate) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double sum = 0.0;
    double masked_sum = 0.0;
    double cells = 0.0;
    int64_t count = 0;
    for (int i = 0; i < input_->options.batches_per_epoch; ++i) {
      HR_TRY(const PartLoss loss, gradient(i % kStepsPerQuestion == 0));
      if (!loss.is_finite ||
          !std::isfinite(adam_.step(parameters_, gradient_of_all(), learning_rate))) {
        HR_TRY(skip());
        continue;
      }
      skipped_in_a_row_ = 0;
      running_.add(parameters_);
      sum += loss.loss;
      masked_sum += loss.masked_sum;
      cells += loss.cells;
      ++count;
    }
    double totals[] = {sum, masked_sum, cells};
    HR_TRY(sharing_.sum(totals));
    return EpochLoss{count > 0 ? totals[0] / static_cast<double>(count) : kInfinity,
                     totals[2] > 0.0 ? totals[1] / totals[2] : kInfinity};
  }

 private:
  static AdamOptions adam_options(const TrainOptions& options) {
    AdamOptions adam;
    adam.weight_decay = static_cast<float>(options.weight_decay);
    adam.clip_norm = static_cast<float>(options.clip_norm);
    return adam;
  }
  static std::vector<float> start_weights(const FitInput& input, base::Rng* rng) {
    return input.start.empty() ? initial_parameters(input.spec.shape(), rng)
                               : std::vector<float>(input.start.begin(), input.start.end());
  }

  /// What ranks sum with the gradient: how many found a loss that is not finite, and how many were
  /// asked to stop.
  enum Extra : size_t { kNotFinite, kStop, kExtras };

  /// Of this rank's part of a batch.
  struct PartLoss {
    double loss = 0.0;        ///< its share in the batch's
    double masked_sum = 0.0;  ///< over observed cells
    double cells = 0.0;       ///< observed
    bool is_finite = true;    ///< of all parts
  };

  Run(const FitInput& input, int64_t held_out, const RowRange& rows, TrainingStep step)
      : input_(&input),
        sharing_(input.ranks),
        rows_(rows),
        streams_(input.seed),
        step_(std::move(step)),
        sampler_(input.series, {input.spec.horizon, input.options.min_past, held_out,
                                input.options.window_sampling == "scale"}),
        filler_(input.spec, input.scaling),
        parameters_(start_weights(input, &streams_.initial)),
        gradient_(parameters_.size() + kExtras),
        adam_(static_cast<int64_t>(parameters_.size()), adam_options(input.options)),
        running_(input.options.weight_average, parameters_.size()),
        batch_(static_cast<size_t>(input.options.batch)) {}

  std::span<float> gradient_of_all() { return std::span(gradient_).first(parameters_.size()); }

  /// Draw the next batch, which is the same on all ranks, and leave its gradient in `gradient_`.
  Result<PartLoss> gradient(bool ask_to_stop) {
    const bool stops = ask_to_stop && input_->stop && input_->stop();
    if (stops && !sharing_.is_shared()) {
      return stopped();
    }
    for (WindowIndex& window : batch_) {
      window = sampler_.draw(&streams_.windows);
    }
    PartLoss loss = gradient_of_part();
    float* const extras = gradient_.data() + parameters_.size();
    extras[kNotFinite] = loss.is_finite ? 0.0F : 1.0F;
    extras[kStop] = stops ? 1.0F : 0.0F;
    HR_TRY(sharing_.sum(gradient_));
    if (extras[kStop] != 0.0F) {
      return stopped();
    }
    loss.is_finite = extras[kNotFinite] == 0.0F;
    return loss;
  }

  PartLoss gradient_of_part() {
    const auto dropout = static_cast<float>(input_->options.dropout);
    if (rows_.count == 0) {
      std::fill(gradient_.begin(), gradient_.end(), 0.0F);
      return {};
    }
    const auto observed =
        static_cast<double>(filler_.fill(input_->series, batch_, rows_, false, &step_));
    const StepLoss loss =
        step_.loss_and_gradient(parameters_, dropout, &streams_.dropout, gradient_of_all());
    return {loss.loss, loss.masked_loss * observed, observed, std::isfinite(loss.loss)};
  }

  Error stopped() const {
    return Error{Errc::cancelled, fmt::format("forecast: {}: training was stopped", input_->name)};
  }

  Result<void> skip() {
    ++skipped_;
    if (++skipped_in_a_row_ < kSkippedInARowMax) {
      return {};
    }
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: {}: the loss or gradient was not finite in {} steps in a "
                             "row; lower learning_rate ({}) or look at the target's values",
                             input_->name, skipped_in_a_row_, input_->options.learning_rate)};
  }

  const FitInput* input_;
  Sharing sharing_;
  RowRange rows_;  // of each batch, this rank's
  Streams streams_;
  TrainingStep step_;
  WindowSampler sampler_;
  BatchFiller filler_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;  // and kExtras
  Adam adam_;
  RunningWeights running_;
  std::vector<WindowIndex> batch_;
  int64_t skipped_ = 0;
  int skipped_in_a_row_ = 0;
};

Plateau make_plateau(const TrainOptions& options) {
  return Plateau({options.learning_rate, options.plateau_patience, options.plateau_factor,
                  options.learning_rate_min, options.parity});
}

/// What one rank's callback says stops all.
Result<void> tell(const FitInput& input, int epoch, double loss, double monitored) {
  double refusals = 0.0;
  if (input.progress &&
      !input.progress({input.member, epoch, input.options.epochs, loss, monitored})) {
    refusals = 1.0;
  }
  HR_TRY(Sharing(input.ranks).sum(std::span(&refusals, 1)));
  if (refusals == 0.0) {
    return {};
  }
  return Error{Errc::cancelled,
               fmt::format("forecast: {}: training was stopped after epoch {} of {}", input.name,
                           epoch, input.options.epochs)};
}

/// Train again on everything, with the learning rates of the first run, for as many epochs as were
/// best.
Result<void> refit(const FitInput& input, std::span<const double> rates, Fit* result) {
  HR_TRY(Run run, Run::make(input, 0));
  Snapshots last(input.options.snapshots);
  for (size_t e = 0; e < rates.size(); ++e) {
    HR_TRY(const EpochLoss loss, run.epoch(rates[e]));
    result->summary.loss = loss.loss;
    result->summary.masked_loss = loss.masked_loss;
    // Later epochs replace earlier ones: the value falls with each.
    last.offer(-static_cast<double>(e), run.weights());
    HR_TRY(tell(input, static_cast<int>(e) + 1, result->summary.loss, result->summary.monitored));
  }
  result->summary.skipped_steps += run.skipped();
  result->summary.refitted = true;
  result->parameters = last.take(input.options.snapshot_use == "mixture");
  return {};
}

/// The unknown category stands for a series that is like the others: its row becomes the mean of
/// theirs, where no series of the training has trained it. Left as drawn it would be noise.
void settle_unknown_category(const FitInput& input, Fit* result) {
  if (!input.spec.unknown_category) {
    return;
  }
  const NetworkShape shape = input.spec.shape();
  const std::vector<TensorInfo> tensors = parameter_tensors(shape);  // the embeddings come first
  for (size_t e = 0; e < shape.embeddings.size(); ++e) {
    const auto rows = static_cast<size_t>(shape.embeddings[e].cardinality);
    const auto columns = static_cast<size_t>(shape.embeddings[e].dimension);
    const bool is_trained = std::any_of(input.series.begin(), input.series.end(),
                                        [&](const auto& s) { return s.categories[e] == 0; });
    for (std::vector<float>& parameters : result->parameters) {
      float* const first = parameters.data() + tensors[e].offset;
      for (size_t c = 0; c < columns && rows > 1 && !is_trained; ++c) {
        double sum = 0.0;
        for (size_t row = 1; row < rows; ++row) {
          sum += first[row * columns + c];
        }
        first[c] = static_cast<float>(sum / static_cast<double>(rows - 1));
      }
    }
  }
}

}  // namespace

Result<Fit> fit(const FitInput& input) {
  const TrainOptions& options = input.options;
  const int64_t held_out = int64_t{options.validation_windows} * input.spec.horizon;
  HR_TRY(Run run, Run::make(input, held_out));
  if (run.windows() == 0) {
    return Error{Errc::unsupported,
                 fmt::format("forecast: {}: no series has the {} values a training window needs",
                             input.name, input.spec.horizon + held_out)};
  }
  HR_TRY(Monitor monitor, Monitor::make(input, run.step()));
  Plateau plateau = make_plateau(options);
  Snapshots best(options.snapshots);
  Fit result;
  FitSummary& summary = result.summary;
  std::vector<double> rates;
  int stale = 0;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    rates.push_back(plateau.learning_rate());
    HR_TRY(const EpochLoss loss, run.epoch(plateau.learning_rate()));
    HR_TRY(const double monitored, monitor.value(loss.loss, run.weights()));
    summary.epochs = epoch;
    const bool is_best = best.empty() || monitored < best.best();
    best.offer(monitored, run.weights());
    if (is_best) {
      summary.best_epoch = epoch;
      summary.loss = loss.loss;
      summary.masked_loss = loss.masked_loss;
      summary.monitored = monitored;
    }
    stale = is_best ? 0 : stale + 1;
    plateau.step(monitored);
    HR_TRY(tell(input, epoch, loss.loss, monitored));
    if (options.patience > 0 && stale >= options.patience) {
      break;
    }
  }
  summary.steps = int64_t{summary.epochs} * options.batches_per_epoch;
  summary.best_step = int64_t{summary.best_epoch} * options.batches_per_epoch;
  summary.skipped_steps = run.skipped();
  summary.learning_rate = plateau.learning_rate();
  if (options.refit == "full") {
    rates.resize(static_cast<size_t>(summary.best_epoch));
    HR_TRY(refit(input, rates, &result));
  } else {
    result.parameters = best.take(options.snapshot_use == "mixture");
  }
  settle_unknown_category(input, &result);
  return result;
}

}  // namespace headrace::forecast
