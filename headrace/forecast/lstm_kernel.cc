// SPDX-License-Identifier: Apache-2.0
// LSTM kernels: register tiles over packed weights. Layouts and meaning: kernels.h.
#include "headrace/base/kernel_targets.h"
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

constexpr size_t kLine = 64;

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

/// Spreads the memory to be fetched over a product's tiles, one line per k.
class Fetches {
 public:
  Fetches(const Ahead* ahead, size_t count) : ahead_(ahead), end_(ahead + count) {}
  /// The part of the next tile, which has room for `lines`; at null when all is fetched.
  Fetch<true> next(size_t lines) {
    while (ahead_ != end_ && done_ >= ahead_->bytes) {
      ++ahead_;
      done_ = 0;
    }
    if (ahead_ == end_) {
      return {};
    }
    const char* at = static_cast<const char*>(ahead_->begin) + done_;
    done_ += lines * kLine;
    return {at, kLine};
  }

 private:
  const Ahead* ahead_;
  const Ahead* end_;
  size_t done_ = 0;
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
    const uint64_t key = mix(a.key + (unit + 1) * 0x9e3779b97f4a7c15U);
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
template <size_t kWidth>
HWY_INLINE V dropped(const Dropout& dropout, size_t unit, size_t lane, V value) {
  const D d;
  const uint8_t* keep = dropout.keep + (unit * kWidth + lane) / 8;
  const V scaled = value * hn::Set(d, dropout.factor);
  if constexpr (kLanes >= 8) {
    return hn::IfThenElseZero(hn::LoadMaskBits(d, keep), scaled);
  } else {
    const uint8_t bits[8] = {static_cast<uint8_t>(*keep >> lane % 8)};
    return hn::IfThenElseZero(hn::LoadMaskBits(d, bits), scaled);
  }
}

template <size_t kWidth>
void drop_width(const Dropout& dropout, const float* in, size_t hidden, float* out) {
  const D d;
  for (size_t unit = 0; unit < hidden; ++unit) {
    for (size_t lane = 0; lane < kWidth; lane += kLanes, in += kLanes, out += kLanes) {
      hn::Store(dropped<kWidth>(dropout, unit, lane, hn::Load(d, in)), d, out);
    }
  }
}

void drop(const Dropout& dropout, const float* in, size_t hidden, size_t width, float* out) {
  width == kWidthMax ? drop_width<kWidthMax>(dropout, in, hidden, out)
                     : drop_width<kWidthMax / 2>(dropout, in, hidden, out);
}

// ---------------------------------------------------------------------------------- forward

/// Vectors of rows in one tile.
template <size_t kWidth>
inline constexpr size_t kTileVectors = kWidth / kLanes < 2 ? 1 : 2;

/// Cell and output of one unit for one vector of rows, from its gates.
template <size_t kWidth>
HWY_INLINE void cell(const ForwardArgs& a, size_t unit, size_t lane, V i, V f, V g, V o) {
  const D d;
  const V before = hn::Load(d, a.c_before + unit * a.c_stride + lane);
  const V c = hn::MulAdd(f, before, i * g);
  hn::Store(c, d, a.c_after + unit * a.c_stride + lane);
  const V h = o * tanh_of(d, c);
  hn::Store(h, d, a.h + unit * kWidth + lane);
  if (a.dropout.keep != nullptr) {
    hn::Store(dropped<kWidth>(a.dropout, unit, lane, h), d, a.dropped + unit * kWidth + lane);
  }
}

/// The sums of a tile over x, then over h. With kFetch what the tile will write is fetched
/// meanwhile, or else the stores would wait for memory that left the caches since the last batch;
/// then `fetch`.
template <size_t kWidth, bool kFetch, size_t kRows, size_t kVectors>
HWY_INLINE void tile_sums(const ForwardArgs& a, const float* weights, size_t unit, size_t lane,
                          Fetch<kFetch> fetch, V (&sums)[kRows][kVectors]) {
  Fetch<kFetch> own;
  if constexpr (kFetch) {
    own = {reinterpret_cast<const char*>(a.saved + unit * kSaved * kWidth), kLine};
    for (size_t at = 0; at < kRows / 4 * kWidth; at += kLine / sizeof(float)) {
      __builtin_prefetch(a.h + unit * kWidth + at, 1, 3);
    }
  }
  product<kRows, kVectors, 1>(weights, kRows, a.x + lane, kWidth, a.inputs, own, sums);
  product<kRows, kVectors, 1>(weights + a.inputs * kRows, kRows, a.h_before + lane, kWidth,
                              a.hidden + 1, fetch, sums);
}

/// One tile for the vectors of rows at `lane`. The loop over the rows stays outside: inside it, GCC
/// would keep tanh's constants in registers across the sums and spill those.
template <size_t kUnits, size_t kWidth, bool kSave>
HWY_NOINLINE void forward_tile(const ForwardArgs& a, const float* weights, size_t unit, size_t lane,
                               Fetch<kSave> fetch) {
  constexpr size_t kVectors = kTileVectors<kWidth>;
  V sums[4 * kUnits][kVectors];
  load_sums(a.start == nullptr ? nullptr : a.start + unit * 4 * kWidth + lane, kWidth, sums);
  tile_sums<kWidth, kSave>(a, weights, unit, lane, fetch, sums);
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
        float* saved = a.saved + ((unit + r / 4) * kSaved + r % 4) * kWidth + lane;
        hn::Store(sums[r][v], d, saved + v * kLanes);
      }
    }
  }
#pragma GCC unroll 3
  for (size_t u = 0; u < kUnits; ++u) {
#pragma GCC unroll 2
    for (size_t v = 0; v < kVectors; ++v) {
      cell<kWidth>(a, unit + u, lane + v * kLanes, sums[4 * u][v], sums[4 * u + 1][v],
                   sums[4 * u + 2][v], sums[4 * u + 3][v]);
    }
  }
}

template <size_t kWidth, bool kSave, size_t... kSizes>
void forward_tiles(const ForwardArgs& a, std::index_sequence<kSizes...> /*sizes*/) {
  using Tile = void (*)(const ForwardArgs&, const float*, size_t, size_t, Fetch<kSave>);
  static constexpr std::array<Tile, sizeof...(kSizes)> kTile = {
      &forward_tile<kSizes + 1, kWidth, kSave>...};
  const Tiling tiling(a.hidden, kUnitsMax);
  Fetches fetches(&a.ahead, 1);
  const float* weights = a.weights;
  size_t unit = 0;
  for (size_t tile = 0; tile < tiling.tiles; ++tile) {
    const size_t units = tiling.size(tile);
    Fetch<kSave> fetch;
    if constexpr (kSave) {
      fetch = fetches.next(a.hidden + 1);
    }
    for (size_t lane = 0; lane < kWidth; lane += kTileVectors<kWidth> * kLanes) {
      kTile[units - 1](a, weights, unit, lane, fetch);
    }
    weights += (a.inputs + a.hidden + 1) * 4 * units;
    unit += units;
  }
}

template <size_t kWidth>
void forward_width(const ForwardArgs& a) {
  if (a.saved != nullptr) {
    forward_tiles<kWidth, true>(a, std::make_index_sequence<kUnitsMax>());
  } else {
    forward_tiles<kWidth, false>(a, std::make_index_sequence<kUnitsMax>());
  }
}

void forward(const ForwardArgs& a) {
  a.width == kWidthMax ? forward_width<kWidthMax>(a) : forward_width<kWidthMax / 2>(a);
}

// --------------------------------------------------------------------------------- products

template <size_t kRows, size_t kWidth, bool kPrefetch>
void multiply_tile(const MultiplyArgs& a, const float* weights, float* out,
                   Fetch<kPrefetch> fetch) {
  constexpr size_t kVectors = kTileVectors<kWidth>;
  for (size_t lane = 0; lane < kWidth; lane += kVectors * kLanes) {
    V sums[kRows][kVectors];
    load_sums(nullptr, 0, sums);
    product<kRows, kVectors, 1>(weights, kRows, a.x + lane, kWidth, a.depth, fetch, sums);
    store_sums(sums, kWidth, out + lane);
  }
}

template <size_t kWidth, size_t... kSizes>
void multiply_tiles(const MultiplyArgs& a, std::index_sequence<kSizes...> /*sizes*/) {
  using Plain = void (*)(const MultiplyArgs&, const float*, float*, Fetch<false>);
  using Fetching = void (*)(const MultiplyArgs&, const float*, float*, Fetch<true>);
  static constexpr std::array<Plain, sizeof...(kSizes)> kPlain = {
      &multiply_tile<kSizes + 1, kWidth, false>...};
  static constexpr std::array<Fetching, sizeof...(kSizes)> kFetching = {
      &multiply_tile<kSizes + 1, kWidth, true>...};
  const Tiling tiling(a.rows, kRowsMax);
  Fetches fetches(a.ahead, std::size(a.ahead));
  const float* weights = a.weights;
  float* out = a.out;
  for (size_t tile = 0; tile < tiling.tiles; ++tile) {
    const size_t rows = tiling.size(tile);
    const Fetch<true> fetch = fetches.next(a.depth);
    if (fetch.at != nullptr) {
      kFetching[rows - 1](a, weights, out, fetch);
    } else {
      kPlain[rows - 1](a, weights, out, {});
    }
    weights += a.depth * rows;
    out += rows * kWidth;
  }
}

void multiply(const MultiplyArgs& a) {
  a.width == kWidthMax ? multiply_tiles<kWidthMax>(a, std::make_index_sequence<kRowsMax>())
                       : multiply_tiles<kWidthMax / 2>(a, std::make_index_sequence<kRowsMax>());
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
  const Tiling tiling(a.rows, kRowsMax);
  for (size_t group = 0; group < a.groups; ++group) {
    const float* x = a.x;
    float* out = a.out + group * a.out_stride;
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

/// Gate gradients of one unit for one vector of rows; `to` gets those by i f g o. Fetches from L2
/// into L1 what this will read of the unit `fetched`.
template <size_t kHeads, size_t kWidth>
HWY_INLINE void gate_gradient_cell(const GateGradientArgs& a, size_t unit, size_t fetched,
                                   size_t lane, V* to) {
  const D d;
  const V one = hn::Set(d, 1.0F);
  const size_t at = unit * kWidth + lane;
  const float* saved = a.saved + unit * kSaved * kWidth + lane;
  const float* c_before = a.c_before + unit * kSaved * kWidth + lane;
#pragma GCC unroll 4
  for (size_t row = 0; row < 4; ++row) {
    __builtin_prefetch(saved + ((fetched - unit) * kSaved + row) * kWidth, 0, 3);
  }
  __builtin_prefetch(c_before + (fetched - unit) * kSaved * kWidth, 0, 3);
  const V i = hn::Load(d, saved);
  const V f = hn::Load(d, saved + kWidth);
  const V g = hn::Load(d, saved + 2 * kWidth);
  const V o = hn::Load(d, saved + 3 * kWidth);
  // h = o tanh(c), and where o is 0 it is no matter what tanh(c) was.
  const V tanh_c = hn::Load(d, a.h + at) / hn::Max(hn::Set(d, 1e-30F), o);
  V dh = hn::Load(d, a.d_h + at);
  if constexpr (kHeads == 0) {
    const V above = hn::Load(d, a.d_above + at);
    dh = dh + (a.dropout.keep == nullptr ? above : dropped<kWidth>(a.dropout, unit, lane, above));
  } else {
#pragma GCC unroll 3
    for (size_t p = 0; p < kHeads; ++p) {
      dh = hn::MulAdd(hn::Set(d, a.heads[unit * kHeads + p]),
                      hn::Load(d, a.d_raw + p * kWidth + lane), dh);
    }
  }
  const V dho = dh * o;
  const V dc = hn::MulAdd(dho, hn::NegMulAdd(tanh_c, tanh_c, one), hn::Load(d, a.d_c + at));
  const V dci = dc * i;
  const V dcf = dc * f;
  hn::Store(dcf, d, a.d_c + at);
  to[0] = dci * g * (one - i);
  to[1] = dcf * hn::Load(d, c_before) * (one - f);
  to[2] = dci * hn::NegMulAdd(g, g, one);
  to[3] = dho * tanh_c * (one - o);
  float* d_gates = a.d_gates + unit * 4 * kWidth + lane;
  float* sum = a.sum + unit * 4 * kWidth + lane;
#pragma GCC unroll 4
  for (size_t gate = 0; gate < 4; ++gate) {
    hn::Store(to[gate], d, d_gates + gate * kWidth);
    if (a.sum != nullptr) {
      hn::Store(hn::Load(d, sum + gate * kWidth) + to[gate], d, sum + gate * kWidth);
    }
  }
}

/// The gates' gradients of whole squares by rows. Columns past the last unit get what they get:
/// sums over them are never read.
HWY_INLINE void store_by_rows(const GateGradientArgs& a, size_t unit, size_t lane, V* gates) {
  const D d;
  for (size_t j = 0; j < 4 * kUnitsPerPass; j += kLanes) {
    const size_t column = unit * 4 + j;
    float* rows =
        a.d_rows + column / kColumns * a.group_stride + lane * kColumns + column % kColumns;
    transpose_square(d, gates + j);
#pragma GCC unroll 16
    for (size_t row = 0; row < kLanes; ++row) {
      hn::Store(gates[j + row], d, rows + row * kColumns);
    }
  }
}

template <size_t kHeads, size_t kWidth>
void gate_gradient_width(const GateGradientArgs& args) {
  const GateGradientArgs a = args;  // a copy, which no store can change
  size_t unit = 0;
  V gates[4 * kUnitsPerPass];
  for (; unit + kUnitsPerPass <= a.hidden; unit += kUnitsPerPass) {
    for (size_t lane = 0; lane < kWidth; lane += kLanes) {
#pragma GCC unroll 4
      for (size_t u = 0; u < kUnitsPerPass; ++u) {
        const size_t fetched = HWY_MIN(unit + u + kUnitsPerPass, a.hidden - 1);
        gate_gradient_cell<kHeads, kWidth>(a, unit + u, fetched, lane, gates + 4 * u);
      }
      store_by_rows(a, unit, lane, gates);
    }
  }
  for (size_t lane = 0; lane < kWidth && unit < a.hidden; lane += kLanes) {
    for (V& gate : gates) {
      gate = hn::Zero(D());
    }
    for (size_t u = unit; u < a.hidden; ++u) {
      gate_gradient_cell<kHeads, kWidth>(a, u, u, lane, gates + 4 * (u - unit));
    }
    store_by_rows(a, unit, lane, gates);
  }
}

template <size_t kWidth>
void gate_gradient_heads(const GateGradientArgs& a) {
  switch (a.heads == nullptr ? 0 : a.head_count) {
    case 2: return gate_gradient_width<2, kWidth>(a);
    case 3: return gate_gradient_width<3, kWidth>(a);
    default: return gate_gradient_width<0, kWidth>(a);
  }
}

void gate_gradient(const GateGradientArgs& a) {
  a.width == kWidthMax ? gate_gradient_heads<kWidthMax>(a) : gate_gradient_heads<kWidthMax / 2>(a);
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
  return {kUnitsMax, kRowsMax,  kColumns,       &transpose,       &dropout,      &drop,
          &forward,  &multiply, &gate_gradient, &weight_gradient, &head_gradient};
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::forecast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::forecast {

HWY_EXPORT(make_lstm_kernels);

LstmKernels lstm_kernels(int64_t target) {
  return HWY_DISPATCH_TABLE(make_lstm_kernels)[base::target_index(target)]();
}

}  // namespace headrace::forecast
#endif
