// SPDX-License-Identifier: Apache-2.0
// The network one step at a time, without gradients.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/base/check.h"
#include "headrace/forecast/flush_denormals.h"
#include "headrace/forecast/network_internal.h"

namespace headrace::forecast {

namespace {

/// One layer's state. A step reads one h and writes the other; ones follow each.
struct DecoderLayer {
  AlignedVector<float> h[2];  ///< [block][hidden + 1][width]
  AlignedVector<float> c;     ///< [block][hidden][width]
};

}  // namespace

struct Decoder::State {
  State(const NetworkShape& shape, size_t rows_limit, std::span<const float> parameters);

  void step_block(const Block& block);
  void start_embeddings();
  /// Value of `row` in an array of blocks of `features` rows each.
  static float& lane(AlignedVector<float>* array, size_t features, const std::vector<Block>& blocks,
                     size_t feature, size_t row);

  PackedNetwork network;
  size_t rows_max;
  size_t input_stride;
  size_t rows = 0;
  std::vector<Block> blocks;
  size_t current = 0;           ///< which h is read by the next step
  bool embeddings_new = false;  ///< `start` is out of date
  AlignedVector<float> inputs;  ///< [rows][input_stride]
  std::vector<int> categories;  ///< [rows][embeddings]
  AlignedVector<float> x;       ///< [inputs][width], a block at a time
  std::vector<DecoderLayer> layers;
  AlignedVector<float> start;        ///< [block][hidden * 4][width]
  AlignedVector<float> embedded;     ///< [embedding columns][width]
  AlignedVector<float> outputs;      ///< [hidden + 1][width] of the top layer, the last row ones
  AlignedVector<float> raw;          ///< [heads][width]
  std::vector<float> distributions;  ///< [rows][heads]
};

Decoder::State::State(const NetworkShape& shape, size_t rows_limit,
                      std::span<const float> parameters)
    : network(shape, &kernels()),
      rows_max(rows_limit),
      input_stride(static_cast<size_t>(shape.inputs())) {
  network.pack(parameters, false);
  const size_t padded = padded_rows(rows_max);
  const size_t hidden = network.hidden();
  inputs.resize(padded * input_stride + kTransposeSlack);
  categories.resize(rows_max * shape.embeddings.size());
  layers.resize(network.layers());
  for (DecoderLayer& layer : layers) {
    for (AlignedVector<float>& h : layer.h) {
      h.resize((hidden + 1) * padded);
    }
    layer.c.resize(hidden * padded);
  }
  x.resize(network.layer(0).inputs * kWidthMax);
  if (!shape.embeddings.empty()) {
    start.resize(4 * hidden * padded);
    embedded.resize(network.embedding_columns() * kWidthMax);
  }
  raw.resize(network.heads() * kWidthMax);
  distributions.resize(rows_max * network.heads());
}

void Decoder::State::start_embeddings() {
  const size_t features = network.shape().embeddings.size();
  for (const Block& block : blocks) {
    for (size_t r = 0; r < block.rows; ++r) {
      network.embed(categories.data() + (block.first + r) * features, block.width,
                    embedded.data() + r);
    }
    network.embedding_start(embedded.data(), block.width,
                            start.data() + block.first * 4 * network.hidden());
  }
  embeddings_new = false;
}

void Decoder::State::step_block(const Block& block) {
  const LstmKernels& kernel = network.kernels().lstm;
  const size_t width = block.width;
  const size_t hidden = network.hidden();
  const auto lags = static_cast<size_t>(network.shape().lags);
  const float* in = inputs.data() + block.first * input_stride;
  kernel.transpose(in, input_stride, lags, width, x.data());
  kernel.transpose(in + lags + network.embedding_columns(), input_stride,
                   network.layer(0).inputs - lags, width, x.data() + lags * width);
  const size_t h_block = block.first * (hidden + 1);
  const float* below = x.data();
  for (size_t l = 0; l < layers.size(); ++l) {
    ForwardArgs args;
    args.weights = network.layer(l).forward.data();
    args.start = l == 0 && !start.empty() ? start.data() + block.first * 4 * hidden : nullptr;
    args.x = below;
    args.inputs = network.layer(l).inputs;
    args.h_before = layers[l].h[current].data() + h_block;
    args.hidden = hidden;
    args.width = width;
    args.c_before = layers[l].c.data() + block.first * hidden;
    args.c_after = layers[l].c.data() + block.first * hidden;
    args.c_stride = width;
    args.h = layers[l].h[1 - current].data() + h_block;
    kernel.forward(args);
    below = args.h;
  }
  MultiplyArgs product;
  product.weights = network.head_weights();
  product.x = below;
  product.depth = hidden + 1;
  product.rows = network.heads();
  product.width = width;
  product.out = raw.data();
  kernel.multiply(product);
  network.kernels().distribution.map(network.shape().distribution, raw.data(), nullptr, width,
                                     raw.data());
  for (size_t p = 0; p < network.heads(); ++p) {
    for (size_t r = 0; r < block.rows; ++r) {
      distributions[(block.first + r) * network.heads() + p] = raw[p * width + r];
    }
  }
}

float& Decoder::State::lane(AlignedVector<float>* array, size_t features,
                            const std::vector<Block>& in, size_t feature, size_t row) {
  const Block& block = in[row / kWidthMax];
  return (*array)[block.first * features + feature * block.width + row - block.first];
}

Decoder::Decoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Result<Decoder> Decoder::make(const NetworkShape& shape, int rows_max,
                              std::span<const float> parameters) {
  HR_TRY(check_shape(shape));
  if (rows_max < 1) {
    return Error{
        Errc::invalid_argument,
        fmt::format("forecast: a decoder for {} rows is empty; give at least 1", rows_max)};
  }
  if (static_cast<int64_t>(parameters.size()) != parameter_total(shape)) {
    return Error{Errc::mismatch,
                 fmt::format("forecast: the network has {} parameters, {} were given",
                             parameter_total(shape), parameters.size())};
  }
  return Decoder(std::make_unique<State>(shape, static_cast<size_t>(rows_max), parameters));
}

void Decoder::reset(int rows) {
  State& s = *state_;
  HR_CHECK(rows >= 0 && static_cast<size_t>(rows) <= s.rows_max,
           "more rows than the decoder was made for");
  s.rows = static_cast<size_t>(rows);
  s.blocks = make_blocks(s.rows);
  s.embeddings_new = true;
  const size_t hidden = s.network.hidden();
  for (DecoderLayer& layer : s.layers) {
    for (AlignedVector<float>& h : layer.h) {
      std::fill(h.begin(), h.end(), 0.0F);
      for (const Block& block : s.blocks) {
        std::fill_n(h.data() + block.first * (hidden + 1) + hidden * block.width, block.width,
                    1.0F);
      }
    }
    std::fill(layer.c.begin(), layer.c.end(), 0.0F);
  }
}

int Decoder::rows() const { return static_cast<int>(state_->rows); }

float* Decoder::input_row(int row) {
  return &state_->inputs[static_cast<size_t>(row) * state_->input_stride];
}

void Decoder::set_category(int row, int feature, int index) {
  const std::vector<EmbeddingShape>& shapes = state_->network.shape().embeddings;
  HR_CHECK(index >= 0 && index < shapes.at(static_cast<size_t>(feature)).cardinality,
           fmt::format("category {} of embedding {} is out of range", index, feature));
  state_->categories[static_cast<size_t>(row) * shapes.size() + static_cast<size_t>(feature)] =
      index;
  state_->embeddings_new = true;
}

void Decoder::step() {
  const FlushDenormals flush;
  State& s = *state_;
  if (s.embeddings_new && !s.start.empty()) {
    s.start_embeddings();
  }
  for (const Block& block : s.blocks) {
    s.step_block(block);
  }
  s.current = 1 - s.current;
}

std::span<const float> Decoder::distributions() const {
  return std::span<const float>(state_->distributions)
      .first(state_->rows * state_->network.heads());
}

void Decoder::repeat(int copies) {
  State& s = *state_;
  HR_CHECK(copies >= 1 && static_cast<size_t>(copies) <= s.rows_max / std::max<size_t>(s.rows, 1),
           "more rows than the decoder was made for");
  const auto times = static_cast<size_t>(copies);
  const size_t hidden = s.network.hidden();
  const std::vector<Block> before = s.blocks;
  const std::vector<int> categories = s.categories;
  const std::vector<float> distributions = s.distributions;
  const size_t current = s.current;
  std::vector<DecoderLayer> old = s.layers;
  reset(static_cast<int>(s.rows * times));
  for (size_t row = 0; row < s.rows; ++row) {
    const size_t from = row / times;
    for (size_t l = 0; l < s.layers.size(); ++l) {
      for (size_t u = 0; u < hidden; ++u) {
        State::lane(&s.layers[l].h[current], hidden + 1, s.blocks, u, row) =
            State::lane(&old[l].h[current], hidden + 1, before, u, from);
        State::lane(&s.layers[l].c, hidden, s.blocks, u, row) =
            State::lane(&old[l].c, hidden, before, u, from);
      }
    }
    const size_t features = s.network.shape().embeddings.size();
    std::copy_n(categories.begin() + static_cast<std::ptrdiff_t>(from * features), features,
                s.categories.begin() + static_cast<std::ptrdiff_t>(row * features));
    std::copy_n(distributions.begin() + static_cast<std::ptrdiff_t>(from * s.network.heads()),
                s.network.heads(),
                s.distributions.begin() + static_cast<std::ptrdiff_t>(row * s.network.heads()));
  }
}

}  // namespace headrace::forecast
