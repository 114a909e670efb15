// SPDX-License-Identifier: Apache-2.0
// What a collective works on: memory with an element type, and how values are put together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "headrace/base/dtype.h"
#include "headrace/base/export.h"

namespace headrace::comm {

/// How contributions become one value. `average` is the sum times 1/n; min and max hand on NaN;
/// integers wrap; for booleans sum and max are "or", product and min "and".
enum class Op : uint8_t { sum, average, min, max, product, band, bor, bxor };

HR_API std::string_view op_name(Op op);

/// Whose memory a buffer is in.
enum class Device : uint8_t { cpu, cuda };

/// Type in which a reduction of 32-bit floats travels. With one of 16 bits each contribution is
/// rounded to it once, the sum is made in 32 bits in the order of the fixed tree, and the result,
/// scaled, is rounded once: the same bits on all ranks, whatever carries them. What a node with
/// several ranks has put together goes to other nodes in 32 bits.
enum class Wire16 : uint8_t { none, f16, bf16 };

HR_API std::string_view wire16_name(Wire16 wire16);

/// Memory that a collective reads and writes; borrowed until its Work is done. That of a GPU has
/// the device's number and the stream (a cudaStream_t) after whose work the collective begins.
struct Buffer {
  void* data = nullptr;
  uint64_t count = 0;  ///< elements
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;
  int device_index = -1;
  uintptr_t stream = 0;

  std::byte* bytes() const { return static_cast<std::byte*>(data); }
  uint64_t size_bytes() const { return count * dtype_bytes(dtype); }
};

/// Memory that a collective only reads.
struct ConstBuffer {
  const void* data = nullptr;
  uint64_t count = 0;  ///< elements
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;
  int device_index = -1;
  uintptr_t stream = 0;

  ConstBuffer() = default;
  ConstBuffer(const void* data_in, uint64_t count_in, Dtype dtype_in)
      : data(data_in), count(count_in), dtype(dtype_in) {}
  ConstBuffer(const Buffer& other)  // NOLINT(google-explicit-constructor)
      : data(other.data),
        count(other.count),
        dtype(other.dtype),
        device(other.device),
        device_index(other.device_index),
        stream(other.stream) {}

  const std::byte* bytes() const { return static_cast<const std::byte*>(data); }
  uint64_t size_bytes() const { return count * dtype_bytes(dtype); }
};

}  // namespace headrace::comm
