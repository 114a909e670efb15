// SPDX-License-Identifier: Apache-2.0
// What the parts of the network share among themselves; not for other rooms.
#pragma once

#include <cstddef>
#include <vector>

#include "headrace/forecast/kernels.h"
#include "headrace/forecast/network.h"

namespace headrace::forecast {

/// `invalid_argument` names the field that is out of range.
Result<void> check_shape(const NetworkShape& shape);

/// Memory on cache-line boundaries; from 1 MiB up on huge pages where the system has them.
void* allocate_aligned(size_t bytes);
void free_aligned(void* memory, size_t bytes);

/// Memory on cache-line boundaries, as the kernels' aligned loads need it.
template <typename T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <typename U>
  explicit AlignedAllocator(const AlignedAllocator<U>& /*other*/) {}
  T* allocate(size_t count) { return static_cast<T*>(allocate_aligned(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) { free_aligned(memory, count * sizeof(T)); }
  bool operator==(const AlignedAllocator& /*other*/) const { return true; }
};
template <typename T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

/// Floats a transposition may read past a row.
inline constexpr size_t kTransposeSlack = 16;

/// Rows [first, first + width) of a batch; only `rows` of them exist.
struct Block {
  size_t first = 0;
  size_t rows = 0;
  size_t width = 0;
};
/// Blocks of 32 rows, the last of 16 if that does.
std::vector<Block> make_blocks(size_t rows);
/// Rows that the blocks cover.
size_t padded_rows(size_t rows);

/// A network's parameters in the kernels' order (kernels.h). Embedding columns do not take part in
/// the steps' products: they are constant over a window, so their share is computed once.
class PackedNetwork {
 public:
  struct Layer {
    size_t inputs = 0;  ///< rows of x, without embeddings
    size_t depth = 0;   ///< inputs + hidden + 1: x, h and the ones that carry the bias
    AlignedVector<float> forward;
    AlignedVector<float> backward;  ///< rows: inputs and hidden; for layer 0 hidden alone
  };

  PackedNetwork(const NetworkShape& shape, const Kernels* kernels);
  /// With `gradients` the backward products' weights too.
  void pack(std::span<const float> parameters, bool gradients);
  /// Where the tables' rows for `categories` (one per embedding) go: out[column * width].
  void embed(const int* categories, size_t width, float* out) const;
  /// start[hidden * 4][width]: the embeddings' share of layer 0's sums.
  void embedding_start(const float* embedded, size_t width, float* start) const;

  const NetworkShape& shape() const { return shape_; }
  const Kernels& kernels() const { return *kernels_; }
  size_t hidden() const { return static_cast<size_t>(shape_.hidden); }
  size_t heads() const { return static_cast<size_t>(parameter_count(shape_.distribution)); }
  size_t embedding_columns() const { return static_cast<size_t>(shape_.embedding_columns()); }
  size_t layers() const { return layers_.size(); }
  const Layer& layer(size_t l) const { return layers_[l]; }
  /// [hidden + 1][heads], the last row the biases.
  const float* head_weights() const { return head_weights_.data(); }
  const float* embedding_backward() const { return embedding_backward_.data(); }
  /// Offsets of a layer's tensors in the flat parameters.
  struct LayerOffsets {
    size_t ih = 0;
    size_t hh = 0;
    size_t bias_ih = 0;
    size_t bias_hh = 0;
  };
  const LayerOffsets& offsets(size_t l) const { return layer_offsets_[l]; }
  size_t embedding_offset(size_t e) const { return embedding_offsets_[e]; }
  /// The bias follows the weights.
  size_t head_offset(size_t p) const { return head_offsets_[p]; }
  /// Columns of weight_ih of layer `l`.
  size_t input_columns(size_t l) const {
    return static_cast<size_t>(l == 0 ? shape_.inputs() : shape_.hidden);
  }
  /// Column of weight_ih that feeds row `row` of x.
  size_t input_column(size_t l, size_t row) const {
    const auto lags = static_cast<size_t>(shape_.lags);
    return l == 0 && row >= lags ? row + embedding_columns() : row;
  }

 private:
  void pack_forward(size_t l, const float* parameters);
  void pack_backward(size_t l, const float* parameters);
  void pack_embedding(const float* parameters);

  NetworkShape shape_;
  const Kernels* kernels_;
  std::vector<Layer> layers_;
  std::vector<LayerOffsets> layer_offsets_;
  std::vector<size_t> embedding_offsets_;
  std::vector<size_t> head_offsets_;
  AlignedVector<float> head_weights_;
  std::vector<float> tables_;  ///< the embeddings, as in the parameters
  AlignedVector<float> embedding_forward_;
  AlignedVector<float> embedding_backward_;
};

}  // namespace headrace::forecast
