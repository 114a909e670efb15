// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/schema.h"

#include <algorithm>
#include <filesystem>

#include "headrace/registry/fault.h"
#include "headrace/registry/object_store.h"

namespace headrace::registry {

namespace {

constexpr size_t kBackupsKept = 3;

// Times are microseconds since the epoch, UTC. version.state: 0 ready, 1 deleted, 2 deleted and its
// files collected. docs/formats/registry.md explains each
// column.
constexpr const char* kSchema = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE model(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT,
  next_version INTEGER NOT NULL DEFAULT 1, created_us INTEGER NOT NULL) STRICT;
CREATE TABLE run(id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, kind TEXT, parent_uid TEXT,
  pipeline_digest BLOB, code_version TEXT, environment TEXT, host TEXT, user TEXT,
  started_us INTEGER, ended_us INTEGER, status TEXT) STRICT;
CREATE TABLE snapshot(id INTEGER PRIMARY KEY, url TEXT NOT NULL, format TEXT NOT NULL,
  version TEXT NOT NULL, digest BLOB NOT NULL, rows INTEGER,
  UNIQUE(url, format, version, digest)) STRICT;
CREATE TABLE object(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, bytes INTEGER NOT NULL,
  kind TEXT NOT NULL, created_us INTEGER NOT NULL) STRICT;
CREATE TABLE version(id INTEGER PRIMARY KEY, uid BLOB NOT NULL UNIQUE,
  model_id INTEGER NOT NULL REFERENCES model(id), version INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0, once TEXT UNIQUE, run_id INTEGER REFERENCES run(id),
  item TEXT, attempt INTEGER, snapshot_id INTEGER REFERENCES snapshot(id), data_hash BLOB,
  parent_id INTEGER REFERENCES version(id), kind TEXT NOT NULL, header TEXT,
  created_us INTEGER NOT NULL, deleted_us INTEGER, UNIQUE(model_id, version)) STRICT;
CREATE INDEX version_run ON version(run_id, item);
CREATE INDEX version_item ON version(item);
CREATE INDEX version_created ON version(created_us);
CREATE TABLE artifact(version_id INTEGER NOT NULL REFERENCES version(id), path TEXT NOT NULL,
  object_id INTEGER NOT NULL REFERENCES object(id), slot INTEGER,
  PRIMARY KEY(version_id, path)) STRICT, WITHOUT ROWID;
CREATE INDEX artifact_object ON artifact(object_id);
CREATE TABLE key(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE metric(version_id INTEGER NOT NULL REFERENCES version(id),
  key_id INTEGER NOT NULL REFERENCES key(id), value REAL, step INTEGER,
  PRIMARY KEY(version_id, key_id)) STRICT, WITHOUT ROWID;
CREATE INDEX metric_value ON metric(key_id, value);
CREATE TABLE param(version_id INTEGER NOT NULL REFERENCES version(id),
  key_id INTEGER NOT NULL REFERENCES key(id), value TEXT NOT NULL,
  PRIMARY KEY(version_id, key_id)) STRICT, WITHOUT ROWID;
CREATE TABLE tag(version_id INTEGER NOT NULL REFERENCES version(id),
  key_id INTEGER NOT NULL REFERENCES key(id), value TEXT NOT NULL,
  PRIMARY KEY(version_id, key_id)) STRICT, WITHOUT ROWID;
CREATE TABLE model_tag(model_id INTEGER NOT NULL REFERENCES model(id),
  key_id INTEGER NOT NULL REFERENCES key(id), value TEXT NOT NULL,
  PRIMARY KEY(model_id, key_id)) STRICT, WITHOUT ROWID;
CREATE TABLE alias(model_id INTEGER NOT NULL REFERENCES model(id), name TEXT NOT NULL,
  version_id INTEGER NOT NULL REFERENCES version(id),
  PRIMARY KEY(model_id, name)) STRICT, WITHOUT ROWID;
CREATE INDEX alias_version ON alias(version_id);
CREATE TABLE alias_log(id INTEGER PRIMARY KEY, model_id INTEGER NOT NULL REFERENCES model(id),
  name TEXT NOT NULL, from_version INTEGER, to_version INTEGER, at_us INTEGER NOT NULL, "by" TEXT,
  reason TEXT) STRICT;
CREATE INDEX alias_log_model ON alias_log(model_id, id);
CREATE TABLE push(version_id INTEGER NOT NULL REFERENCES version(id), target TEXT NOT NULL,
  state INTEGER NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0,
  next_us INTEGER NOT NULL DEFAULT 0, remote TEXT, error TEXT,
  PRIMARY KEY(version_id, target)) STRICT, WITHOUT ROWID;
CREATE INDEX push_state ON push(target, state, next_us);
PRAGMA application_id=1213351239;
PRAGMA user_version=1;
)sql";
static_assert(kApplicationId == 1213351239);

Result<std::string> meta_value(Database* database, std::string_view key) {
  HR_TRY(auto select, database->prepare("SELECT value FROM meta WHERE key=?"));
  HR_TRY(const bool row, select.bind(key).step());
  return std::string(row ? select.text(0) : std::string_view());
}

Result<void> keep_newest_backups(const base::Path& backups) {
  std::vector<base::Path> files;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(backups, code)) {
    if (entry.path().extension() == ".db") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());  // names carry version and time
  for (size_t i = 0; i + kBackupsKept < files.size(); ++i) {
    std::filesystem::remove(files[i], code);
  }
  return {};
}

}  // namespace

Result<void> create_schema(Database* database, const std::string& uuid, int64_t now_us) {
  HR_TRY(database->execute(kSchema));
  HR_TRY(auto insert, database->prepare("INSERT INTO meta(key, value) VALUES(?, ?)"));
  const std::pair<const char*, std::string> rows[] = {{"uuid", uuid},
                                                      {"created_us", std::to_string(now_us)},
                                                      {"min_reader", "1"},
                                                      {"min_writer", "1"}};
  for (const auto& [key, value] : rows) {
    insert.reset();
    HR_TRY(insert.bind(std::string_view(key)).bind(std::string_view(value)).run());
  }
  return {};
}

namespace {

/// Refuse what asks for more than this code `does`: "reads" or "writes".
Result<void> check_format(Database* database, std::string_view key, const std::string& does,
                          int64_t ours, int64_t schema) {
  HR_TRY(const std::string asked, meta_value(database, key));
  const Json version = parse_json(asked).value_or(Json());
  if (version.is_integer() && version.integer() <= ours) {
    return {};
  }
  return Error{Errc::unsupported, "registry: " + database->path().string() + " has schema " +
                                      std::to_string(schema) + ", which needs a headrace that " +
                                      does + " registry format " + asked + "; this one " + does +
                                      " up to " + std::to_string(ours) + "; update headrace"};
}

}  // namespace

Result<void> check_schema_writable(Database* database, const SchemaState& schema) {
  return check_format(database, "min_writer", "writes", kWriterVersion, schema.version);
}

Result<SchemaState> read_schema(Database* database) {
  const std::string where = "registry: " + database->path().string();
  HR_TRY(const int64_t application, database->integer("PRAGMA application_id"));
  if (application != kApplicationId) {
    return Error{Errc::corrupt, where + " is no headrace registry (application id " +
                                    std::to_string(application) + ")"};
  }
  SchemaState state;
  HR_TRY(state.version, database->integer("PRAGMA user_version"));
  HR_TRY(check_format(database, "min_reader", "reads", kReaderVersion, state.version));
  HR_TRY(state.uuid, meta_value(database, "uuid"));
  return state;
}

Result<void> migrate_schema(Database* database, int64_t from, std::span<const Migration> steps) {
  for (const Migration& step : steps) {
    if (step.from >= from) {
      HR_TRY(in_context(database->execute(step.sql),
                        "migrating from schema " + std::to_string(step.from)));
      HR_TRY(database->execute(("PRAGMA user_version=" + std::to_string(step.from + 1)).c_str()));
    }
  }
  HR_TRY(auto check, database->prepare("PRAGMA foreign_key_check"));
  HR_TRY(const bool row, check.step());
  if (row) {
    return Error{Errc::corrupt, "registry: after the migration a row of table " +
                                    std::string(check.text(0)) + " points nowhere"};
  }
  return {};
}

Result<void> migrate_with_backup(Database* database, const base::Path& folder,
                                 std::span<const Migration> steps, int64_t target) {
  HR_TRY(const SchemaState schema, read_schema(database));  // again, now under the lock
  if (schema.version >= target) {
    return {};
  }
  const base::Path backups = folder / "backup";
  HR_TRY(base::make_folders(backups));
  std::string time = base::utc_text(base::system_clock().wall(), 6);
  std::erase(time, ':');
  const base::Path copy =
      backups / ("registry-" + std::to_string(schema.version) + "-" + time + ".db");
  HR_TRY(in_context(database->copy_to(copy), "backup before the migration"));
  HR_TRY(keep_newest_backups(backups));
  fault::point("migrate.after_backup");
  HR_TRY(auto transaction, Transaction::begin(database, true));
  HR_TRY(migrate_schema(database, schema.version, steps));
  fault::point("migrate.before_commit");
  return transaction.commit();
}

std::span<const Migration> migrations() { return {}; }

}  // namespace headrace::registry
