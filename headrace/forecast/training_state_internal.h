// SPDX-License-Identifier: Apache-2.0
// What a training step works on: the batch, the packed network, and what one block of rows leaves
// for its way back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/forecast/network_internal.h"

namespace headrace::forecast {

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

struct TrainingStep::State {
  State(const NetworkShape& shape, size_t batch_rows, size_t step_count, const BatchPart& part);

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
  size_t first_row;    ///< in the whole batch
  double whole_cells;  ///< of the whole batch
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

}  // namespace headrace::forecast
