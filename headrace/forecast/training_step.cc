// SPDX-License-Identifier: Apache-2.0
// Loss and gradient of one batch: blocks of rows go forward through all steps, then back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "headrace/base/check.h"
#include "headrace/forecast/flush_denormals.h"
#include "headrace/forecast/network_internal.h"

namespace headrace::forecast {

namespace {

constexpr int64_t kCellsMax = int64_t{1} << 31;
constexpr size_t kTransposeSlack = 16;  // floats a transposition may read past a row

/// What one layer keeps of one block.
struct LayerMemory {
  AlignedVector<float> x;        ///< [kSlots][inputs][width]: x of the steps at work
  AlignedVector<float> h;        ///< [steps + 1][hidden + 1][width]: before each step; then ones
  AlignedVector<float> saved;    ///< [steps + 1][hidden][kSaved][width]; step t writes t + 1
  AlignedVector<float> d_x;      ///< gradient of x's rows that need one, then of h before
  AlignedVector<float> d_c;      ///< [hidden][width]
  AlignedVector<float> d_rows;   ///< [group][kSlots * width][columns]
  AlignedVector<float> weights;  ///< gradient: [group][depth][columns]
};

/// Dropout of one run; none when the rate is 0.
struct DropoutRate {
  float rate = 0.0F;
  uint64_t seed = 0;
};

}  // namespace

struct TrainingStep::State {
  State(const NetworkShape& shape, size_t batch_rows, size_t step_count);

  StepLoss run(std::span<const float> parameters, const DropoutRate& dropout,
               std::span<float> gradient);
  void start_block(const Block& block);
  void forward_step(const Block& block, size_t t);
  void heads_step(const Block& block, size_t t);
  void backward_block(const Block& block, std::span<float> gradient);
  void backward_step(const Block& block, size_t t, size_t l);
  void sum_weights(const Block& block, size_t t);
  void embedding_gradient(const Block& block, std::span<float> gradient);
  void head_gradient(const Block& block, std::span<float> gradient) const;
  void write_layer_gradient(size_t l, std::span<float> gradient) const;
  StepLoss total_loss() const;
  void draw_dropout(const Block& block);
  Dropout dropout_of(const Block& block, size_t t, size_t l) const;
  void fetch_ahead(const Block& block, size_t t, size_t l, Ahead* ahead);
  void remake_x(const Block& block, size_t t, size_t l);
  void read_inputs(const Block& block, size_t t, float* x) const;
  const float* input_block(const Block& block, size_t t) const;
  float* h_before(const Block& block, size_t l, size_t t);

  PackedNetwork network;
  size_t batch;
  size_t steps;
  std::vector<Block> blocks;
  size_t padded;
  size_t input_stride;
  AlignedVector<float> inputs;    ///< [steps][padded][input_stride]
  AlignedVector<float> targets;   ///< [steps][padded]
  AlignedVector<float> observed;  ///< [steps][padded]
  AlignedVector<float> scales;    ///< [padded]
  std::vector<int> categories;    ///< [batch][embeddings]

  std::vector<LayerMemory> layers;
  size_t groups;                        ///< of gate columns
  AlignedVector<double> scale;          ///< [padded]
  AlignedVector<double> log_scale;      ///< [padded]
  AlignedVector<double> nll;            ///< [steps][padded]
  AlignedVector<float> raw;             ///< [heads][width]
  AlignedVector<float> mapped;          ///< [block][steps][heads][width]
  AlignedVector<float> d_raw;           ///< [steps][heads][width]
  AlignedVector<float> head_sums;       ///< [hidden + 1][heads][width]
  AlignedVector<float> d_gates;         ///< [hidden * 4][width]
  AlignedVector<float> embedded;        ///< [embedding columns][width]
  AlignedVector<float> start;           ///< [hidden * 4][width]
  AlignedVector<float> gate_sums;       ///< [hidden * 4][width]: d_gates of layer 0 over all steps
  AlignedVector<float> embedding_sums;  ///< [group][embedding columns][columns]
  std::vector<uint8_t> keep;            ///< [layers - 1][steps] dropout bits of a block
  DropoutRate rate;
};

TrainingStep::State::State(const NetworkShape& shape, size_t batch_rows, size_t step_count)
    : network(shape, &kernels()),
      batch(batch_rows),
      steps(step_count),
      blocks(make_blocks(batch_rows)),
      padded(padded_rows(batch_rows)),
      input_stride(static_cast<size_t>(shape.inputs())) {
  const size_t hidden = network.hidden();
  const size_t columns = network.kernels().lstm.group_columns;
  const size_t width = blocks.front().width;
  groups = (4 * hidden + columns - 1) / columns;
  inputs.resize(steps * padded * input_stride + kTransposeSlack);
  targets.resize(steps * padded);
  observed.resize(steps * padded);
  scales.resize(padded, 1.0F);
  categories.resize(batch * shape.embeddings.size());
  layers.resize(network.layers());
  for (size_t l = 0; l < layers.size(); ++l) {
    const PackedNetwork::Layer& layer = network.layer(l);
    LayerMemory& memory = layers[l];
    memory.x.resize(kSlots * layer.inputs * width);
    memory.h.resize((steps + 1) * (hidden + 1) * width);
    memory.saved.resize((steps + 1) * hidden * kSaved * width);
    memory.d_x.resize((hidden + (l == 0 ? 0 : layer.inputs)) * width);
    memory.d_c.resize(hidden * width);
    memory.d_rows.resize(groups * kSlots * width * columns);
    memory.weights.resize(groups * layer.depth * columns);
  }
  scale.resize(padded);
  log_scale.resize(padded);
  nll.resize(steps * padded);
  raw.resize(network.heads() * width);
  mapped.resize(steps * network.heads() * padded);
  d_raw.resize(steps * network.heads() * width);
  head_sums.resize((hidden + 1) * network.heads() * width);
  d_gates.resize(4 * hidden * width);
  keep.resize((layers.size() - 1) * steps * hidden * width / 8 + 8);
  if (!shape.embeddings.empty()) {
    embedded.resize(network.embedding_columns() * width);
    start.resize(4 * hidden * width);
    gate_sums.resize(4 * hidden * width);
    embedding_sums.resize(groups * network.embedding_columns() * columns);
  }
}

Dropout TrainingStep::State::dropout_of(const Block& block, size_t t, size_t l) const {
  if (rate.rate == 0.0F) {
    return {};
  }
  return {&keep[(l * steps + t) * network.hidden() * block.width / 8], 1.0F / (1.0F - rate.rate)};
}

void TrainingStep::State::draw_dropout(const Block& block) {
  DropoutArgs args;
  args.threshold = dropout_threshold(rate.rate);
  args.first_row = static_cast<uint32_t>(block.first);
  args.hidden = network.hidden();
  args.width = block.width;
  args.keep = keep.data();
  for (size_t cell = 0; cell < (layers.size() - 1) * steps; ++cell) {
    args.key = base::derive_seed(rate.seed, cell);
    network.kernels().lstm.dropout(args);
    args.keep += args.hidden * args.width / 8;
  }
}

void TrainingStep::State::start_block(const Block& block) {
  const size_t hidden = network.hidden();
  for (LayerMemory& memory : layers) {
    std::fill_n(memory.h.begin(), hidden * block.width, 0.0F);
    std::fill_n(memory.saved.begin(), hidden * kSaved * block.width, 0.0F);
    for (size_t t = 0; t <= steps; ++t) {
      std::fill_n(&memory.h[(t * (hidden + 1) + hidden) * block.width], block.width, 1.0F);
    }
  }
  if (rate.rate > 0.0F) {
    draw_dropout(block);
  }
  if (!embedded.empty()) {
    std::fill(embedded.begin(), embedded.end(), 0.0F);
    const size_t features = network.shape().embeddings.size();
    for (size_t r = 0; r < block.rows; ++r) {
      network.embed(&categories[(block.first + r) * features], block.width, &embedded[r]);
    }
    network.embedding_start(embedded.data(), block.width, start.data());
  }
}

const float* TrainingStep::State::input_block(const Block& block, size_t t) const {
  return &inputs[(t * padded + block.first) * input_stride];
}

void TrainingStep::State::read_inputs(const Block& block, size_t t, float* x) const {
  const LstmKernels& kernel = network.kernels().lstm;
  const auto lags = static_cast<size_t>(network.shape().lags);
  const float* in = input_block(block, t);
  kernel.transpose(in, input_stride, lags, block.width, x);
  kernel.transpose(in + lags + network.embedding_columns(), input_stride,
                   network.layer(0).inputs - lags, block.width, x + lags * block.width);
}

float* TrainingStep::State::h_before(const Block& block, size_t l, size_t t) {
  return &layers[l].h[t * (network.hidden() + 1) * block.width];
}

void TrainingStep::State::forward_step(const Block& block, size_t t) {
  const size_t hidden = network.hidden();
  const size_t width = block.width;
  const size_t saved_step = hidden * kSaved * width;
  read_inputs(block, t, layers[0].x.data());
  for (size_t l = 0; l < layers.size(); ++l) {
    LayerMemory& memory = layers[l];
    ForwardArgs args;
    args.weights = network.layer(l).forward.data();
    args.start = l == 0 && !start.empty() ? start.data() : nullptr;
    args.x = l == 0 || rate.rate > 0.0F ? memory.x.data() : h_before(block, l - 1, t + 1);
    args.inputs = network.layer(l).inputs;
    args.h_before = h_before(block, l, t);
    args.hidden = hidden;
    args.width = width;
    args.saved = &memory.saved[(t + 1) * saved_step];
    args.c_before = &memory.saved[t * saved_step + 4 * width];
    args.c_after = args.saved + 4 * width;
    args.c_stride = kSaved * width;
    args.h = h_before(block, l, t + 1);
    if (l + 1 < layers.size()) {
      args.dropped = layers[l + 1].x.data();
      args.dropout = dropout_of(block, t, l);
    }
    if (l == 0 && t + 1 < steps) {
      args.ahead = {input_block(block, t + 1), width * input_stride * sizeof(float)};
    }
    network.kernels().lstm.forward(args);
  }
}

void TrainingStep::State::heads_step(const Block& block, size_t t) {
  const size_t width = block.width;
  MultiplyArgs product;
  product.weights = network.head_weights();
  product.x = h_before(block, layers.size() - 1, t + 1);
  product.depth = network.hidden() + 1;
  product.rows = network.heads();
  product.width = width;
  product.out = raw.data();
  network.kernels().lstm.multiply(product);
  LikelihoodArgs args;
  args.raw = raw.data();
  args.target = &targets[t * padded + block.first];
  args.observed = &observed[t * padded + block.first];
  args.scale = &scale[block.first];
  args.log_scale = &log_scale[block.first];
  args.width = width;
  args.share = 1.0 / (static_cast<double>(batch) * static_cast<double>(steps));
  args.mapped = &mapped[(block.first * steps + t * width) * network.heads()];
  args.nll = &nll[t * padded + block.first];
  args.d_raw = &d_raw[t * network.heads() * width];
  network.kernels().distribution.likelihood(network.shape().distribution, args);
}

void TrainingStep::State::backward_step(const Block& block, size_t t, size_t l) {
  const LstmKernels& kernel = network.kernels().lstm;
  const size_t hidden = network.hidden();
  const size_t width = block.width;
  const size_t saved_step = hidden * kSaved * width;
  const PackedNetwork::Layer& layer = network.layer(l);
  LayerMemory& memory = layers[l];
  const size_t input_rows = l == 0 ? 0 : layer.inputs;
  GateGradientArgs gates;
  gates.hidden = hidden;
  gates.width = width;
  gates.saved = &memory.saved[(t + 1) * saved_step];
  gates.c_before = &memory.saved[t * saved_step + 4 * width];
  gates.h = h_before(block, l, t + 1);
  gates.d_h = &memory.d_x[input_rows * width];
  if (l + 1 == layers.size()) {
    gates.heads = network.head_weights();
    gates.d_raw = &d_raw[t * network.heads() * width];
    gates.head_count = network.heads();
  } else {
    gates.d_above = layers[l + 1].d_x.data();
    gates.dropout = dropout_of(block, t, l);
  }
  gates.d_c = memory.d_c.data();
  gates.d_gates = d_gates.data();
  gates.group_stride = kSlots * width * kernel.group_columns;
  gates.d_rows = &memory.d_rows[t % kSlots * width * kernel.group_columns];
  gates.sum = l == 0 && !gate_sums.empty() ? gate_sums.data() : nullptr;
  kernel.gate_gradient(gates);

  MultiplyArgs product;
  product.weights = layer.backward.data();
  product.x = d_gates.data();
  product.depth = 4 * hidden;
  product.rows = input_rows + hidden;
  product.width = width;
  product.out = memory.d_x.data();
  fetch_ahead(block, t, l, product.ahead);
  kernel.multiply(product);
  remake_x(block, t, l);
}

/// x of layer `l` at step `t` again, into its slot. Without dropout the layer below still has it.
void TrainingStep::State::remake_x(const Block& block, size_t t, size_t l) {
  float* x = &layers[l].x[t % kSlots * network.layer(l).inputs * block.width];
  if (l == 0) {
    read_inputs(block, t, x);
  } else if (rate.rate > 0.0F) {
    network.kernels().lstm.drop(dropout_of(block, t, l - 1), h_before(block, l - 1, t + 1),
                                network.hidden(), block.width, x);
  }
}

/// What the backward pass reads after the product of layer `l` at step `t`: the saved rows of the
/// layer below, or of the top layer one step earlier; this layer's h, whose weights' gradient comes
/// within kSlots steps; the inputs. All of it has left L2 since the forward pass.
void TrainingStep::State::fetch_ahead(const Block& block, size_t t, size_t l, Ahead* ahead) {
  const size_t saved_step = network.hidden() * kSaved * block.width;
  if (l > 0 || t > 0) {
    const AlignedVector<float>& saved = layers[l > 0 ? l - 1 : layers.size() - 1].saved;
    ahead[0] = {&saved[(l > 0 ? t + 1 : t) * saved_step], saved_step * sizeof(float)};
  }
  ahead[1] = {h_before(block, l, t), network.hidden() * block.width * sizeof(float)};
  if (l == 0 && t > 0) {
    ahead[2] = {input_block(block, t - 1), block.width * input_stride * sizeof(float)};
  }
}

void TrainingStep::State::sum_weights(const Block& block, size_t t) {
  const LstmKernels& kernel = network.kernels().lstm;
  const size_t width = block.width;
  const size_t h_step = (network.hidden() + 1) * width;
  for (size_t l = 0; l < layers.size(); ++l) {
    const PackedNetwork::Layer& layer = network.layer(l);
    WeightGradientArgs args;
    args.d_rows = layers[l].d_rows.data();
    args.group_stride = kSlots * width * kernel.group_columns;
    args.groups = groups;
    args.steps = std::min(kSlots, steps - t);
    args.width = width;
    args.out_stride = layer.depth * kernel.group_columns;
    const bool is_made = l == 0 || rate.rate > 0.0F;
    args.x = is_made ? layers[l].x.data() : h_before(block, l - 1, t + 1);
    args.x_stride = is_made ? layer.inputs * width : h_step;
    args.rows = layer.inputs;
    args.out = layers[l].weights.data();
    kernel.weight_gradient(args);
    args.x = h_before(block, l, t);
    args.x_stride = h_step;
    args.rows = network.hidden() + 1;
    args.out += layer.inputs * kernel.group_columns;
    kernel.weight_gradient(args);
  }
  HeadGradientArgs args;
  args.h_stride = h_step;
  args.h = h_before(block, layers.size() - 1, t + 1);
  args.d_raw = &d_raw[t * network.heads() * width];
  args.count = network.heads();
  args.steps = std::min(kSlots, steps - t);
  args.depth = network.hidden() + 1;
  args.width = width;
  args.out = head_sums.data();
  kernel.head_gradient(args);
}

void TrainingStep::State::backward_block(const Block& block, std::span<float> gradient) {
  for (LayerMemory& memory : layers) {
    std::fill(memory.d_x.begin(), memory.d_x.end(), 0.0F);
    std::fill(memory.d_c.begin(), memory.d_c.end(), 0.0F);
  }
  std::fill(gate_sums.begin(), gate_sums.end(), 0.0F);
  std::fill(head_sums.begin(), head_sums.end(), 0.0F);
  for (size_t t = steps; t-- > 0;) {
    for (size_t l = layers.size(); l-- > 0;) {
      backward_step(block, t, l);
    }
    if (t % kSlots == 0) {
      sum_weights(block, t);
    }
  }
  head_gradient(block, gradient);
  if (!embedded.empty()) {
    embedding_gradient(block, gradient);
  }
}

void TrainingStep::State::embedding_gradient(const Block& block, std::span<float> gradient) {
  const LstmKernels& kernel = network.kernels().lstm;
  const size_t width = block.width;
  const size_t columns = network.embedding_columns();
  // By rows, as the weights' kernel wants it; layer 0's slots are free now.
  AlignedVector<float>& d_rows = layers[0].d_rows;
  for (size_t group = 0; group < groups; ++group) {
    for (size_t row = 0; row < width; ++row) {
      for (size_t j = 0; j < kernel.group_columns; ++j) {
        const size_t gate = group * kernel.group_columns + j;
        d_rows[(group * width + row) * kernel.group_columns + j] =
            gate < 4 * network.hidden() ? gate_sums[gate * width + row] : 0.0F;
      }
    }
  }
  WeightGradientArgs weights;
  weights.x = embedded.data();
  weights.d_rows = d_rows.data();
  weights.group_stride = width * kernel.group_columns;
  weights.groups = groups;
  weights.steps = 1;
  weights.rows = columns;
  weights.width = width;
  weights.out = embedding_sums.data();
  weights.out_stride = columns * kernel.group_columns;
  kernel.weight_gradient(weights);

  MultiplyArgs product;
  product.weights = network.embedding_backward();
  product.x = gate_sums.data();
  product.depth = 4 * network.hidden();
  product.rows = columns;
  product.width = width;
  product.out = embedded.data();  // not needed any more
  kernel.multiply(product);
  const std::vector<EmbeddingShape>& shapes = network.shape().embeddings;
  for (size_t row = 0; row < block.rows; ++row) {
    const float* from = &embedded[row];
    for (size_t e = 0; e < shapes.size(); ++e) {
      const auto dimension = static_cast<size_t>(shapes[e].dimension);
      const int category = categories[(block.first + row) * shapes.size() + e];
      float* to =
          &gradient[network.embedding_offset(e) + static_cast<size_t>(category) * dimension];
      for (size_t k = 0; k < dimension; ++k, from += width) {
        to[k] += *from;
      }
    }
  }
}

void TrainingStep::State::write_layer_gradient(size_t l, std::span<float> gradient) const {
  const size_t hidden = network.hidden();
  const size_t columns = network.kernels().lstm.group_columns;
  const PackedNetwork::Layer& layer = network.layer(l);
  const PackedNetwork::LayerOffsets& at = network.offsets(l);
  const size_t embedding_columns = l == 0 ? network.embedding_columns() : 0;
  for (size_t j = 0; j < 4 * hidden; ++j) {
    const size_t row = j % 4 * hidden + j / 4;
    const float* from = &layers[l].weights[j / columns * layer.depth * columns + j % columns];
    float* to = &gradient[at.ih + row * network.input_columns(l)];
    for (size_t k = 0; k < layer.inputs; ++k, from += columns) {
      to[network.input_column(l, k)] = *from;
    }
    to = &gradient[at.hh + row * hidden];
    for (size_t k = 0; k < hidden; ++k, from += columns) {
      to[k] = *from;
    }
    gradient[at.bias_ih + row] = *from;
    gradient[at.bias_hh + row] = *from;
    for (size_t k = 0; k < embedding_columns; ++k) {
      gradient[at.ih + row * network.input_columns(0) + static_cast<size_t>(network.shape().lags) +
               k] = embedding_sums[(j / columns * embedding_columns + k) * columns + j % columns];
    }
  }
}

void TrainingStep::State::head_gradient(const Block& block, std::span<float> gradient) const {
  for (size_t p = 0; p < network.heads(); ++p) {
    for (size_t k = 0; k <= network.hidden(); ++k) {
      const float* sums = &head_sums[(k * network.heads() + p) * block.width];
      gradient[network.head_offset(p) + k] += std::accumulate(sums, sums + block.width, 0.0F);
    }
  }
}

StepLoss TrainingStep::State::total_loss() const {
  double sum = 0.0;
  double seen = 0.0;
  for (size_t t = 0; t < steps; ++t) {
    for (size_t b = 0; b < batch; ++b) {
      sum += nll[t * padded + b];
      seen += static_cast<double>(observed[t * padded + b]);
    }
  }
  return {sum / (static_cast<double>(batch) * static_cast<double>(steps)),
          seen > 0.0 ? sum / seen : 0.0};
}

StepLoss TrainingStep::State::run(std::span<const float> parameters, const DropoutRate& dropout,
                                  std::span<float> gradient) {
  const FlushDenormals flush;
  rate = dropout;
  network.pack(parameters, !gradient.empty());
  for (size_t b = 0; b < padded; ++b) {
    scale[b] = static_cast<double>(scales[b]);
    log_scale[b] = std::log(scale[b]);
  }
  for (LayerMemory& memory : layers) {
    std::fill(memory.weights.begin(), memory.weights.end(), 0.0F);
  }
  std::fill(embedding_sums.begin(), embedding_sums.end(), 0.0F);
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  for (const Block& block : blocks) {
    start_block(block);
    for (size_t t = 0; t < steps; ++t) {
      forward_step(block, t);
      heads_step(block, t);
    }
    if (!gradient.empty()) {
      backward_block(block, gradient);
    }
  }
  for (size_t l = 0; l < layers.size() && !gradient.empty(); ++l) {
    write_layer_gradient(l, gradient);
  }
  return total_loss();
}

TrainingStep::TrainingStep(std::unique_ptr<State> state) : state_(std::move(state)) {}
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;
TrainingStep::~TrainingStep() = default;

Result<TrainingStep> TrainingStep::make(const NetworkShape& shape, int batch, int steps) {
  HR_TRY(check_shape(shape));
  if (batch < 1 || steps < 1 || int64_t{batch} * steps > kCellsMax / shape.inputs()) {
    return Error{Errc::invalid_argument,
                 fmt::format("forecast: a training step of batch {} and {} steps of {} inputs: "
                             "batch and steps must be at least 1, and the inputs at most {}",
                             batch, steps, shape.inputs(), kCellsMax)};
  }
  return TrainingStep(
      std::make_unique<State>(shape, static_cast<size_t>(batch), static_cast<size_t>(steps)));
}

float* TrainingStep::input_row(int t, int b) {
  State& s = *state_;
  return &s.inputs[(static_cast<size_t>(t) * s.padded + static_cast<size_t>(b)) * s.input_stride];
}

void TrainingStep::set_category(int b, int feature, int index) {
  const std::vector<EmbeddingShape>& shapes = state_->network.shape().embeddings;
  HR_CHECK(index >= 0 && index < shapes.at(static_cast<size_t>(feature)).cardinality,
           fmt::format("category {} of embedding {} is out of range", index, feature));
  state_->categories[static_cast<size_t>(b) * shapes.size() + static_cast<size_t>(feature)] = index;
}

float* TrainingStep::target_row(int t) {
  return &state_->targets[static_cast<size_t>(t) * state_->padded];
}

float* TrainingStep::observed_row(int t) {
  return &state_->observed[static_cast<size_t>(t) * state_->padded];
}

float* TrainingStep::scales() { return state_->scales.data(); }

StepLoss TrainingStep::loss_and_gradient(std::span<const float> parameters, float dropout,
                                         base::Rng* rng, std::span<float> gradient) {
  const NetworkShape& shape = state_->network.shape();
  HR_CHECK(static_cast<int64_t>(parameters.size()) == parameter_total(shape) &&
               gradient.size() == parameters.size(),
           "parameters and gradient must have parameter_total floats");
  HR_CHECK(dropout >= 0.0F && dropout < 1.0F && (dropout == 0.0F || rng != nullptr),
           "dropout must be in [0, 1), and needs random numbers when it is not 0");
  const DropoutRate rate{dropout, dropout > 0.0F ? rng->next() : 0};
  return state_->run(parameters, rate, gradient);
}

StepLoss TrainingStep::loss(std::span<const float> parameters) {
  HR_CHECK(static_cast<int64_t>(parameters.size()) == parameter_total(state_->network.shape()),
           "there must be parameter_total parameters");
  return state_->run(parameters, DropoutRate{}, {});
}

std::vector<float> TrainingStep::distribution_row(int t, int b) const {
  const State& s = *state_;
  const auto row = static_cast<size_t>(b);
  const Block& block = s.blocks[row / kWidthMax];
  const size_t heads = s.network.heads();
  const float* from = &s.mapped[block.first * s.steps * heads +
                                static_cast<size_t>(t) * heads * block.width + row - block.first];
  std::vector<float> out(heads);
  for (size_t p = 0; p < heads; ++p) {
    out[p] = from[p * block.width];
  }
  return out;
}

}  // namespace headrace::forecast
