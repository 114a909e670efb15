// SPDX-License-Identifier: Apache-2.0
// The safetensors container: names, types, shapes and byte ranges; a strict parser of its head and
// a writer of the same bytes for the same input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::registry {

/// Element types of safetensors 0.8.
enum class Dtype : uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};
/// "F32" and so on, as the format spells it.
HR_API std::string_view dtype_name(Dtype dtype);
HR_API std::optional<Dtype> parse_dtype(std::string_view name);
HR_API int64_t dtype_bits(Dtype dtype);

/// One tensor to write. `data` is little-endian, C order, borrowed during the call, and has exactly
/// the bytes that dtype and shape ask for.
struct Tensor {
  std::string name = {};
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape = {};
  std::span<const std::byte> data;
};

/// One entry of a head; [begin, end) counts from the start of the data region.
struct TensorEntry {
  std::string name = {};
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape = {};
  int64_t begin = 0;
  int64_t end = 0;
};

/// Everything before the data region of a file.
struct TensorHead {
  std::vector<TensorEntry> entries = {};        ///< ascending by `begin`, then by name
  std::map<std::string, std::string> metadata;  ///< `__metadata__`
  int64_t data_offset = 0;                      ///< of the data region in the file
  int64_t data_bytes = 0;

  const TensorEntry* find(std::string_view name) const;
};

/// Length of the JSON that the first 8 bytes announce, checked against `file_bytes` and the limit
/// of 100,000,000 (`corrupt`). `file` is for messages.
HR_API Result<int64_t> tensor_head_bytes(std::span<const std::byte> first_bytes, int64_t file_bytes,
                                         std::string_view file);

/// Parse and validate a whole head: `json` is the announced text. All of it is checked before
/// anything is returned (`corrupt`, naming the tensor and the offset): first byte '{', nesting of
/// at most 16, no duplicate names, at most 1,000,000 entries, known types, shape times type equal
/// to the range without overflow, ranges that tile the data region without hole, overlap or rest.
/// Stricter than the reference reader in exactly these points: a blank before '{', duplicate keys,
/// nesting, count of entries.
HR_API Result<TensorHead> parse_tensor_head(std::string_view json, int64_t file_bytes,
                                            std::string_view file);

enum class TensorOrder {
  by_alignment,  ///< falling size of the element, then name
  as_given,
};

/// The 8 bytes of length and the JSON, padded with blanks so that data begins at a multiple of 64.
/// `order` receives the order in which the data must follow. `pad_to` > 0 pads the head to exactly
/// so many bytes (`invalid_argument` when it does not fit). Names must be unique and byte counts
/// must agree with shapes (`invalid_argument`).
HR_API Result<std::string> write_tensor_head(const std::vector<TensorEntry>& tensors,
                                             const std::map<std::string, std::string>& metadata,
                                             TensorOrder order_by, std::vector<size_t>* order,
                                             int64_t pad_to = 0);

/// Bytes of a tensor; nullopt when the product overflows or is no whole number of bytes.
HR_API std::optional<int64_t> tensor_bytes(Dtype dtype, std::span<const int64_t> shape);

}  // namespace headrace::registry
