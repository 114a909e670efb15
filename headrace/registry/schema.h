// SPDX-License-Identifier: Apache-2.0
// Tables of registry.db and their migrations, forward only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "headrace/base/result.h"
#include "headrace/registry/database.h"

namespace headrace::registry {

inline constexpr int64_t kApplicationId = 0x48524547;  // "HREG"
inline constexpr int64_t kSchemaVersion = 1;
inline constexpr int64_t kReaderVersion = 1;  ///< highest meta.min_reader that this code serves
inline constexpr int64_t kWriterVersion = 1;  ///< highest meta.min_writer that this code serves

/// One step from version `from` to `from` + 1.
struct Migration {
  int64_t from;
  const char* sql;
};

/// Make all tables in the open transaction.
Result<void> create_schema(Database* database, const std::string& uuid, int64_t now_us);

/// What the file says of itself; `corrupt` when it is no registry, `unsupported` when a newer
/// headrace is needed (named).
struct SchemaState {
  int64_t version = 0;
  std::string uuid;
};
Result<SchemaState> read_schema(Database* database);

/// `unsupported` when only newer code may write to it.
Result<void> check_schema_writable(Database* database, const SchemaState& schema);

/// Apply what is missing in the open transaction, then check foreign keys.
Result<void> migrate_schema(Database* database, int64_t from, std::span<const Migration> steps);
/// Under the writer's lock: read the version again, copy the database into backup/ (the newest
/// three are kept), migrate in one transaction. Nothing to do is fine.
Result<void> migrate_with_backup(Database* database, const base::Path& folder,
                                 std::span<const Migration> steps, int64_t target);
/// The product's steps.
std::span<const Migration> migrations();

}  // namespace headrace::registry
