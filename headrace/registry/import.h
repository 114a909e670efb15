// SPDX-License-Identifier: Apache-2.0
// A version that was made elsewhere, from its JSON to its row; exports and staging share it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/registry/registry_internal.h"
#include "headrace/registry/types.h"

namespace headrace::registry {

struct ForeignVersion {
  NewVersion version;
  std::string uid;
  base::Micros created{0};
  int64_t number = 0;
  std::vector<StoredArtifact> artifacts;
  std::vector<std::string> aliases;
  bool same_origin =
      false;  ///< staged for this registry: its once key and number mean what they say
};

Json foreign_json(const ForeignVersion& foreign);
/// Checked as untrusted: names, limits, hashes, uid (`invalid_argument`, `corrupt`).
Result<ForeignVersion> foreign_from_json(const Json& json);

/// Publish an object again, and sync its folder, that gc took before its row was there.
using PutBack = std::function<Result<void>(const StoredArtifact&)>;

/// Insert those whose uid is not here yet, in one transaction; their objects are in place, or
/// `put_back` puts them there under the lock.
Result<ImportReport> insert_foreign(Registry::State* state,
                                    std::span<const ForeignVersion> versions,
                                    const TarOptions& options, const PutBack& put_back);

}  // namespace headrace::registry
