// SPDX-License-Identifier: Apache-2.0
// One walk over the tree for all types and operations: blocks that stay in the first cache, inner
// values in the type that accumulates.
#include "headrace/base/kernel_targets.h"
#include "headrace/comm/algo/reduce_kernel_internal.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/comm/algo/reduce_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace headrace::comm {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A block of each level of the tree fits the first cache together with the sources' blocks.
constexpr size_t kBlock = 256;

/// The type a contribution is put together in.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Half> {
  using type = float;
};
template <>
struct Accumulator<BHalf> {
  using type = float;
};

// Highway's conversions are exact where the processor has them; elsewhere (and for bf16, which this
// version cuts off) the scalar functions say what the bits are.
constexpr bool kHasHalf = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* from) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return hn::LoadU(d, from);
  } else if constexpr (std::is_same_v<T, BHalf>) {
    const hn::Rebind<uint16_t, D> half;
    const hn::RebindToUnsigned<D> wide;
    const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
  } else if constexpr (kHasHalf) {
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
    for (size_t i = 0; i < hn::Lanes(d); ++i) {
      values[i] = f32_of_f16(from[i].bits);
    }
    return hn::Load(d, values);
  }
}

template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> value, T* to) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    hn::StoreU(value, d, to);
  } else if constexpr (std::is_same_v<T, BHalf>) {
    const hn::Rebind<uint16_t, D> half;
    const hn::RebindToUnsigned<D> wide;
    const auto bits = hn::BitCast(wide, value);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(wide, 1U));
    const auto rounded = hn::ShiftRight<16>(bits + odd + hn::Set(wide, 0x7FFFU));
    const auto nan = hn::Or(high, hn::Set(wide, 0x40U));
    const auto is_nan = hn::RebindMask(wide, hn::IsNaN(value));
    const hn::RebindToSigned<decltype(wide)> wide_signed;
    const auto chosen = hn::IfThenElse(is_nan, nan, rounded);
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(wide_signed, chosen)), half,
               reinterpret_cast<uint16_t*>(to));
  } else if constexpr (kHasHalf) {
    const hn::Rebind<hwy::float16_t, D> half;
    hn::StoreU(hn::DemoteTo(half, value), half, reinterpret_cast<hwy::float16_t*>(to));
  } else {
    HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(value, d, values);
    for (size_t i = 0; i < hn::Lanes(d); ++i) {
      to[i].bits = f16_of_f32(values[i]);
    }
  }
}

/// The least, or the greatest, of two; a NaN on either side is the result, the left one first.
template <Op op, class D>
HWY_INLINE hn::Vec<D> extreme(D, hn::Vec<D> a, hn::Vec<D> b) {
  const auto chosen = op == Op::min ? hn::Min(a, b) : hn::Max(a, b);
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, chosen));
  } else {
    return chosen;
  }
}

template <Op op, class D>
HWY_INLINE hn::Vec<D> combine_vectors(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (op == Op::sum) {
    return hn::Add(a, b);
  } else if constexpr (op == Op::min || op == Op::max) {
    return extreme<op>(d, a, b);
  } else if constexpr (op == Op::product) {
    return hn::Mul(a, b);
  } else if constexpr (op == Op::band) {
    return hn::And(a, b);
  } else if constexpr (op == Op::bor) {
    return hn::Or(a, b);
  } else {
    return hn::Xor(a, b);
  }
}

/// out[i] = left[i] op right[i]; `out` may be either side. One lane at a time at the end, in the
/// same arithmetic.
template <Op op, class Acc, class L, class R>
void combine(const L* left, const R* right, Acc* out, size_t count) {
  if constexpr (op == Op::product && std::is_integral_v<Acc>) {
    for (size_t i = 0; i < count; ++i) {  // in u64, which wraps as each narrower type would
      out[i] = static_cast<Acc>(static_cast<uint64_t>(left[i]) * static_cast<uint64_t>(right[i]));
    }
  } else {
    const hn::ScalableTag<Acc> d;
    const size_t lanes = hn::Lanes(d);
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      store(d, combine_vectors<op>(d, load(d, left + i), load(d, right + i)), out + i);
    }
    const hn::CappedTag<Acc, 1> one;
    for (; i < count; ++i) {
      store(one, combine_vectors<op>(one, load(one, left + i), load(one, right + i)), out + i);
    }
  }
}

/// Write accumulated values as the type of the result, scaled.
template <class Acc, class Out>
void finish(const Acc* values, double scale, Out* out, size_t count) {
  if constexpr (std::is_integral_v<Acc>) {
    for (size_t i = 0; i < count; ++i) {
      out[i] = scale == 1.0 ? static_cast<Out>(values[i]) : scaled_integer<Out>(values[i], scale);
    }
  } else {
    const hn::ScalableTag<Acc> d;
    const size_t lanes = hn::Lanes(d);
    const auto factor = hn::Set(d, static_cast<Acc>(scale));
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      store(d, hn::Mul(hn::LoadU(d, values + i), factor), out + i);
    }
    const hn::CappedTag<Acc, 1> one;
    for (; i < count; ++i) {
      const auto value = hn::LoadU(one, values + i);
      store(one, hn::Mul(value, hn::Set(one, static_cast<Acc>(scale))), out + i);
    }
  }
}

/// The elements of one block, of all sources.
template <Op op, class In>
class Block {
 public:
  using Acc = typename Accumulator<In>::type;
  Block(std::span<const std::byte* const> sources, size_t offset, size_t count)
      : sources_(sources), offset_(offset), count_(count) {}

  /// T over sources [first, first + n), n >= 2, into `out`. Recursion depth log2 n.
  void walk(size_t first, size_t n, Acc* out, Acc (*spare)[kBlock]) const {
    const size_t split = tree_split(n);
    if (split > 1) {
      walk(first, split, out, spare);
    }
    if (n - split > 1) {
      walk(first + split, n - split, *spare, spare + 1);
      if (split > 1) {
        combine<op>(out, *spare, out, count_);
      } else {
        combine<op>(leaf(first), *spare, out, count_);
      }
    } else if (split > 1) {
      combine<op>(out, leaf(first + split), out, count_);
    } else {
      combine<op>(leaf(first), leaf(first + 1), out, count_);
    }
  }

 private:
  const In* leaf(size_t source) const {
    return reinterpret_cast<const In*>(sources_[source]) + offset_;
  }
  std::span<const std::byte* const> sources_;
  size_t offset_;
  size_t count_;
};

template <Op op, class In, class Out>
void reduce_typed(std::span<const std::byte* const> sources, std::byte* out_bytes, double scale,
                  size_t count) {
  using Acc = typename Accumulator<In>::type;
  constexpr bool kDirect = std::is_same_v<Acc, Out>;
  auto* out = reinterpret_cast<Out*>(out_bytes);
  if constexpr (kDirect) {
    if (sources.size() == 2 && scale == 1.0) {
      combine<op>(reinterpret_cast<const In*>(sources[0]), reinterpret_cast<const In*>(sources[1]),
                  out, count);
      return;
    }
  }
  // Sources are read before the block of the result is written, which may be one of them. The
  // first block holds the result, the others one right side of each level.
  HWY_ALIGN Acc blocks[1 + kTreeLevels][kBlock];
  for (size_t offset = 0; offset < count; offset += kBlock) {
    const size_t some = std::min(kBlock, count - offset);
    if (sources.size() == 1) {
      const auto* only = reinterpret_cast<const In*>(sources[0]) + offset;
      if constexpr (std::is_same_v<In, Acc>) {
        std::memcpy(blocks[0], only, some * sizeof(Acc));
      } else {
        widen(only, blocks[0], some);
      }
    } else {
      Block<op, In>(sources, offset, some).walk(0, sources.size(), blocks[0], blocks + 1);
    }
    finish(blocks[0], scale, out + offset, some);
  }
}

template <class In, class Out>
ReduceFunction pick_arithmetic(Op op) {
  switch (op) {
    case Op::min: return &reduce_typed<Op::min, In, Out>;
    case Op::max: return &reduce_typed<Op::max, In, Out>;
    case Op::product: return &reduce_typed<Op::product, In, Out>;
    default: return &reduce_typed<Op::sum, In, Out>;
  }
}

template <class In>
ReduceFunction pick_half(Op op, Dtype out) {
  return out == Dtype::f32 ? pick_arithmetic<In, float>(op) : pick_arithmetic<In, In>(op);
}

ReduceFunction pick_float(Op op, Dtype out) {
  switch (out) {
    case Dtype::f16: return pick_arithmetic<float, Half>(op);
    case Dtype::bf16: return pick_arithmetic<float, BHalf>(op);
    default: return pick_arithmetic<float, float>(op);
  }
}

ReduceFunction pick(Dtype in, Dtype out, Op op) {
  switch (in) {
    case Dtype::u8: return pick_arithmetic<uint8_t, uint8_t>(op);
    case Dtype::i8: return pick_arithmetic<int8_t, int8_t>(op);
    case Dtype::u16: return pick_arithmetic<uint16_t, uint16_t>(op);
    case Dtype::i16: return pick_arithmetic<int16_t, int16_t>(op);
    case Dtype::u32: return pick_arithmetic<uint32_t, uint32_t>(op);
    case Dtype::i32: return pick_arithmetic<int32_t, int32_t>(op);
    case Dtype::u64: return pick_arithmetic<uint64_t, uint64_t>(op);
    case Dtype::i64: return pick_arithmetic<int64_t, int64_t>(op);
    case Dtype::f16: return pick_half<Half>(op, out);
    case Dtype::bf16: return pick_half<BHalf>(op, out);
    case Dtype::f32: return pick_float(op, out);
    case Dtype::f64: return pick_arithmetic<double, double>(op);
    case Dtype::boolean:
      return op == Op::min || op == Op::product ? &reduce_typed<Op::min, uint8_t, uint8_t>
                                                : &reduce_typed<Op::max, uint8_t, uint8_t>;
  }
  return nullptr;
}

ReduceFunction pick_bits(Op op) {
  switch (op) {
    case Op::band: return &reduce_typed<Op::band, uint8_t, uint8_t>;
    case Op::bor: return &reduce_typed<Op::bor, uint8_t, uint8_t>;
    default: return &reduce_typed<Op::bxor, uint8_t, uint8_t>;
  }
}

}  // namespace

ReduceKernels make_reduce_kernels() { return {&pick, &pick_bits}; }

}  // namespace HWY_NAMESPACE
}  // namespace headrace::comm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::comm {

HWY_EXPORT(make_reduce_kernels);

ReduceKernels reduce_kernels(int64_t target) {
  return HWY_DISPATCH_TABLE(make_reduce_kernels)[base::target_index(target)]();
}

}  // namespace headrace::comm
#endif
