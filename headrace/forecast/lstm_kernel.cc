// SPDX-License-Identifier: Apache-2.0
// LSTM kernels: register tiles over packed weights. Layouts and meaning: kernels.h.
#include "headrace/forecast/kernel_targets.h"
#include "headrace/forecast/kernels.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/forecast/lstm_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "headrace/forecast/kernel_math-inl.h"
// clang-format on

#include <algorithm>
#include <array>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace headrace::forecast {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr size_t kLanes = HWY_LANES(float);
// AVX-512 has 32 registers: 3 units (12 gate rows) by 2 vectors leave 8 for operands. With 16
// registers 1 unit by 2 vectors are 8 sums, just what two FMA ports with 4 cycles need.
constexpr size_t kUnitsMax = kLanes >= 16 ? 3 : 1;
constexpr size_t kRowsMax = kLanes >= 16 ? 12 : 6;
constexpr size_t kColumns = 2 * kLanes;
/// Units whose gates fill whole squares of vectors.
constexpr size_t kUnitsPerPass = kLanes >= 4 ? kLanes / 4 : 1;

/// Lines fetched while a product runs: one per k, `step` bytes apart. Nothing when kPrefetch is
/// not.
template <bool kPrefetch>
struct Fetch {
  const char* at = nullptr;
  size_t step = 0;
  HWY_INLINE void next() {
    if constexpr (kPrefetch) {
      __builtin_prefetch(at, 0, 2);
      at += step;
    }
  }
};

/// sums[r][v] += weight(r, k) * x[k * x_step + v * kLanes ...] for all k < depth, where weight(r,
/// k) is weights[r * kRowStep + k * k_step].
template <size_t kRows, size_t kVectors, size_t kRowStep, bool kPrefetch>
HWY_INLINE void product(const float* HWY_RESTRICT weights, size_t k_step,
                        const float* HWY_RESTRICT x, size_t x_step, size_t depth,
                        Fetch<kPrefetch> fetch, V (&sums)[kRows][kVectors]) {
  const D d;
  for (size_t k = 0; k < depth; ++k) {
    fetch.next();
    V operand[kVectors];
#pragma GCC unroll 2
    for (size_t v = 0; v < kVectors; ++v) {
      operand[v] = hn::Load(d, x + v * kLanes);
    }
#pragma GCC unroll 12
    for (size_t r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, weights[r * kRowStep]);
#pragma GCC unroll 2
      for (size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(weight, operand[v], sums[r][v]);
      }
    }
    weights += k_step;
    x += x_step;
  }
}

template <size_t kRows, size_t kVectors>
HWY_INLINE void load_sums(const float* HWY_RESTRICT from, size_t step, V (&sums)[kRows][kVectors]) {
  const D d;
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = from == nullptr ? hn::Zero(d) : hn::Load(d, from + r * step + v * kLanes);
    }
  }
}

template <size_t kRows, size_t kVectors>
HWY_INLINE void store_sums(const V (&sums)[kRows][kVectors], size_t step, float* HWY_RESTRICT to) {
  const D d;
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, to + r * step + v * kLanes);
    }
  }
}

// ---------------------------------------------------------------------------------- dropout

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// Counters of a block's rows, spread over 32 bits by the golden ratio.
struct Counters {
  static constexpr uint32_t kGolden = 0x9e3779b9U;
  alignas(64) uint32_t of_row[kWidthMax] = {};
  constexpr Counters() {
    for (uint32_t row = 0; row < kWidthMax; ++row) {
      of_row[row] = row * kGolden;
    }
  }
};

/// A bit is a function of its row's counter and two keys of the unit: an avalanche over 32 bits
/// (two multiplications), compared with the threshold.
void dropout(const DropoutArgs& a) {
  static constexpr Counters kCounters;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  uint8_t* keep = a.keep;
  for (size_t unit = 0; unit < a.hidden; ++unit) {
    const uint64_t key = mix(a.key + unit);
    const auto low = hn::Set(du, static_cast<uint32_t>(key) + a.first_row * Counters::kGolden);
    const auto high = hn::Set(du, static_cast<uint32_t>(key >> 32U));
    for (size_t lane = 0; lane < a.width; lane += kLanes) {
      auto bits = hn::Load(du, kCounters.of_row + lane) + low;
      bits = (bits ^ hn::ShiftRight<16>(bits)) * hn::Set(du, 0x7feb352dU);
      bits = bits ^ high;
      bits = (bits ^ hn::ShiftRight<15>(bits)) * hn::Set(du, 0x846ca68bU);
      bits = bits ^ hn::ShiftRight<16>(bits);
      uint8_t mask[8];
      hn::StoreMaskBits(di, hn::BitCast(di, bits) > hn::Set(di, a.threshold), mask);
      if constexpr (kLanes >= 8) {
        keep = std::copy_n(mask, kLanes / 8, keep);
      } else {
        const size_t place = lane % 8;
        *keep = static_cast<uint8_t>(place == 0 ? mask[0] : *keep | mask[0] << place);
        keep += place + kLanes == 8 ? 1 : 0;
      }
    }
  }
}

/// `value` times 0 or the factor, for one vector of rows of one unit.
HWY_INLINE V drop(const Dropout& dropout, size_t unit, size_t lane, size_t width, V value) {
  const D d;
  const uint8_t* keep = dropout.keep + (unit * width + lane) / 8;
  const V scaled = value * hn::Set(d, dropout.factor);
  if constexpr (kLanes >= 8) {
    return hn::IfThenElseZero(hn::LoadMaskBits(d, keep), scaled);
  } else {
    const uint8_t bits[8] = {static_cast<uint8_t>(*keep >> lane % 8)};
    return hn::IfThenElseZero(hn::LoadMaskBits(d, bits), scaled);
  }
}

// ---------------------------------------------------------------------------------- forward

/// Cell and output of one unit for one vector of rows, from its gates.
template <bool kSave>
HWY_INLINE void cell(const ForwardArgs& a, size_t unit, size_t lane, V i, V f, V g, V o) {
  const D d;
  const V before = hn::Load(d, a.c_before + unit * a.c_stride + lane);
  const V c = hn::MulAdd(f, before, i * g);
  hn::Store(c, d, a.c_after + unit * a.c_stride + lane);
  const V tanh_c = tanh_of(d, c);
  const V h = o * tanh_c;
  hn::Store(h, d, a.h + unit * a.width + lane);
  if constexpr (kSave) {
    hn::Store(tanh_c, d, a.saved + (unit * kSaved + 5) * a.width + lane);
  }
  if (a.above != nullptr) {
    const V up = a.dropout.keep == nullptr ? h : drop(a.dropout, unit, lane, a.width, h);
    hn::Store(up, d, a.above + unit * a.width + lane);
  }
}

/// One tile for kVectors vectors of rows. The loop over the rows stays outside: inside it, GCC
/// would keep tanh's constants in registers across the sums and spill those.
template <size_t kUnits, size_t kVectors, bool kSave>
HWY_NOINLINE void forward_tile(const ForwardArgs& a, const float* weights, size_t unit,
                               size_t lane) {
  V sums[4 * kUnits][kVectors];
  load_sums(a.start == nullptr ? nullptr : a.start + unit * 4 * a.width + lane, a.width, sums);
  // The saved rows of this tile are written at its end: half a line each k covers them.
  Fetch<kSave> fetch;
  if constexpr (kSave) {
    fetch = {reinterpret_cast<const char*>(a.saved + unit * kSaved * a.width), 32};
  }
  product<4 * kUnits, kVectors, 1>(weights, 4 * kUnits, a.x + lane, a.width, a.depth, fetch, sums);
  // All gates before all cells: each is a long chain of dependent operations, and so many chains
  // at a time keep the core busy.
  const D d;
  const V half = hn::Set(d, 0.5F);
#pragma GCC unroll 12
  for (size_t r = 0; r < 4 * kUnits; ++r) {
#pragma GCC unroll 2
    for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = tanh_of(d, sums[r][v]);
      if (r % 4 != 2) {
        sums[r][v] = hn::MulAdd(half, sums[r][v], half);
      }
      if constexpr (kSave) {
        hn::Store(sums[r][v], d,
                  a.saved + ((unit + r / 4) * kSaved + r % 4) * a.width + lane + v * kLanes);
      }
    }
  }
#pragma GCC unroll 3
  for (size_t u = 0; u < kUnits; ++u) {
#pragma GCC unroll 2
    for (size_t v = 0; v < kVectors; ++v) {
      cell<kSave>(a, unit + u, lane + v * kLanes, sums[4 * u][v], sums[4 * u + 1][v],
                  sums[4 * u + 2][v], sums[4 * u + 3][v]);
    }
  }
}

using ForwardTile = void (*)(const ForwardArgs&, const float*, size_t, size_t);

template <size_t kVectors, bool kSave, size_t... kSizes>
void forward_tiles(const ForwardArgs& a, std::index_sequence<kSizes...> /*sizes*/) {
  static constexpr std::array<ForwardTile, sizeof...(kSizes)> kTile = {
      &forward_tile<kSizes + 1, kVectors, kSave>...};
  const Tiling tiling(a.hidden, kUnitsMax);
  const float* weights = a.weights;
  size_t unit = 0;
  for (size_t tile = 0; tile < tiling.tiles; ++tile) {
    const size_t units = tiling.size(tile);
    for (size_t lane = 0; lane < a.width; lane += kVectors * kLanes) {
      kTile[units - 1](a, weights, unit, lane);
    }
    weights += a.depth * 4 * units;
    unit += units;
  }
}

template <size_t kVectors>
void forward_width(const ForwardArgs& a) {
  if (a.saved != nullptr) {
    forward_tiles<kVectors, true>(a, std::make_index_sequence<kUnitsMax>());
  } else {
    forward_tiles<kVectors, false>(a, std::make_index_sequence<kUnitsMax>());
  }
}

void forward(const ForwardArgs& a) {
  a.width % kColumns == 0 ? forward_width<2>(a) : forward_width<1>(a);
}

// --------------------------------------------------------------------------------- products

template <size_t kRows, size_t kVectors, bool kPrefetch>
void multiply_tile(const MultiplyArgs& a, const float* weights, float* out,
                   Fetch<kPrefetch> fetch) {
  for (size_t lane = 0; lane < a.width; lane += kVectors * kLanes) {
    V sums[kRows][kVectors];
    load_sums(nullptr, 0, sums);
    product<kRows, kVectors, 1>(weights, kRows, a.x + lane, a.width, a.depth, fetch, sums);
    store_sums(sums, a.width, out + lane);
  }
}

/// Spreads the memory to be fetched over the tiles, one line per k.
class Fetches {
 public:
  explicit Fetches(const MultiplyArgs& a) : ahead_(a.ahead), depth_(a.depth) {}
  /// The part of the next tile; at null when all is fetched.
  Fetch<true> next() {
    while (ahead_ != end_ && done_ >= ahead_->bytes) {
      ++ahead_;
      done_ = 0;
    }
    if (ahead_ == end_) {
      return {};
    }
    const char* at = static_cast<const char*>(ahead_->begin) + done_;
    done_ += depth_ * kLine;
    return {at, kLine};
  }

 private:
  static constexpr size_t kLine = 64;
  const Ahead* ahead_;
  const Ahead* end_ = ahead_ + 2;
  size_t depth_;
  size_t done_ = 0;
};

template <size_t kVectors, size_t... kSizes>
void multiply_tiles(const MultiplyArgs& a, std::index_sequence<kSizes...> /*sizes*/) {
  using Plain = void (*)(const MultiplyArgs&, const float*, float*, Fetch<false>);
  using Fetching = void (*)(const MultiplyArgs&, const float*, float*, Fetch<true>);
  static constexpr std::array<Plain, sizeof...(kSizes)> kPlain = {
      &multiply_tile<kSizes + 1, kVectors, false>...};
  static constexpr std::array<Fetching, sizeof...(kSizes)> kFetching = {
      &multiply_tile<kSizes + 1, kVectors, true>...};
  const Tiling tiling(a.rows, kRowsMax);
  Fetches fetches(a);
  const float* weights = a.weights;
  float* out = a.out;
  for (size_t tile = 0; tile < tiling.tiles; ++tile) {
    const size_t rows = tiling.size(tile);
    const Fetch<true> fetch = fetches.next();
    if (fetch.at != nullptr) {
      kFetching[rows - 1](a, weights, out, fetch);
    } else {
      kPlain[rows - 1](a, weights, out, {});
    }
    weights += a.depth * rows;
    out += rows * a.width;
  }
}

void multiply(const MultiplyArgs& a) {
  a.width % kColumns == 0 ? multiply_tiles<2>(a, std::make_index_sequence<kRowsMax>())
                          : multiply_tiles<1>(a, std::make_index_sequence<kRowsMax>());
}

template <size_t kRows>
void weight_gradient_tile(const WeightGradientArgs& a, const float* x, const float* d_rows,
                          float* out, size_t width) {
  // `width` is a.width, passed to let the row step of x be a constant.
  V sums[kRows][2];
  load_sums(out, kColumns, sums);
  for (size_t step = 0; step < a.steps; ++step) {
    if (width == kWidthMax) {
      product<kRows, 2, kWidthMax>(x, 1, d_rows, kColumns, kWidthMax, Fetch<false>{}, sums);
    } else {
      product<kRows, 2, kWidthMax / 2>(x, 1, d_rows, kColumns, kWidthMax / 2, Fetch<false>{}, sums);
    }
    x += a.x_stride;
    d_rows += width * kColumns;
  }
  store_sums(sums, kColumns, out);
}

template <size_t... kSizes>
void weight_gradient_tiles(const WeightGradientArgs& a, std::index_sequence<kSizes...> /*sizes*/) {
  using Tile = void (*)(const WeightGradientArgs&, const float*, const float*, float*, size_t);
  static constexpr std::array<Tile, sizeof...(kSizes)> kTile = {
      &weight_gradient_tile<kSizes + 1>...};
  const Tiling tiling(a.depth, kRowsMax);
  float* out = a.out;
  for (size_t group = 0; group < a.groups; ++group) {
    const float* x = a.x;
    for (size_t tile = 0; tile < tiling.tiles; ++tile) {
      const size_t rows = tiling.size(tile);
      kTile[rows - 1](a, x, a.d_rows + group * a.group_stride, out, a.width);
      x += rows * a.width;
      out += rows * kColumns;
    }
  }
}

void weight_gradient(const WeightGradientArgs& a) {
  weight_gradient_tiles(a, std::make_index_sequence<kRowsMax>());
}

// --------------------------------------------------------------------------------- backward

/// Gate gradients of one unit for one vector of rows; `to` gets those by i f g o.
template <size_t kHeads>
HWY_INLINE void gate_gradient_cell(const GateGradientArgs& a, size_t unit, size_t lane, V* to) {
  const D d;
  const V one = hn::Set(d, 1.0F);
  const float* saved = a.saved + unit * kSaved * a.width + lane;
  const V i = hn::Load(d, saved);
  const V f = hn::Load(d, saved + a.width);
  const V g = hn::Load(d, saved + 2 * a.width);
  const V o = hn::Load(d, saved + 3 * a.width);
  const V tanh_c = hn::Load(d, saved + 5 * a.width);
  const V before = hn::Load(d, a.c_before + unit * kSaved * a.width + lane);
  V dh = hn::Load(d, a.d_h + unit * a.width + lane);
  if constexpr (kHeads == 0) {
    const V above = hn::Load(d, a.d_above + unit * a.width + lane);
    dh = dh + (a.dropout.keep == nullptr ? above : drop(a.dropout, unit, lane, a.width, above));
  } else {
#pragma GCC unroll 3
    for (size_t p = 0; p < kHeads; ++p) {
      dh = hn::MulAdd(hn::Set(d, a.heads[unit * kHeads + p]),
                      hn::Load(d, a.d_raw + p * a.width + lane), dh);
    }
  }
  float* d_c = a.d_c + unit * a.width + lane;
  const V dho = dh * o;
  const V dc = hn::MulAdd(dho, hn::NegMulAdd(tanh_c, tanh_c, one), hn::Load(d, d_c));
  const V dci = dc * i;
  hn::Store(dc * f, d, d_c);
  to[0] = dci * g * (one - i);
  to[1] = dc * f * before * (one - f);
  to[2] = dci * hn::NegMulAdd(g, g, one);
  to[3] = dho * tanh_c * (one - o);
}

/// Store the gate gradients of up to kUnitsPerPass units for one vector of rows in both orders.
HWY_INLINE void store_gates(const GateGradientArgs& a, size_t unit, size_t lane, V* gates) {
  const D d;
  const size_t column = unit * 4;
  const size_t count = HWY_MIN(4 * kUnitsPerPass, 4 * (a.hidden - unit));
  float* to = a.d_gates + column * a.width + lane;
  for (size_t j = 0; j < count; ++j) {
    hn::Store(gates[j], d, to + j * a.width);
  }
  if (a.sum != nullptr) {
    float* sum = a.sum + column * a.width + lane;
    for (size_t j = 0; j < count; ++j, sum += a.width) {
      hn::Store(hn::Load(d, sum) + gates[j], d, sum);
    }
  }
  for (size_t j = 0; j < 4 * kUnitsPerPass; j += kLanes) {
    const size_t first = column + j;
    float* rows = a.d_rows + first / kColumns * a.group_stride + lane * kColumns + first % kColumns;
    transpose_square(d, gates + j);
#pragma GCC unroll 16
    for (size_t row = 0; row < kLanes; ++row) {
      hn::Store(gates[j + row], d, rows + row * kColumns);
    }
  }
}

template <size_t kHeads>
void gate_gradient_heads(const GateGradientArgs& a) {
  const D d;
  for (size_t unit = 0; unit < a.hidden; unit += kUnitsPerPass) {
    const size_t units = HWY_MIN(kUnitsPerPass, a.hidden - unit);
    for (size_t lane = 0; lane < a.width; lane += kLanes) {
      V gates[4 * kUnitsPerPass];
#pragma GCC unroll 4
      for (size_t u = 0; u < kUnitsPerPass; ++u) {
        if (u < units) {
          gate_gradient_cell<kHeads>(a, unit + u, lane, gates + 4 * u);
        } else {
#pragma GCC unroll 4
          for (size_t gate = 0; gate < 4; ++gate) {
            gates[4 * u + gate] = hn::Zero(d);
          }
        }
      }
      store_gates(a, unit, lane, gates);
    }
  }
}

void gate_gradient(const GateGradientArgs& a) {
  switch (a.heads == nullptr ? 0 : a.head_count) {
    case 2: return gate_gradient_heads<2>(a);
    case 3: return gate_gradient_heads<3>(a);
    default: return gate_gradient_heads<0>(a);
  }
}

template <size_t kHeads>
void head_gradient_heads(const HeadGradientArgs& a) {
  const D d;
  for (size_t lane = 0; lane < a.width; lane += kLanes) {
    for (size_t k = 0; k < a.depth; ++k) {
      V sums[kHeads];
      float* out = a.out + k * kHeads * a.width + lane;
#pragma GCC unroll 3
      for (size_t p = 0; p < kHeads; ++p) {
        sums[p] = hn::Load(d, out + p * a.width);
      }
      for (size_t step = 0; step < a.steps; ++step) {
        const V h = hn::Load(d, a.h + step * a.h_stride + k * a.width + lane);
        const float* d_raw = a.d_raw + step * kHeads * a.width + lane;
#pragma GCC unroll 3
        for (size_t p = 0; p < kHeads; ++p) {
          sums[p] = hn::MulAdd(h, hn::Load(d, d_raw + p * a.width), sums[p]);
        }
      }
#pragma GCC unroll 3
      for (size_t p = 0; p < kHeads; ++p) {
        hn::Store(sums[p], d, out + p * a.width);
      }
    }
  }
}

void head_gradient(const HeadGradientArgs& a) {
  a.count == 3 ? head_gradient_heads<3>(a) : head_gradient_heads<2>(a);
}

void transpose(const float* in, size_t stride, size_t columns, size_t width, float* out) {
  const D d;
  for (size_t column = 0; column < columns; column += kLanes) {
    const size_t count = HWY_MIN(kLanes, columns - column);
    for (size_t row = 0; row < width; row += kLanes) {
      V square[kLanes];
#pragma GCC unroll 16
      for (size_t i = 0; i < kLanes; ++i) {
        square[i] = hn::LoadU(d, in + (row + i) * stride + column);
      }
      transpose_square(d, square);
      for (size_t i = 0; i < count; ++i) {
        hn::Store(square[i], d, out + (column + i) * width + row);
      }
    }
  }
}

}  // namespace

LstmKernels make_lstm_kernels() {
  return {kUnitsMax, kRowsMax,  kColumns,       &transpose,       &dropout,
          &forward,  &multiply, &gate_gradient, &weight_gradient, &head_gradient};
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::forecast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::forecast {

HWY_EXPORT(make_lstm_kernels);

LstmKernels lstm_kernels(int64_t target) {
  return HWY_DISPATCH_TABLE(make_lstm_kernels)[target_index(target)]();
}

}  // namespace headrace::forecast
#endif
