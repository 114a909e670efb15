// SPDX-License-Identifier: Apache-2.0
// Read a model file: checked as a whole, then mapped; docs/formats/model-file.md describes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"
#include "headrace/registry/safetensors.h"

namespace headrace::registry {

struct ModelFileOptions {
  bool copy = false;             ///< read into memory instead of mapping: for files that may shrink
  bool allow_nonfinite = false;  ///< else NaN or infinity in a weight is `corrupt`
  bool verify_checksum = true;   ///< compare `headrace.checksum` with the data
};

/// A tensor as it lies in the file. Valid as long as a ModelFile of that file lives.
struct HR_API TensorView {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;

  int64_t count() const;
  /// As float values; `mismatch` when the type is another one.
  Result<std::span<const float>> floats() const;
};

/// A model file ("model/1"), a bundle of many ("bundle/1"), one item of a bundle, or a foreign
/// safetensors file (no format, null header). Immutable, cheap to copy (copies share the mapping),
/// thread-safe.
class HR_API ModelFile {
 public:
  /// `corrupt` names file, place and what is wrong; `unsupported` names the version that is needed.
  static Result<ModelFile> open(const base::Path& path, const ModelFileOptions& options = {});

  const std::string& format() const;  ///< "model/1", "bundle/1", "" for foreign files
  const std::string& kind() const;    ///< header.kind
  /// For an item: the bundle's header with the item's scalars and metrics under "item".
  const Json& header() const;
  const std::map<std::string, std::string>& metadata() const;
  const std::vector<TensorView>& tensors() const;
  /// `not_found` lists the names there are.
  Result<TensorView> tensor(std::string_view name) const;

  // Bundles only (`invalid_argument` otherwise).
  int64_t item_count() const;  ///< 0 when this is no bundle
  Result<std::string> item_key(int64_t slot) const;
  /// Look a key up: binary search by hash, one key comparison, one record checked.
  Result<ModelFile> item(std::string_view key) const;
  Result<ModelFile> item_at(int64_t slot) const;
  /// Check keys, hash order and the checksum of every record.
  Result<void> verify_items() const;

 private:
  struct State;
  explicit ModelFile(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// The bytes of a model file before its data, the checksum over its data included. `order` receives
/// the order in which the tensors' data must follow.
HR_API Result<std::string> model_file_head(const Json& header, std::span<const Tensor> tensors,
                                           std::vector<size_t>* order);

}  // namespace headrace::registry
