// SPDX-License-Identifier: Apache-2.0
// A training step's memory, and a block's way forward through all steps.
#include <algorithm>

#include "headrace/base/random.h"
#include "headrace/forecast/training_state_internal.h"

namespace headrace::forecast {

TrainingStep::State::State(const NetworkShape& shape, size_t batch_rows, size_t step_count,
                           const BatchPart& part)
    : network(shape, &kernels()),
      batch(batch_rows),
      first_row(static_cast<size_t>(part.first)),
      whole_cells(
          static_cast<double>(part.whole > 0 ? static_cast<size_t>(part.whole) : batch_rows) *
          static_cast<double>(step_count)),
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
  return {keep.data() + (l * steps + t) * network.hidden() * block.width / 8,
          1.0F / (1.0F - rate.rate)};
}

void TrainingStep::State::draw_dropout(const Block& block) {
  DropoutArgs args;
  args.threshold = dropout_threshold(rate.rate);
  args.first_row = static_cast<uint32_t>(first_row + block.first);
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
      std::fill_n(memory.h.data() + (t * (hidden + 1) + hidden) * block.width, block.width, 1.0F);
    }
  }
  if (rate.rate > 0.0F) {
    draw_dropout(block);
  }
  if (!embedded.empty()) {
    std::fill(embedded.begin(), embedded.end(), 0.0F);
    const size_t features = network.shape().embeddings.size();
    for (size_t r = 0; r < block.rows; ++r) {
      network.embed(categories.data() + (block.first + r) * features, block.width,
                    embedded.data() + r);
    }
    network.embedding_start(embedded.data(), block.width, start.data());
  }
}

const float* TrainingStep::State::input_block(const Block& block, size_t t) const {
  return inputs.data() + (t * padded + block.first) * input_stride;
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
  return layers[l].h.data() + t * (network.hidden() + 1) * block.width;
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
    args.saved = memory.saved.data() + (t + 1) * saved_step;
    args.c_before = memory.saved.data() + t * saved_step + 4 * width;
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
  args.target = targets.data() + t * padded + block.first;
  args.observed = observed.data() + t * padded + block.first;
  args.scale = scale.data() + block.first;
  args.log_scale = log_scale.data() + block.first;
  args.width = width;
  args.share = 1.0 / whole_cells;
  args.mapped = mapped.data() + (block.first * steps + t * width) * network.heads();
  args.nll = nll.data() + t * padded + block.first;
  args.d_raw = d_raw.data() + t * network.heads() * width;
  network.kernels().distribution.likelihood(network.shape().distribution, args);
}

}  // namespace headrace::forecast
