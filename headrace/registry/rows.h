// SPDX-License-Identifier: Apache-2.0
// Rows in and out: insert a prepared version, read versions back with what belongs to them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/registry/database.h"
#include "headrace/registry/object_store.h"
#include "headrace/registry/prepare.h"
#include "headrace/registry/reference.h"
#include "headrace/registry/types.h"

namespace headrace::registry {

/// Insert everything of one version in the open transaction; its objects must be in place.
/// `prepared->existed` when its once key was there with the same content (`mismatch` otherwise).
Result<void> insert_version(Database* database, const ObjectStore& store,
                            PreparedVersion* prepared);

/// Id of the version that a reference names; deleted ones only when `include_deleted`
/// (`not_found` says what there is instead).
Result<int64_t> find_id(Database* database, const Reference& reference, bool include_deleted);
Result<int64_t> model_id(Database* database, std::string_view name);

/// `SELECT` and `FROM` of a version row, for read_row; conditions go behind it.
std::string version_select(bool with_header);
Version read_row(const Statement& statement, bool with_header);
Result<Version> read_version(Database* database, int64_t id);
/// Add metrics, params, tags, aliases and artifacts to `versions`.
Result<void> read_details(Database* database, std::span<Version> versions);

Result<int64_t> intern_object(Database* database, const StoredArtifact& artifact, int64_t now_us);
Result<void> insert_pairs(Database* database, std::string_view sql, int64_t owner,
                          std::span<const Pair> pairs);
/// Make a deleted version ready again.
Result<void> restore_version(Database* database, int64_t id);
Result<bool> has_uid(Database* database, const std::string& uid);
std::vector<std::byte> from_hex(std::string_view hex);

}  // namespace headrace::registry
