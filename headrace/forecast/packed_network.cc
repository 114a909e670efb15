// SPDX-License-Identifier: Apache-2.0
// A network's parameters in the order in which the kernels read them.
#include <algorithm>

#include "headrace/forecast/network_internal.h"

namespace headrace::forecast {

namespace {

/// The sigmoids run through tanh(x / 2): halving the weights is exact and saves the multiplication.
constexpr float gate_factor(size_t gate) { return gate == 2 ? 1.0F : 0.5F; }

}  // namespace

std::vector<Block> make_blocks(size_t rows) {
  std::vector<Block> blocks;
  for (size_t first = 0; first < rows; first += kWidthMax) {
    const size_t count = std::min(kWidthMax, rows - first);
    blocks.push_back({first, count, count <= kWidthMax / 2 ? kWidthMax / 2 : kWidthMax});
  }
  return blocks;
}

size_t padded_rows(size_t rows) {
  const Block last = make_blocks(rows).back();
  return last.first + last.width;
}

PackedNetwork::PackedNetwork(const NetworkShape& shape, const Kernels* kernels)
    : shape_(shape), kernels_(kernels) {
  size_t at = 0;
  const auto tensors = parameter_tensors(shape);
  const auto next = [&] { return static_cast<size_t>(tensors[at++].offset); };
  for (size_t e = 0; e < shape.embeddings.size(); ++e) {
    embedding_offsets_.push_back(next());
  }
  for (int l = 0; l < shape.layers; ++l) {
    const size_t ih = next();
    const size_t hh = next();
    const size_t bias_ih = next();
    layer_offsets_.push_back({ih, hh, bias_ih, next()});
    Layer layer;
    layer.inputs = l == 0 ? static_cast<size_t>(shape.lags + shape.other_inputs) : hidden();
    layer.depth = layer.inputs + hidden() + 1;
    layer.forward.resize(layer.depth * 4 * hidden());
    layers_.push_back(std::move(layer));
  }
  for (size_t p = 0; p < heads(); ++p, ++at) {
    head_offsets_.push_back(next());
  }
  head_weights_.resize((hidden() + 1) * heads());
}

void PackedNetwork::pack(std::span<const float> parameters, bool gradients) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    pack_forward(l, parameters.data());
    if (gradients) {
      pack_backward(l, parameters.data());
    }
  }
  for (size_t p = 0; p < heads(); ++p) {
    for (size_t k = 0; k <= hidden(); ++k) {
      head_weights_[k * heads() + p] = parameters[head_offsets_[p] + k];
    }
  }
  if (!shape_.embeddings.empty()) {
    tables_.assign(parameters.begin(),
                   parameters.begin() + static_cast<std::ptrdiff_t>(layer_offsets_[0].ih));
    pack_embedding(parameters.data());
  }
}

void PackedNetwork::pack_forward(size_t l, const float* parameters) {
  Layer& layer = layers_[l];
  const LayerOffsets& at = layer_offsets_[l];
  const auto lags = static_cast<size_t>(shape_.lags);
  const size_t low = l == 0 ? lags : layer.inputs;  // rows before the gap of the embeddings
  const Tiling tiling(hidden(), kernels_->lstm.units_max);
  float* tile_start = layer.forward.data();
  size_t unit = 0;
  for (size_t tile = 0; tile < tiling.tiles; ++tile) {
    const size_t step = 4 * tiling.size(tile);
    for (size_t j = 0; j < step; ++j) {
      const size_t gate = j % 4;
      const size_t row = gate * hidden() + unit + j / 4;
      const float factor = gate_factor(gate);
      float* to = tile_start + j;
      const float* from = parameters + at.ih + row * input_columns(l);
      for (size_t k = 0; k < low; ++k, to += step) {
        *to = factor * from[k];
      }
      from += l == 0 ? embedding_columns() : 0;
      for (size_t k = low; k < layer.inputs; ++k, to += step) {
        *to = factor * from[k];
      }
      from = parameters + at.hh + row * hidden();
      for (size_t k = 0; k < hidden(); ++k, to += step) {
        *to = factor * from[k];
      }
      *to = factor * (parameters[at.bias_ih + row] + parameters[at.bias_hh + row]);
    }
    tile_start += layer.depth * step;
    unit += step / 4;
  }
}

void PackedNetwork::pack_backward(size_t l, const float* parameters) {
  Layer& layer = layers_[l];
  const LayerOffsets& at = layer_offsets_[l];
  const size_t rows = hidden() + (l == 0 ? 0 : layer.inputs);
  layer.backward.resize(rows * 4 * hidden());
  const Tiling tiling(rows, kernels_->lstm.rows_max);
  float* to = layer.backward.data();
  size_t first = 0;
  for (size_t tile = 0; tile < tiling.tiles; ++tile) {
    const size_t size = tiling.size(tile);
    for (size_t j = 0; j < 4 * hidden(); ++j) {
      const size_t row = j % 4 * hidden() + j / 4;
      for (size_t r = first; r < first + size; ++r) {
        const bool is_input = l > 0 && r < layer.inputs;
        *to++ = is_input ? parameters[at.ih + row * layer.inputs + r]
                         : parameters[at.hh + row * hidden() + r - (rows - hidden())];
      }
    }
    first += size;
  }
}

void PackedNetwork::pack_embedding(const float* parameters) {
  const size_t columns = embedding_columns();
  const float* weights = parameters + layer_offsets_[0].ih + static_cast<size_t>(shape_.lags);
  embedding_forward_.resize(columns * 4 * hidden());
  embedding_backward_.resize(columns * 4 * hidden());
  const auto weight = [&](size_t j, size_t column) {
    return weights[(j % 4 * hidden() + j / 4) * input_columns(0) + column];
  };
  float* to = embedding_forward_.data();
  const Tiling gates(4 * hidden(), kernels_->lstm.rows_max);
  for (size_t tile = 0, first = 0; tile < gates.tiles; first += gates.size(tile++)) {
    for (size_t column = 0; column < columns; ++column) {
      for (size_t j = first; j < first + gates.size(tile); ++j) {
        *to++ = gate_factor(j % 4) * weight(j, column);
      }
    }
  }
  to = embedding_backward_.data();
  const Tiling tiling(columns, kernels_->lstm.rows_max);
  for (size_t tile = 0, first = 0; tile < tiling.tiles; first += tiling.size(tile++)) {
    for (size_t j = 0; j < 4 * hidden(); ++j) {
      for (size_t column = first; column < first + tiling.size(tile); ++column) {
        *to++ = weight(j, column);
      }
    }
  }
}

void PackedNetwork::embed(const int* categories, size_t width, float* out) const {
  for (size_t e = 0; e < shape_.embeddings.size(); ++e) {
    const auto dimension = static_cast<size_t>(shape_.embeddings[e].dimension);
    const float* row =
        &tables_[embedding_offsets_[e] + static_cast<size_t>(categories[e]) * dimension];
    for (size_t k = 0; k < dimension; ++k, out += width) {
      *out = row[k];
    }
  }
}

void PackedNetwork::embedding_start(const float* embedded, size_t width, float* start) const {
  MultiplyArgs args;
  args.weights = embedding_forward_.data();
  args.x = embedded;
  args.depth = embedding_columns();
  args.rows = 4 * hidden();
  args.width = width;
  args.out = start;
  kernels_->lstm.multiply(args);
}

}  // namespace headrace::forecast
