// SPDX-License-Identifier: Apache-2.0
// The kernels of the network: what each computes, on which layout; one table per instruction set.
//
// A batch is cut into blocks of `width` rows (16 or 32). Inside a block an array holds, for each
// feature, the values of all rows next to each other: a vector's lanes are rows of the batch, a
// weight is a number broadcast to them. Rows past the batch's end are zero and stay without
// influence. Gates are ordered by unit, then i f g o, so that one register tile ends with all four
// gates of its units. Sums run over features (or over rows and steps, for weights) in ascending
// order, whatever the tile: a result's bits depend on the instruction set alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/forecast/network.h"

namespace headrace::forecast {

inline constexpr size_t kWidthMax = 32;
/// Steps whose gate gradients are kept until weights' gradients are summed over them: 4 * 32 rows
/// of one register tile's columns fill half of a 32 KiB L1.
inline constexpr size_t kSlots = 4;
/// Rows kept per unit for the backward pass: i f g o c. What is kept of all steps is more than L2
/// holds and moves between caches twice, so it is as little as can be: tanh(c) is h / o again, and
/// layers' inputs are made anew.
inline constexpr size_t kSaved = 5;

/// `total` cut into as few tiles of at most `max` as possible, of nearly equal size.
struct Tiling {
  size_t total = 0;
  size_t tiles = 0;
  Tiling(size_t all, size_t max) : total(all), tiles((all + max - 1) / max) {}
  size_t size(size_t tile) const { return total / tiles + (tile < total % tiles ? 1 : 0); }
};

/// Which outputs of a layer go up at one step, and the factor on those that do: one bit per unit
/// and row, [hidden][width / 8] bytes, and 8 bytes of slack. Off when `keep` is null.
struct Dropout {
  const uint8_t* keep = nullptr;
  float factor = 1.0F;
};

struct DropoutArgs {
  uint64_t key = 0;  ///< of layer and step; the bits are a function of it, the unit and the row
  int32_t threshold = 0;  ///< random bits up to here drop
  uint32_t first_row = 0;
  size_t hidden = 0;
  size_t width = 0;
  uint8_t* keep = nullptr;
};

/// So that a share `rate` in (0, 1) of all 32-bit numbers is at most the threshold.
constexpr int32_t dropout_threshold(float rate) {
  const auto numbers = static_cast<int64_t>(static_cast<double>(rate) * 0x1p32);
  return static_cast<int32_t>(numbers - (int64_t{1} << 31) - (numbers > 0 ? 1 : 0));
}

/// Memory that will be needed after the call; fetched into L2 while the sums run.
struct Ahead {
  const void* begin = nullptr;
  size_t bytes = 0;
};

struct ForwardArgs {
  const float* weights = nullptr;  ///< per tile of units: [inputs + hidden + 1][units * 4]; the
                                   ///< last row is the bias; i, f, o are halved
  const float* start = nullptr;    ///< [hidden * 4][width], what the sums start from; null: 0
  const float* x = nullptr;        ///< [inputs][width]
  size_t inputs = 0;
  const float* h_before = nullptr;  ///< [hidden + 1][width], the last row ones
  size_t hidden = 0;
  size_t width = 0;
  const float* c_before = nullptr;  ///< [hidden] rows of width, `c_stride` apart
  float* c_after = nullptr;         ///< as c_before; may be the same
  size_t c_stride = 0;
  float* saved = nullptr;    ///< [hidden][kSaved][width], or null; then c_after is its row 4
  float* h = nullptr;        ///< [hidden][width]
  float* dropped = nullptr;  ///< [hidden][width]: h times the dropout factors, if they are on
  Dropout dropout;
  Ahead ahead;  ///< used when `saved` is not null
};

struct MultiplyArgs {
  const float* weights = nullptr;  ///< per tile of rows: [depth][rows]
  const float* x = nullptr;        ///< [depth][width]
  size_t depth = 0;
  size_t rows = 0;
  size_t width = 0;
  float* out = nullptr;  ///< [rows][width]
  Ahead ahead[3];
};

struct GateGradientArgs {
  size_t hidden = 0;
  size_t width = 0;
  const float* saved = nullptr;     ///< of this step
  const float* c_before = nullptr;  ///< [hidden] rows, kSaved * width apart
  const float* h = nullptr;         ///< [hidden][width], of this step
  const float* d_h = nullptr;       ///< [hidden][width], from the next step
  const float* d_above = nullptr;   ///< [hidden][width], from the layer above; null for the top
  Dropout dropout;                  ///< on d_above
  const float* heads = nullptr;     ///< top layer: [hidden][head_count] weights
  const float* d_raw = nullptr;     ///< top layer: [head_count][width]
  size_t head_count = 0;
  float* d_c = nullptr;      ///< [hidden][width], in and out
  float* d_gates = nullptr;  ///< [hidden * 4][width]
  float* d_rows =
      nullptr;  ///< the same by rows: [group][width][columns], groups `group_stride` apart
  size_t group_stride = 0;
  float* sum = nullptr;  ///< [hidden * 4][width], += d_gates; or null
};

struct WeightGradientArgs {
  const float* x = nullptr;  ///< [steps] times [rows][width], `x_stride` apart
  size_t x_stride = 0;
  const float* d_rows = nullptr;  ///< [group][steps * width][columns], groups `group_stride` apart
  size_t group_stride = 0;
  size_t groups = 0;
  size_t steps = 0;
  size_t rows = 0;
  size_t width = 0;
  float* out = nullptr;  ///< [group][rows][columns], +=, groups `out_stride` apart
  size_t out_stride = 0;
};

struct HeadGradientArgs {
  const float* h = nullptr;  ///< [steps] times [depth][width], `h_stride` apart
  size_t h_stride = 0;
  const float* d_raw = nullptr;  ///< [steps][count][width]
  size_t count = 0;
  size_t steps = 0;
  size_t depth = 0;
  size_t width = 0;
  float* out = nullptr;  ///< [depth][count][width], +=
};

struct LstmKernels {
  size_t units_max;      ///< per forward tile
  size_t rows_max;       ///< per tile of the other products
  size_t group_columns;  ///< gate columns per register tile of weights' gradients
  /// out[column][row] = in[row][column] for `width` rows that are `stride` apart. Reads up to the
  /// next multiple of 16 columns.
  void (*transpose)(const float* in, size_t stride, size_t columns, size_t width, float* out);
  void (*dropout)(const DropoutArgs& args);
  /// out = in * dropout factors, [hidden][width].
  void (*drop)(const Dropout& dropout, const float* in, size_t hidden, size_t width, float* out);
  void (*forward)(const ForwardArgs& args);
  void (*multiply)(const MultiplyArgs& args);
  void (*gate_gradient)(const GateGradientArgs& args);
  void (*weight_gradient)(const WeightGradientArgs& args);
  void (*head_gradient)(const HeadGradientArgs& args);
};

/// What the likelihood of one step of a block needs. Arrays are [width] unless said otherwise.
struct LikelihoodArgs {
  const float* raw = nullptr;  ///< [parameter_count][width], the heads' outputs
  const float* target = nullptr;
  const float* observed = nullptr;
  const double* scale = nullptr;
  const double* log_scale = nullptr;
  size_t width = 0;
  double share = 0.0;       ///< factor on the gradient
  float* mapped = nullptr;  ///< [parameter_count][width], the distribution's parameters
  double* nll = nullptr;    ///< observed * NLL; exactly 0 where observed is 0
  float* d_raw = nullptr;   ///< [parameter_count][width]
};

struct DistributionKernels {
  /// Mapped parameters alone, with log_scale added to NegBin's logit if it is not null.
  void (*map)(Distribution distribution, const float* raw, const double* log_scale, size_t width,
              float* mapped);
  void (*likelihood)(Distribution distribution, const LikelihoodArgs& args);
};

struct AdamArgs {
  float* parameters = nullptr;
  float* gradient = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  size_t count = 0;
  float clip = 1.0F;
  float weight_decay = 0.0F;
  float beta2 = 0.0F;
  float share1 = 0.0F;  ///< 1 - beta1, rounded once
  float share2 = 0.0F;  ///< 1 - beta2
  float rate = 0.0F;    ///< learning rate / (1 - beta1^step)
  float root2 = 1.0F;   ///< sqrt(1 - beta2^step)
  float epsilon = 0.0F;
};

struct AdamKernels {
  double (*squares)(const float* values, size_t count);  ///< sum of squares, in f64
  void (*step)(const AdamArgs& args);
};

struct Kernels {
  const char* name;
  LstmKernels lstm;
  DistributionKernels distribution;
  AdamKernels adam;
};

/// Of the instruction set in use now. The reference stays valid; it names one set for good.
const Kernels& kernels();

// One entry per target Highway knows; the index is that of its dispatch tables.
LstmKernels lstm_kernels(int64_t target);
DistributionKernels distribution_kernels(int64_t target);
AdamKernels adam_kernels(int64_t target);

}  // namespace headrace::forecast
