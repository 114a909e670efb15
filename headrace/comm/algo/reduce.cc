// SPDX-License-Identifier: Apache-2.0
// Choice of the kernel by instruction set, type and operation.
#include <fmt/format.h>

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "headrace/base/kernel_targets.h"
#include "headrace/comm/algo/reduce_kernel.h"
#include "headrace/comm/algo/reduce_kernel_internal.h"

namespace headrace::comm {

namespace {

struct NamedKernels {
  std::string name;
  ReduceKernels kernels;
};

const std::vector<NamedKernels>& tables() {
  static const std::vector<NamedKernels> all = [] {
    std::vector<NamedKernels> found;
    base::for_each_target(
        [&](int64_t target, const char* name) { found.push_back({name, reduce_kernels(target)}); });
    return found;
  }();
  return all;
}

void reduce_with(const ReduceKernels& kernels, const Reduction& what,
                 std::span<const std::byte* const> sources, std::byte* out, size_t count) {
  HR_DCHECK(!sources.empty(), "a reduction has at least one source");
  if (is_bitwise(what.op)) {
    kernels.bits(what.op)(sources, out, 1.0, count * dtype_bytes(what.in));
  } else {
    kernels.arithmetic(what.in, what.out, what.op)(sources, out, what.scale, count);
  }
}

}  // namespace

std::string_view op_name(Op op) {
  constexpr std::string_view kNames[] = {"sum",     "average", "min", "max",
                                         "product", "band",    "bor", "bxor"};
  return kNames[static_cast<size_t>(op)];
}

Result<void> check_reducible(Dtype dtype, Op op) {
  if (!is_reducible(dtype, op)) {
    return Error{Errc::invalid_argument,
                 fmt::format("comm: {} means nothing for {}; use an integer type", op_name(op),
                             dtype_name(dtype))};
  }
  return {};
}

void reduce_tree(const Reduction& what, std::span<const std::byte* const> sources, std::byte* out,
                 size_t count) {
  static const ReduceKernels& best = tables().front().kernels;
  reduce_with(best, what, sources, out, count);
}

void scale_elements(Dtype dtype, double scale, const std::byte* in, std::byte* out, size_t count) {
  const Reduction what = {.in = dtype, .out = dtype, .op = Op::sum, .scale = scale};
  reduce_tree(what, std::span(&in, 1), out, count);
}

void copy_bytes(std::byte* out, const std::byte* in, size_t bytes, bool past_caches) {
#if defined(__SSE2__)
  constexpr size_t kLine = 64;
  if (past_caches && bytes >= 16 * kLine) {
    const size_t head = (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
    std::memcpy(out, in, head);
    size_t at = head;
    for (; at + kLine <= bytes; at += kLine) {
      const auto* from = reinterpret_cast<const __m128i*>(in + at);
      auto* to = reinterpret_cast<__m128i*>(out + at);
      const __m128i a = _mm_loadu_si128(from);
      const __m128i b = _mm_loadu_si128(from + 1);
      const __m128i c = _mm_loadu_si128(from + 2);
      const __m128i d = _mm_loadu_si128(from + 3);
      _mm_stream_si128(to, a);
      _mm_stream_si128(to + 1, b);
      _mm_stream_si128(to + 2, c);
      _mm_stream_si128(to + 3, d);
    }
    std::memcpy(out + at, in + at, bytes - at);
    _mm_sfence();
    return;
  }
#endif
  if (bytes > 0) {
    std::memcpy(out, in, bytes);
  }
}

namespace testing {

std::vector<std::string> reduce_targets() {
  std::vector<std::string> names;
  for (const NamedKernels& one : tables()) {
    names.push_back(one.name);
  }
  return names;
}

void reduce_tree_on(size_t target, const Reduction& what, std::span<const std::byte* const> sources,
                    std::byte* out, size_t count) {
  reduce_with(tables()[target].kernels, what, sources, out, count);
}

}  // namespace testing

}  // namespace headrace::comm
