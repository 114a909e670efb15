// SPDX-License-Identifier: Apache-2.0
// The DeepAR network: parameters, one training step (loss and gradient), and the decoder that
// sampling drives.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/random.h"
#include "headrace/base/result.h"

namespace headrace::forecast {

enum class Distribution : uint8_t { student_t, normal, negative_binomial };
HR_API std::string_view distribution_name(
    Distribution distribution);  ///< "student_t", "normal", "negative_binomial"
HR_API Result<Distribution> parse_distribution(std::string_view name);
/// Number of parameters per step: 3, 2, 2.
HR_API int parameter_count(Distribution distribution);

/// One table of `cardinality` rows of `dimension` floats, looked up by a categorical feature.
struct EmbeddingShape {
  int cardinality = 1;
  int dimension = 1;
};

/// What decides the parameters' shapes. Input columns of a step, in this order (GluonTS's):
/// lags | embeddings | static reals | log(scale) | time features | age | dynamic reals.
struct HR_API NetworkShape {
  int lags = 0;                            ///< columns before the embeddings
  std::vector<EmbeddingShape> embeddings;  ///< may be empty
  int other_inputs = 0;                    ///< columns after the embeddings
  int hidden = 40;
  int layers = 2;
  Distribution distribution = Distribution::student_t;

  int embedding_columns() const;
  int inputs() const { return lags + embedding_columns() + other_inputs; }
  bool operator==(const NetworkShape&) const = default;
};

/// Where a named tensor lies in the flat parameter vector, row-major. Names and shapes are torch's:
/// embedder._embedders.N.weight [K, dim]; rnn.weight_ih_lN [4*hidden, in], rnn.weight_hh_lN
/// [4*hidden, hidden], rnn.bias_ih_lN, rnn.bias_hh_lN [4*hidden], gate order i f g o;
/// param_proj.proj.N.weight [1, hidden], .bias [1].
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< in floats
  int64_t count = 0;
};
HR_API std::vector<TensorInfo> parameter_tensors(const NetworkShape& shape);
HR_API int64_t parameter_total(const NetworkShape& shape);

/// Draw initial parameters: LSTM and heads uniform in +-1/sqrt(hidden), embeddings N(0, 1). Size
/// parameter_total.
HR_API std::vector<float> initial_parameters(const NetworkShape& shape, base::Rng* rng);

/// Instruction sets of this machine the kernels are built for, best first ("avx512", "avx2", ...,
/// "scalar").
HR_API std::vector<std::string> instruction_sets();
/// The one in use: the best, or HEADRACE_FORECAST_ISA / `set_instruction_set` (`unsupported` names
/// those there are).
HR_API std::string instruction_set();
HR_API Result<void> set_instruction_set(std::string_view name);

struct StepLoss {
  /// Sum of o*NLL / (batch*steps): GluonTS's, what is minimised. Of a part of a batch: its share in
  /// the loss of the whole.
  double loss = 0.0;
  double masked_loss = 0.0;  ///< sum of o*NLL / sum(o): comparable across data
};

/// Where the windows of a workspace lie in a larger batch; of none by default.
struct BatchPart {
  int first = 0;  ///< row in the whole batch of this part's first window
  int whole = 0;  ///< windows of the whole batch; 0: the part is the whole
};

/// Workspace of one thread for batches of `batch` windows of `steps` unrolled steps. Allocates
/// once, in `make`. Fill inputs, targets and scales, then call one of the two runs. Not
/// thread-safe; results depend on the inputs and the instruction set alone, never on other
/// workspaces or threads.
class HR_API TrainingStep {
 public:
  /// With `part`: losses, gradients and dropout masks are as the part has them in the whole; those
  /// of all parts sum to those of the whole.
  static Result<TrainingStep> make(const NetworkShape& shape, int batch, int steps,
                                   const BatchPart& part = {});
  TrainingStep(TrainingStep&&) noexcept;
  TrainingStep& operator=(TrainingStep&&) noexcept;
  ~TrainingStep();

  /// Row of step t, window b: shape.inputs() floats, contiguous. The caller fills all columns but
  /// the embeddings', which `run` fills from the categories.
  float* input_row(int t, int b);
  /// Category index of window b for embedding `feature`, in [0, cardinality).
  void set_category(int b, int feature, int index);
  /// Target of step t: `batch` raw values y (not divided by the scale); anything finite where
  /// unobserved.
  float* target_row(int t);
  /// Observed mask of step t: `batch` floats, 0 or 1.
  float* observed_row(int t);
  /// Scale per window, > 0: `batch` floats.
  float* scales();

  /// Forward and backward. `gradient` has parameter_total floats and is overwritten. `dropout` in
  /// [0, 1) acts between layers, with masks from `rng` (may be null when dropout is 0). NaN and
  /// infinity are reported, not hidden.
  StepLoss loss_and_gradient(std::span<const float> parameters, float dropout, base::Rng* rng,
                             std::span<float> gradient);
  /// Forward only, no dropout. Afterwards `distribution_row` may be read.
  StepLoss loss(std::span<const float> parameters);
  /// Distribution parameters of step t of window b after a run, on the scaled target (Student-t df,
  /// mu, sigma; Normal mu, sigma; NegBin total_count, logit with log(scale) added).
  std::vector<float> distribution_row(int t, int b) const;

 private:
  struct State;
  explicit TrainingStep(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Clip by global norm, then Adam with L2 added to the gradient (torch.optim.Adam's weight_decay).
/// Both LSTM biases are separate parameters here, as in torch, so that norms and steps are the
/// reference's.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-8;
  double clip_norm = 10.0;  ///< <= 0: no clipping
};
class HR_API Adam {
 public:
  Adam(int64_t parameters, const AdamOptions& options = {});
  /// Returns the gradient's norm before clipping; when it is not finite nothing is changed.
  double step(std::span<float> parameters, std::span<float> gradient, double learning_rate);
  int64_t steps() const { return steps_; }

 private:
  AdamOptions options_;
  std::vector<float> first_;
  std::vector<float> second_;
  int64_t steps_ = 0;
};

/// Recurrent state of `rows` independent sequences, advanced one step at a time without gradients.
class HR_API Decoder {
 public:
  static Result<Decoder> make(const NetworkShape& shape, int rows_max,
                              std::span<const float> parameters);
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;
  ~Decoder();

  /// Zero the state of `rows` <= rows_max sequences.
  void reset(int rows);
  int rows() const;
  /// Input row r: shape.inputs() floats; embedding columns are filled from `set_category`.
  float* input_row(int row);
  void set_category(int row, int feature, int index);
  /// One LSTM step for all rows; afterwards `distribution(row)` has the raw parameters on the
  /// scaled target (NegBin's logit without log(scale)).
  void step();
  /// [rows][parameter_count], row-major.
  std::span<const float> distributions() const;
  /// Make every row's state `copies` rows: row r becomes rows r*copies .. r*copies+copies-1.
  void repeat(int copies);

 private:
  struct State;
  explicit Decoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headrace::forecast
