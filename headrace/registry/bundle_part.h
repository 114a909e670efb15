// SPDX-License-Identifier: Apache-2.0
// The growing file of a bundle and its log: records first, index and head last.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/append_log.h"
#include "headrace/registry/bundle.h"
#include "headrace/registry/object_store.h"

namespace headrace::registry {

/// What the log keeps of one item.
struct PartItem {
  int64_t slot = 0;
  std::string key;
  std::string uid;
  uint64_t checksum = 0;
  std::vector<double> scalars;
  NewVersion version;  ///< without files
  base::Micros created{0};
};

/// Configuration of a part as its log keeps it.
struct PartShape {
  BundleOptions options;
  int64_t elements = 0;      ///< of one item, without padding
  int64_t record_bytes = 0;  ///< padded to a multiple of 64
};
Result<PartShape> part_shape(BundleOptions options);

/// One `bundle-KEY-NONCE.part` with its `.log` in tmp/, and a `.wide` that has the records again
/// when the head does not fit in front of them. Not thread-safe. The log's flock is the part's
/// owner mark.
class BundlePart {
 public:
  static Result<BundlePart> create(const ObjectStore& store, const PartShape& shape);
  /// Take over what somebody left; nullopt when its owner lives. `path` is the log's.
  static Result<std::optional<BundlePart>> resume(const ObjectStore& store, const Path& path);
  /// Logs in tmp/ whose key is `key`, or all of them.
  static std::vector<Path> find_logs(const ObjectStore& store,
                                     const std::optional<std::string>& key);

  const std::vector<PartItem>& items() const { return items_; }
  const PartShape& shape() const { return shape_; }
  bool has_key(const std::string& key) const { return keys_.contains(key); }
  /// `finish` is over: nothing may be appended any more.
  bool finished() const { return finished_.has_value(); }
  int64_t bytes() const { return static_cast<int64_t>(items_.size()) * shape_.record_bytes; }

  Result<void> append(const ItemRecord& record, PartItem item);
  /// Records on disk, then the log. Everything appended before is durable afterwards.
  Result<void> flush();

  /// Write index and head, sync, hash, note the hash in the log. Afterwards `put_in_place` may run.
  Result<ObjectFile> finish();
  /// Publish the object and sync its folder, under writer.lock; also fine when that happened
  /// before. The part stays until `forget`: a commit that fails leaves an object that gc may take.
  Result<void> put_in_place(const ObjectFile& object);
  /// The rows are there: remove the part and its log.
  Result<void> forget();

 private:
  BundlePart() = default;
  Result<void> open_log();
  Result<void> read_config(std::string_view payload);
  Result<void> read_item(std::string_view payload);
  Result<void> keep_proven();
  struct OpenFile {
    int fd = -1;
    Path path;
  };
  Result<base::Fd> copy_records(int64_t head_bytes) const;
  Result<std::string> make_head(int64_t pad_to) const;
  Result<void> write_index(const OpenFile& file, int64_t offset) const;
  static Result<ObjectFile> hash_of(const OpenFile& file);
  Path wide_path() const;
  Path finished_path() const;

  const ObjectStore* store_ = nullptr;
  PartShape shape_;
  Path path_;
  Path log_path_;
  base::Fd fd_;
  std::optional<base::AppendLog> log_;
  std::vector<PartItem> items_;
  std::set<std::string> keys_;
  std::vector<std::string> unlogged_;
  std::optional<ObjectFile> finished_;
  bool wide_ = false;  // the finished file is the .wide beside the part
};

}  // namespace headrace::registry
