// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "headrace/base/random.h"
#include "headrace/comm/algo/reduce_kernel.h"

namespace headrace::comm {
namespace {

// A reference that shares nothing with the kernels: one element at a time, values in the type that
// accumulates, the tree by recursion over indices.
template <class T>
T combine_one(Op op, T a, T b) {
  switch (op) {
    case Op::min:
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) {
          return std::isnan(a) ? a : b;
        }
      }
      return a < b ? a : b;
    case Op::max:
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) {
          return std::isnan(a) ? a : b;
        }
      }
      return a > b ? a : b;
    case Op::product:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      } else {
        return a * b;
      }
    default:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      } else {
        return a + b;
      }
  }
}

template <class T>
T tree(Op op, const std::vector<T>& values, size_t first, size_t n) {
  if (n == 1) {
    return values[first];
  }
  size_t p = 1;
  while (2 * p < n) {
    p *= 2;
  }
  return combine_one(op, tree(op, values, first, p), tree(op, values, first + p, n - p));
}

template <class T>
T value_at(const std::byte* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
std::vector<std::byte> expected_plain(Op op, double scale,
                                      const std::vector<std::vector<std::byte>>& sources,
                                      size_t offset, size_t count) {
  std::vector<std::byte> out(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    std::vector<T> values;
    for (const auto& source : sources) {
      values.push_back(value_at<T>(source.data() + offset, i));
    }
    T result = tree(op, values, 0, values.size());
    if (scale != 1.0) {
      if constexpr (std::is_integral_v<T>) {
        result = static_cast<T>(static_cast<double>(result) * scale);  // values chosen to fit
      } else {
        result = result * static_cast<T>(scale);
      }
    }
    std::memcpy(out.data() + i * sizeof(T), &result, sizeof(T));
  }
  return out;
}

template <float (*widen)(uint16_t), uint16_t (*narrow)(float)>
std::vector<std::byte> expected_half(Op op, double scale,
                                     const std::vector<std::vector<std::byte>>& sources,
                                     size_t offset, size_t count) {
  std::vector<std::byte> out(count * 2);
  for (size_t i = 0; i < count; ++i) {
    std::vector<float> values;
    for (const auto& source : sources) {
      values.push_back(widen(value_at<uint16_t>(source.data() + offset, i)));
    }
    const uint16_t bits = narrow(tree(op, values, 0, values.size()) * static_cast<float>(scale));
    std::memcpy(out.data() + i * 2, &bits, 2);
  }
  return out;
}

std::vector<std::byte> expected(Dtype dtype, Op op, double scale,
                                const std::vector<std::vector<std::byte>>& sources, size_t offset,
                                size_t count) {
  switch (dtype) {
    case Dtype::u8: return expected_plain<uint8_t>(op, scale, sources, offset, count);
    case Dtype::i8: return expected_plain<int8_t>(op, scale, sources, offset, count);
    case Dtype::u16: return expected_plain<uint16_t>(op, scale, sources, offset, count);
    case Dtype::i16: return expected_plain<int16_t>(op, scale, sources, offset, count);
    case Dtype::u32: return expected_plain<uint32_t>(op, scale, sources, offset, count);
    case Dtype::i32: return expected_plain<int32_t>(op, scale, sources, offset, count);
    case Dtype::u64: return expected_plain<uint64_t>(op, scale, sources, offset, count);
    case Dtype::i64: return expected_plain<int64_t>(op, scale, sources, offset, count);
    case Dtype::f16:
      return expected_half<f32_of_f16, f16_of_f32>(op, scale, sources, offset, count);
    case Dtype::bf16:
      return expected_half<f32_of_bf16, bf16_of_f32>(op, scale, sources, offset, count);
    case Dtype::f32: return expected_plain<float>(op, scale, sources, offset, count);
    case Dtype::f64: return expected_plain<double>(op, scale, sources, offset, count);
    case Dtype::boolean: break;
  }
  return {};
}

/// Random values of a type: small integers, or floats over many magnitudes so that the order of
/// additions shows in the bits.
std::vector<std::byte> random_values(base::Rng& rng, Dtype dtype, size_t count, size_t offset) {
  std::vector<std::byte> bytes(offset + count * dtype_bytes(dtype));
  for (size_t i = 0; i < count; ++i) {
    std::byte* at = bytes.data() + offset + i * dtype_bytes(dtype);
    const double real = rng.normal() * std::pow(2.0, rng.uniform() * 12 - 6);
    const auto whole = static_cast<int64_t>(rng.below(200));
    switch (dtype) {
      case Dtype::f32: {
        const auto value = static_cast<float>(real);
        std::memcpy(at, &value, 4);
        break;
      }
      case Dtype::f64: std::memcpy(at, &real, 8); break;
      case Dtype::f16: {
        const uint16_t bits = f16_of_f32(static_cast<float>(real));
        std::memcpy(at, &bits, 2);
        break;
      }
      case Dtype::bf16: {
        const uint16_t bits = bf16_of_f32(static_cast<float>(real));
        std::memcpy(at, &bits, 2);
        break;
      }
      default: std::memcpy(at, &whole, dtype_bytes(dtype));
    }
  }
  return bytes;
}

bool equal_bits(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

constexpr Dtype kNumbers[] = {Dtype::u8,  Dtype::i8,   Dtype::u16, Dtype::i16,
                              Dtype::u32, Dtype::i32,  Dtype::u64, Dtype::i64,
                              Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64};

TEST_CASE("a reduction follows the fixed tree, bit for bit, on every instruction set") {
  base::Rng rng(7);
  const auto targets = testing::reduce_targets();
  REQUIRE(targets.back() == "scalar");
  for (const Dtype dtype : kNumbers) {
    for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
      for (const size_t ranks : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 13U, 64U}) {
        const size_t count = ranks == 2 ? 1027 : 259 + rng.below(300);
        const size_t offset = rng.below(9) * dtype_bytes(dtype);
        std::vector<std::vector<std::byte>> sources;
        std::vector<const std::byte*> pointers;
        for (size_t r = 0; r < ranks; ++r) {
          sources.push_back(random_values(rng, dtype, count, offset));
        }
        for (const auto& source : sources) {
          pointers.push_back(source.data() + offset);
        }
        const double scale = is_floating(dtype) && ranks % 2 == 0 ? 1.0 / 3 : 1.0;
        const auto wanted = expected(dtype, op, scale, sources, offset, count);
        for (size_t t = 0; t < targets.size(); ++t) {
          CAPTURE(targets[t]);
          CAPTURE(dtype_name(dtype));
          CAPTURE(op_name(op));
          CAPTURE(ranks);
          const size_t shift = 3 * dtype_bytes(dtype);
          std::vector<std::byte> out(count * dtype_bytes(dtype) + shift);
          testing::reduce_tree_on(t, {.in = dtype, .out = dtype, .op = op, .scale = scale},
                                  pointers, out.data() + shift, count);
          CHECK(equal_bits(std::span(out).subspan(shift), wanted));
        }
      }
    }
  }
}

TEST_CASE("partials of 16-bit floats in f32 round once, at the end") {
  base::Rng rng(3);
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    std::vector<std::vector<std::byte>> sources;
    std::vector<const std::byte*> pointers;
    for (int r = 0; r < 8; ++r) {
      sources.push_back(random_values(rng, dtype, 700, 0));
    }
    for (const auto& source : sources) {
      pointers.push_back(source.data());
    }
    const auto wanted = expected(dtype, Op::sum, 1.0, sources, 0, 700);
    // Two nodes of four: partials in f32, then the halves.
    std::vector<float> left(700);
    std::vector<float> right(700);
    const std::span<const std::byte* const> all = pointers;
    const Reduction partial = {.in = dtype, .out = Dtype::f32};
    reduce_tree(partial, all.first(4), reinterpret_cast<std::byte*>(left.data()), 700);
    reduce_tree(partial, all.last(4), reinterpret_cast<std::byte*>(right.data()), 700);
    const std::byte* halves[] = {reinterpret_cast<std::byte*>(left.data()),
                                 reinterpret_cast<std::byte*>(right.data())};
    std::vector<std::byte> out(1400);
    reduce_tree({.in = Dtype::f32, .out = dtype}, halves, out.data(), 700);
    CHECK(equal_bits(out, wanted));
  }
}

TEST_CASE("every bit pattern of the 16-bit floats survives the way through f32") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool f16_nan = (half & 0x7C00U) == 0x7C00U && (half & 0x3FFU) != 0;
    const bool bf16_nan = (half & 0x7F80U) == 0x7F80U && (half & 0x7FU) != 0;
    CHECK((f16_nan ? std::isnan(f32_of_f16(f16_of_f32(f32_of_f16(half))))
                   : f16_of_f32(f32_of_f16(half)) == half));
    CHECK((bf16_nan ? std::isnan(f32_of_bf16(bf16_of_f32(f32_of_bf16(half))))
                    : bf16_of_f32(f32_of_bf16(half)) == half));
  }
  // By hand: halfway cases go to the even neighbour, 65520 is the first that is infinite.
  CHECK(f16_of_f32(1.0F + 0x1p-11F) == 0x3C00);
  CHECK(f16_of_f32(1.0F + 0x3p-11F) == 0x3C02);
  CHECK(f16_of_f32(65519.996F) == 0x7BFF);
  CHECK(f16_of_f32(65520.0F) == 0x7C00);
  CHECK(f16_of_f32(0x1p-25F) == 0);
  CHECK(f16_of_f32(0x1.8p-25F) == 1);
  CHECK(bf16_of_f32(1.0F + 0x1p-8F) == 0x3F80);
  CHECK(bf16_of_f32(1.0F + 0x3p-8F) == 0x3F82);
}

TEST_CASE("halves round the same way in vectors as one by one") {
  const auto targets = testing::reduce_targets();
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 40'503) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const auto* source = reinterpret_cast<const std::byte*>(values.data());
  for (size_t t = 0; t < targets.size(); ++t) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      std::vector<uint16_t> out(values.size());
      testing::reduce_tree_on(t, {.in = Dtype::f32, .out = dtype}, std::span(&source, 1),
                              reinterpret_cast<std::byte*>(out.data()), values.size());
      size_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t wanted =
            dtype == Dtype::f16 ? f16_of_f32(values[i]) : bf16_of_f32(values[i]);
        wrong += std::isnan(values[i]) ? ((out[i] & 0x7C00U) != 0x7C00U ? 1 : 0)
                                       : (out[i] != wanted ? 1 : 0);
      }
      CAPTURE(targets[t]);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("min and max hand on NaN from any rank, the result may be a source") {
  for (size_t t = 0; t < testing::reduce_targets().size(); ++t) {
    for (const Op op : {Op::min, Op::max}) {
      for (int where = 0; where < 3; ++where) {
        std::vector<std::vector<float>> values(3, std::vector<float>(37, 1.0F));
        values[static_cast<size_t>(where)][5] = std::numeric_limits<float>::quiet_NaN();
        values[static_cast<size_t>(where)][36] = std::numeric_limits<float>::quiet_NaN();
        std::vector<const std::byte*> sources;
        for (auto& one : values) {
          sources.push_back(reinterpret_cast<const std::byte*>(one.data()));
        }
        testing::reduce_tree_on(t, {.op = op}, sources,
                                reinterpret_cast<std::byte*>(values[1].data()), 37);
        CHECK(std::isnan(values[1][5]));
        CHECK(std::isnan(values[1][36]));
        CHECK(values[1][6] == 1.0F);
      }
    }
  }
}

TEST_CASE("integers are scaled in f64 and cut towards zero") {
  const int32_t a[] = {-3, 3, 7, std::numeric_limits<int32_t>::min()};
  const int32_t b[] = {0, 0, 0, 0};
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a),
                                reinterpret_cast<const std::byte*>(b)};
  int32_t out[4];
  reduce_tree({.in = Dtype::i32, .out = Dtype::i32, .scale = 0.5}, sources,
              reinterpret_cast<std::byte*>(out), 4);
  CHECK(out[0] == -1);
  CHECK(out[1] == 1);
  CHECK(out[2] == 3);
  CHECK(out[3] == -1073741824);
  reduce_tree({.in = Dtype::i32, .out = Dtype::i32, .scale = 1e12}, sources,
              reinterpret_cast<std::byte*>(out), 4);
  CHECK(out[0] == std::numeric_limits<int32_t>::min());  // what does not fit stays at the edge
  CHECK(out[1] == std::numeric_limits<int32_t>::max());
}

TEST_CASE("bitwise operations work on all integers and are refused for floats") {
  const uint32_t a[] = {0xF0F0F0F0U, 1U, 2U};
  const uint32_t b[] = {0xFF00FF00U, 3U, 5U};
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a),
                                reinterpret_cast<const std::byte*>(b)};
  uint32_t out[3];
  auto* bytes = reinterpret_cast<std::byte*>(out);
  reduce_tree({.in = Dtype::u32, .out = Dtype::u32, .op = Op::band}, sources, bytes, 3);
  CHECK(out[0] == 0xF000F000U);
  CHECK(out[2] == 0U);
  reduce_tree({.in = Dtype::u32, .out = Dtype::u32, .op = Op::bor}, sources, bytes, 3);
  CHECK(out[2] == 7U);
  reduce_tree({.in = Dtype::u32, .out = Dtype::u32, .op = Op::bxor}, sources, bytes, 3);
  CHECK(out[1] == 2U);
  CHECK(check_reducible(Dtype::bf16, Op::bxor).error().code() == Errc::invalid_argument);
  CHECK(check_reducible(Dtype::u8, Op::bxor).ok());
}

TEST_CASE("booleans: sum is or, product is and") {
  const uint8_t a[] = {0, 1, 0, 1};
  const uint8_t b[] = {0, 0, 1, 1};
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a),
                                reinterpret_cast<const std::byte*>(b)};
  uint8_t out[4];
  auto* bytes = reinterpret_cast<std::byte*>(out);
  reduce_tree({.in = Dtype::boolean, .out = Dtype::boolean, .op = Op::sum}, sources, bytes, 4);
  CHECK(std::vector<int>(out, out + 4) == std::vector<int>{0, 1, 1, 1});
  reduce_tree({.in = Dtype::boolean, .out = Dtype::boolean, .op = Op::product}, sources, bytes, 4);
  CHECK(std::vector<int>(out, out + 4) == std::vector<int>{0, 0, 0, 1});
}

TEST_CASE("copies past the caches are copies") {
  base::Rng rng(1);
  std::vector<std::byte> from(10'000);
  for (auto& one : from) {
    one = static_cast<std::byte>(rng.next());
  }
  for (const size_t bytes : {0U, 1U, 63U, 1024U, 1087U, 9000U}) {
    for (const size_t shift : {0U, 1U, 33U, 64U}) {
      std::vector<std::byte> to(bytes + shift + 1, std::byte{0xAA});
      copy_bytes(to.data() + shift, from.data() + 7, bytes, true);
      CHECK(std::memcmp(to.data() + shift, from.data() + 7, bytes) == 0);
      CHECK(to.back() == std::byte{0xAA});
    }
  }
}

}  // namespace
}  // namespace headrace::comm
