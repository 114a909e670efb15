// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/rows.h"

#include <algorithm>
#include <limits>

#include "headrace/base/checksum.h"

namespace headrace::registry {

namespace {

Error not_there(const Reference& reference, const std::string& why) {
  return Error{Errc::not_found, "registry: " + reference_text(reference) + ": " + why};
}

/// What a model that lacks the wanted version has instead.
Result<std::string> versions_text(Database* database, int64_t model) {
  HR_TRY(auto select, database->prepare("SELECT count(*), min(version), max(version) FROM version "
                                        "WHERE model_id=? AND state=0"));
  HR_TRY(const bool row, select.bind(model).step());
  if (!row || select.integer(0) == 0) {
    return std::string("it has no ready version (deleted ones can be restored)");
  }
  return "it has " + std::to_string(select.integer(0)) + " ready versions from " +
         std::to_string(select.integer(1)) + " to " + std::to_string(select.integer(2));
}

Result<std::string> aliases_text(Database* database, int64_t model) {
  HR_TRY(auto select, database->prepare("SELECT name FROM alias WHERE model_id=? ORDER BY name"));
  select.bind(model);
  std::string text;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return text.empty() ? std::string("it has no alias") : "its aliases are " + text;
    }
    text += (text.empty() ? "" : ", ") + std::string(select.text(0));
  }
}

Result<int64_t> find_in_model(Database* database, const Reference& reference,
                              bool include_deleted) {
  HR_TRY(const int64_t model, model_id(database, reference.name));
  if (reference.kind == Reference::Kind::alias) {
    HR_TRY(auto select,
           database->prepare("SELECT version_id FROM alias WHERE model_id=? AND name=?"));
    HR_TRY(const bool row, select.bind(model).bind(std::string_view(reference.alias)).step());
    if (!row) {
      HR_TRY(const std::string there, aliases_text(database, model));
      return not_there(reference, "the model has no such alias; " + there);
    }
    return select.integer(0);
  }
  const bool latest = reference.kind == Reference::Kind::latest;
  HR_TRY(auto select,
         database->prepare(latest ? "SELECT id, state FROM version WHERE model_id=? AND state<=? "
                                    "ORDER BY version DESC LIMIT 1"
                                  : "SELECT id, state FROM version WHERE model_id=? AND state<=? "
                                    "AND version=?"));
  select.bind(model).bind(int64_t{include_deleted && !latest ? 2 : 0});
  if (!latest) {
    select.bind(reference.version);
  }
  HR_TRY(const bool row, select.step());
  if (!row) {
    HR_TRY(const std::string there, versions_text(database, model));
    return not_there(reference, "no such version; " + there);
  }
  return select.integer(0);
}

/// What to name instead of a model that is not there: it may be the name of a set.
Result<std::string> models_below_text(Database* database, std::string_view name) {
  // '0' is the character after '/'.
  HR_TRY(auto select, database->prepare("SELECT count(*), min(name) FROM model WHERE name>? AND "
                                        "name<? AND EXISTS (SELECT 1 FROM version WHERE "
                                        "model_id=model.id AND state=0)"));
  const std::string from = std::string(name) + "/";
  const std::string to = std::string(name) + "0";
  HR_TRY(const bool row, select.bind(std::string_view(from)).bind(std::string_view(to)).step());
  const int64_t count = row ? select.integer(0) : 0;
  if (count == 0) {
    return std::string("headrace models list shows what there is");
  }
  return (count == 1 ? "there is one model below it, "
                     : "there are " + std::to_string(count) + " models below it, such as ") +
         std::string(select.text(1)) + "; name one, or " + json_quote(from + "*") +
         " where a set is taken";
}

Result<int64_t> find_by_uid(Database* database, const Reference& reference, bool include_deleted) {
  HR_TRY(auto select, database->prepare("SELECT id FROM version WHERE uid=? AND state<=?"));
  const auto uid = from_hex(reference.uid);
  HR_TRY(const bool row, select.bind_blob(uid).bind(int64_t{include_deleted ? 2 : 0}).step());
  if (!row) {
    return not_there(reference, "no version has this uid");
  }
  return select.integer(0);
}

Result<int64_t> find_by_run(Database* database, const Reference& reference, bool include_deleted) {
  HR_TRY(auto select,
         database->prepare("SELECT v.id FROM run r JOIN version v ON v.run_id=r.id AND v.item=? "
                           "WHERE r.uid=? AND v.state<=? ORDER BY v.id DESC LIMIT 1"));
  HR_TRY(const bool row, select.bind(std::string_view(reference.item))
                             .bind(std::string_view(reference.run))
                             .bind(int64_t{include_deleted ? 2 : 0})
                             .step());
  if (!row) {
    return not_there(reference, "no version came from this run and item");
  }
  return select.integer(0);
}

/// Run `sql` for each version and hand its rows over.
template <typename Body>
Result<void> for_details(Database* database, std::string_view sql, std::span<Version> versions,
                         const Body& body) {
  HR_TRY(auto select, database->prepare(sql));
  for (Version& version : versions) {
    select.reset();
    select.bind(version.id);
    for (;;) {
      HR_TRY(const bool row, select.step());
      if (!row) {
        break;
      }
      body(select, version);
    }
  }
  return {};
}

}  // namespace

Result<int64_t> model_id(Database* database, std::string_view name) {
  HR_TRY(auto select, database->prepare("SELECT id FROM model WHERE name=?"));
  HR_TRY(const bool row, select.bind(name).step());
  if (!row) {
    HR_TRY(const std::string hint, models_below_text(database, name));
    return Error{Errc::not_found, "registry: there is no model " + json_quote(name) + "; " + hint};
  }
  return select.integer(0);
}

Result<int64_t> find_id(Database* database, const Reference& reference, bool include_deleted) {
  switch (reference.kind) {
    case Reference::Kind::uid: return find_by_uid(database, reference, include_deleted);
    case Reference::Kind::run_item: return find_by_run(database, reference, include_deleted);
    default: return find_in_model(database, reference, include_deleted);
  }
}

std::string version_select(bool with_header) {
  return std::string(
             "SELECT v.id, v.uid, m.name, v.version, v.state, v.once, v.item, v.attempt, "
             "v.data_hash, v.kind, v.created_us, v.deleted_us, r.uid, r.kind, r.parent_uid, "
             "r.pipeline_digest, r.code_version, r.environment, s.url, s.format, s.version, "
             "s.digest, s.rows, p.uid, r.status, r.started_us, r.ended_us") +
         (with_header ? ", v.header" : "") +
         " FROM model m JOIN version v ON v.model_id=m.id LEFT JOIN run r ON r.id=v.run_id "
         "LEFT JOIN snapshot s ON s.id=v.snapshot_id LEFT JOIN version p ON p.id=v.parent_id ";
}

Version read_row(const Statement& row, bool with_header) {
  Version version;
  version.id = row.integer(0);
  version.uid = base::hex(row.blob(1));
  version.name = row.text(2);
  version.version = row.integer(3);
  version.deleted = row.integer(4) != 0;
  version.once = row.text(5);
  version.lineage.item = row.text(6);
  version.lineage.attempt = row.integer(7);
  version.lineage.data_hash = base::hex(row.blob(8));
  version.kind = row.text(9);
  version.created = base::Micros(row.integer(10));
  version.deleted_at = base::Micros(row.integer(11));
  version.lineage.run = row.text(12);
  version.lineage.run_kind = row.text(13);
  version.lineage.parent_run = row.text(14);
  version.lineage.pipeline_digest = base::hex(row.blob(15));
  version.lineage.code_version = row.text(16);
  if (!row.is_null(17)) {
    version.lineage.environment = parse_json(row.text(17)).value_or(Json());
  }
  if (!row.is_null(18)) {
    version.lineage.table = TableSnapshot{std::string(row.text(18)), std::string(row.text(19)),
                                          std::string(row.text(20)), base::hex(row.blob(21)),
                                          row.is_null(22) ? -1 : row.integer(22)};
  }
  version.parent = base::hex(row.blob(23));
  version.lineage.run_status = row.text(24);
  version.lineage.run_started = base::Micros(row.integer(25));
  version.lineage.run_ended = base::Micros(row.integer(26));
  if (with_header && !row.is_null(27)) {
    version.header = parse_json(row.text(27)).value_or(Json());
  }
  return version;
}

Result<Version> read_version(Database* database, int64_t id) {
  Version version;
  {
    static const std::string sql = version_select(true) + "WHERE v.id=?";
    HR_TRY(auto select, database->prepare(sql));
    HR_TRY(const bool row, select.bind(id).step());
    if (!row) {
      return Error{Errc::not_found, "registry: no version has id " + std::to_string(id)};
    }
    version = read_row(select, true);
  }
  HR_TRY(read_details(database, std::span(&version, 1)));
  return version;
}

Result<void> read_details(Database* database, std::span<Version> versions) {
  HR_TRY(for_details(database,
                     "SELECT k.name, t.value, t.step FROM metric t JOIN key k ON k.id=t.key_id "
                     "WHERE t.version_id=? ORDER BY k.name",
                     versions, [](const Statement& row, Version& version) {
                       Metric metric{std::string(row.text(0)), row.real(1), std::nullopt};
                       if (row.is_null(1)) {  // SQLite has no NaN
                         metric.value = std::numeric_limits<double>::quiet_NaN();
                       }
                       if (!row.is_null(2)) {
                         metric.step = row.integer(2);
                       }
                       version.metrics.push_back(std::move(metric));
                     }));
  const auto pairs = [&](std::string_view sql, std::vector<Pair> Version::* member) {
    return for_details(database, sql, versions, [member](const Statement& row, Version& version) {
      (version.*member).push_back({std::string(row.text(0)), std::string(row.text(1))});
    });
  };
  HR_TRY(
      pairs("SELECT k.name, t.value FROM param t JOIN key k ON k.id=t.key_id "
            "WHERE t.version_id=? ORDER BY k.name",
            &Version::params));
  HR_TRY(
      pairs("SELECT k.name, t.value FROM tag t JOIN key k ON k.id=t.key_id "
            "WHERE t.version_id=? ORDER BY k.name",
            &Version::tags));
  HR_TRY(for_details(
      database, "SELECT name FROM alias WHERE version_id=? ORDER BY name", versions,
      [](const Statement& row, Version& version) { version.aliases.emplace_back(row.text(0)); }));
  return for_details(database,
                     "SELECT a.path, o.hash, o.bytes, o.kind, a.slot FROM artifact a JOIN object o "
                     "ON o.id=a.object_id WHERE a.version_id=? ORDER BY a.path",
                     versions, [](const Statement& row, Version& version) {
                       StoredArtifact artifact{std::string(row.text(0)), base::hex(row.blob(1)),
                                               row.integer(2), std::string(row.text(3)),
                                               std::nullopt};
                       if (!row.is_null(4)) {
                         artifact.slot = row.integer(4);
                       }
                       version.artifacts.push_back(std::move(artifact));
                     });
}

}  // namespace headrace::registry
