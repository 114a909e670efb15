// SPDX-License-Identifier: Apache-2.0
// A version that was made elsewhere, from its JSON to its row; exports and staging share it.
#pragma once

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

/// Insert those whose uid is not here yet, in one transaction; their objects are in place.
Result<ImportReport> insert_foreign(Registry::State* state,
                                    std::span<const ForeignVersion> versions,
                                    const TarOptions& options);

}  // namespace headrace::registry
