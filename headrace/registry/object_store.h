// SPDX-License-Identifier: Apache-2.0
// Immutable files named by their BLAKE2b-256: written beside, synced, then put in place, so that a
// name never shows a part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/checksum.h"
#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::registry {

using base::Path;

/// Put `context` in front of a failure.
inline Result<void> in_context(Result<void> result, std::string_view context) {
  if (!result.ok()) {
    result.error().add_context(context);
  }
  return result;
}

/// 32 bytes of BLAKE2b-256.
using ObjectHash = std::array<std::byte, 32>;
std::optional<ObjectHash> parse_hash(std::string_view hex);

/// An empty file of exactly that mode, whatever the umask; one that is there stays as it is.
Result<void> make_file(const Path& path, unsigned mode);

struct ObjectFile {
  std::string hash;  ///< hex
  int64_t bytes = 0;
};

/// A file in tmp/ that grows, hashed on the way. Held under flock while it lives, so that nobody
/// sweeps it; removed at destruction unless it was kept.
class TempFile {
 public:
  static Result<TempFile> create(const Path& tmp_folder);
  TempFile(TempFile&&) noexcept;
  TempFile& operator=(TempFile&&) noexcept;
  ~TempFile();

  Result<void> write(std::span<const std::byte> bytes);
  /// Copy a whole file in, hashing it. At most kFileBytesMax.
  Result<void> copy_from(const Path& source);
  /// Ask the kernel to begin writing back, without waiting.
  void start_sync();
  /// Content and size on disk, mode 0444. After it no more writes.
  Result<ObjectFile> finish();
  const Path& path() const { return path_; }
  int fd() const { return fd_.get(); }
  int64_t bytes() const { return bytes_; }
  /// Leave the file where it is at destruction.
  void keep() { owned_ = false; }

 private:
  TempFile() = default;
  void drop();
  base::Fd fd_;
  Path path_;
  base::Blake2b256 hash_;
  int64_t bytes_ = 0;
  bool owned_ = true;
};

/// The folders objects/, tmp/ and trash/ of one registry. Thread-safe; holds no state but paths.
class ObjectStore {
 public:
  ObjectStore() = default;
  explicit ObjectStore(Path registry_folder, bool shared_group = false);

  Result<void> make_folders() const;
  const Path& tmp_folder() const { return tmp_; }
  const Path& trash_folder() const { return trash_; }
  const Path& objects_folder() const { return objects_; }
  Path path_of(std::string_view hash) const;

  /// Put a finished file in place. When the object is there already (same size: `mismatch`
  /// otherwise), its time is renewed, which tells gc that it is wanted. Folders that must be synced
  /// before the row is written are added to `folders`. `source` stays (a second link): gc may take
  /// the object until its row is there, so keep `source` until then, look again under writer.lock
  /// and publish again.
  Result<void> publish(const Path& source, const ObjectFile& object, std::set<Path>* folders) const;
  /// Size of the object, or nullopt when it is not there.
  std::optional<int64_t> size_of(std::string_view hash) const;
  /// Call `body` for every file under objects/ whose name is a hash.
  Result<void> for_each(const std::function<Result<void>(const std::string& hash, int64_t bytes,
                                                         base::Micros modified)>& body) const;
  /// Remove what nobody owns: files in tmp/ that are unlocked and older than `age`; returns how
  /// many there were.
  Result<int64_t> sweep_tmp(base::Micros age, bool dry_run) const;
  Result<void> empty_trash() const;
  /// Hash the bytes of an object as they are now.
  Result<std::string> hash_file(const Path& path) const;

 private:
  Path objects_;
  Path tmp_;
  Path trash_;
  unsigned folder_mode_ = 0700;
};

}  // namespace headrace::registry
