// SPDX-License-Identifier: Apache-2.0
// A block's way back through all steps, and the gradient in the parameters' order.
#include <algorithm>
#include <numeric>

#include "headrace/forecast/training_state_internal.h"

namespace headrace::forecast {

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
  gates.saved = memory.saved.data() + (t + 1) * saved_step;
  gates.c_before = memory.saved.data() + t * saved_step + 4 * width;
  gates.h = h_before(block, l, t + 1);
  gates.d_h = memory.d_x.data() + input_rows * width;
  if (l + 1 == layers.size()) {
    gates.heads = network.head_weights();
    gates.d_raw = d_raw.data() + t * network.heads() * width;
    gates.head_count = network.heads();
  } else {
    gates.d_above = layers[l + 1].d_x.data();
    gates.dropout = dropout_of(block, t, l);
  }
  gates.d_c = memory.d_c.data();
  gates.d_gates = d_gates.data();
  gates.group_stride = kSlots * width * kernel.group_columns;
  gates.d_rows = memory.d_rows.data() + t % kSlots * width * kernel.group_columns;
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
  if (l > 0 && rate.rate == 0.0F) {
    return;
  }
  float* x = layers[l].x.data() + t % kSlots * network.layer(l).inputs * block.width;
  if (l == 0) {
    read_inputs(block, t, x);
  } else {
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
    ahead[0] = {saved.data() + (l > 0 ? t + 1 : t) * saved_step, saved_step * sizeof(float)};
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
  args.d_raw = d_raw.data() + t * network.heads() * width;
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
    const float* from = embedded.data() + row;
    for (size_t e = 0; e < shapes.size(); ++e) {
      const auto dimension = static_cast<size_t>(shapes[e].dimension);
      const int category = categories[(block.first + row) * shapes.size() + e];
      float* to =
          gradient.data() + network.embedding_offset(e) + static_cast<size_t>(category) * dimension;
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
    const float* from =
        layers[l].weights.data() + j / columns * layer.depth * columns + j % columns;
    float* to = gradient.data() + at.ih + row * network.input_columns(l);
    for (size_t k = 0; k < layer.inputs; ++k, from += columns) {
      to[network.input_column(l, k)] = *from;
    }
    to = gradient.data() + at.hh + row * hidden;
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
      const float* sums = head_sums.data() + (k * network.heads() + p) * block.width;
      gradient[network.head_offset(p) + k] += std::accumulate(sums, sums + block.width, 0.0F);
    }
  }
}

}  // namespace headrace::forecast
