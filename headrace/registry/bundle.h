// SPDX-License-Identifier: Apache-2.0
// Many local models of one shape in one file: written while items finish, sealed when full or old,
// resumed after a crash from its log.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/registry.h"

namespace headrace::registry {

/// One parameter of every item; offsets follow from the order.
struct BundleParameter {
  std::string name = {};
  std::vector<int64_t> shape = {};
};

struct BundleOptions {
  /// What is being written, e.g. "RUN/SHAPE". Parts that a killed process left under the same key
  /// are sealed by the next `make`.
  std::string key = {};
  std::string kind = {};
  Json header = Json::object();  ///< what all items share
  std::vector<BundleParameter> parameters = {};
  Dtype dtype = Dtype::f32;  ///< f32, f16 or bf16: how weights are stored
  std::vector<std::string> scalars = {};
  std::vector<std::string> metrics = {};
  Lineage lineage = {};  ///< of all items; item, attempt and data_hash come with each
  int64_t items_max = kBundleItemsMax;
  int64_t bytes_max = kBundleBytesMax;
  base::Micros seal_after = std::chrono::seconds(60);  ///< after the first item that is not sealed
};

/// One finished item.
struct ItemRecord {
  std::string name = {};                 ///< of the model, e.g. "m4_hourly/H1"
  std::string key = {};                  ///< in the bundle, e.g. "H1"; unique per bundle
  std::span<const float> weights = {};   ///< all parameters in order, borrowed during the call
  std::span<const double> scalars = {};  ///< as BundleOptions::scalars
  std::vector<Metric> metrics = {};      ///< rows of the database; those named in options also lie
                                         ///< in the file
  Json header = {};                      ///< of this item, or null
  std::optional<std::string> once = {};
  std::vector<Pair> params = {};
  std::vector<Pair> tags = {};
  int64_t attempt = 0;
  std::string data_hash = {};
};

struct SealReport {
  int64_t items = 0;
  int64_t bundles = 0;
  /// Items whose once key belongs to other content: they were left out, with the message.
  std::vector<std::string> conflicts = {};
  /// Parts of dead processes whose log or records are damaged: they stay in tmp/, with the message.
  std::vector<std::string> damaged = {};
};

/// Thread-safe. An item is durable (it will be in the registry, whatever happens) once `flush`
/// returned after its `append`; it is listed once its bundle is sealed.
class HR_API BundleWriter {
 public:
  static Result<BundleWriter> make(Registry* registry, BundleOptions options);
  BundleWriter(BundleWriter&&) noexcept;
  BundleWriter& operator=(BundleWriter&&) noexcept;
  ~BundleWriter();  ///< leaves an unsealed part for the next `make`

  /// Write one record; seals when the bundle is full or old. Returns the record's slot.
  Result<int64_t> append(const ItemRecord& item);
  /// Wait until everything appended so far is durable. Threads that wait share the disk's work.
  Result<void> flush();
  /// Index, head, hash, rows: afterwards the items are listed. Nothing to do is fine.
  Result<SealReport> seal();
  /// What `make` sealed of earlier parts, and `append` and `seal` since.
  const SealReport& sealed() const;

 private:
  struct State;
  explicit BundleWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Seal what dead processes left in tmp/ and that is older than `age`, whatever its key.
HR_API Result<SealReport> seal_orphans(Registry* registry, base::Micros age);

}  // namespace headrace::registry
