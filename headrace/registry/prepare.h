// SPDX-License-Identifier: Apache-2.0
// From what a caller gives to what can be inserted: checked against every limit, header filled in,
// files written and named by their hash.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "headrace/registry/object_store.h"
#include "headrace/registry/types.h"

namespace headrace::registry {

/// A version that is ready for its row.
struct PreparedVersion {
  const NewVersion* source = nullptr;
  std::string uid;     ///< 32 hex digits
  std::string header;  ///< sorted JSON
  std::vector<StoredArtifact> artifacts;
  std::vector<std::string> push_to;
  base::Micros created{0};
  int64_t wanted_version = 0;  ///< imports: the number to keep if it is free; 0 = the next one
  bool must_keep = false;      ///< `mismatch` when wanted_version is taken
  // Results of the insertion.
  int64_t id = 0;
  int64_t version = 0;
  bool existed = false;  ///< the once key was there already
};

Result<void> check_version(const NewVersion& version);
Result<void> check_artifact_path(std::string_view path);
Result<void> check_text(std::string_view text, std::string_view what, int64_t bytes_max);

/// Check and fill in; writes nothing.
Result<PreparedVersion> prepare_version(const NewVersion& version);

/// Write what the version needs under tmp/: the model file (path "model.safetensors") and its
/// artifacts. `names` receives what belongs to the version, in the order of the files.
struct PendingFile {
  TempFile file;
  std::string path;
  std::string kind;
  ObjectFile object = {};  ///< once published
};
Result<std::vector<PendingFile>> write_files(const NewVersion& version, const std::string& header,
                                             const Path& tmp_folder);
/// finish and publish; fills `prepared->artifacts`. Keep `files` until the row is there.
Result<void> publish_files(std::span<PendingFile> files, const ObjectStore& store,
                           PreparedVersion* prepared, std::set<Path>* folders);
/// Under writer.lock, where gc cannot come between this and the row: put back what it took.
Result<void> publish_missing(std::span<const PendingFile> files, const ObjectStore& store);
Result<void> sync_all(const std::set<Path>& folders);

inline constexpr std::string_view kModelPath = "model.safetensors";
std::string new_uid();

}  // namespace headrace::registry
