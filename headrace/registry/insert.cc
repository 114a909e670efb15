// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>

#include "headrace/base/environment.h"
#include "headrace/registry/model_file.h"
#include "headrace/registry/rows.h"

namespace headrace::registry {

namespace {

Result<int64_t> intern_model(Database* database, std::string_view name, int64_t now_us) {
  HR_TRY(auto insert, database->prepare("INSERT INTO model(name, created_us) VALUES(?, ?) "
                                        "ON CONFLICT(name) DO NOTHING"));
  HR_TRY(insert.bind(name).bind(now_us).run());
  return model_id(database, name);
}

Result<int64_t> next_version(Database* database, int64_t model) {
  HR_TRY(auto update, database->prepare("UPDATE model SET next_version=next_version+1 WHERE id=? "
                                        "RETURNING next_version-1"));
  HR_TRY(const bool row, update.bind(model).step());
  HR_CHECK(row, "the model was just found");
  const int64_t version = update.integer(0);
  HR_TRY(update.run());
  return version;
}

/// The number an import asks for when nobody has it here, else the next one.
Result<int64_t> wanted_version(Database* database, int64_t model, const PreparedVersion& prepared) {
  {
    HR_TRY(auto select, database->prepare("SELECT 1 FROM version WHERE model_id=? AND version=?"));
    HR_TRY(const bool taken, select.bind(model).bind(prepared.wanted_version).step());
    if (taken && prepared.must_keep) {
      return Error{Errc::mismatch, "registry: version " + std::to_string(prepared.wanted_version) +
                                       " of " + prepared.source->name +
                                       " is taken by another model; import without "
                                       "--keep-versions to give it a new number"};
    }
    if (taken) {
      return next_version(database, model);
    }
  }
  HR_TRY(auto update,
         database->prepare("UPDATE model SET next_version=max(next_version, ?) WHERE id=?"));
  HR_TRY(update.bind(prepared.wanted_version + 1).bind(model).run());
  return prepared.wanted_version;
}

Result<int64_t> intern_run(Database* database, const Lineage& lineage, int64_t now_us) {
  {
    HR_TRY(auto select, database->prepare("SELECT id FROM run WHERE uid=?"));
    HR_TRY(const bool row, select.bind(std::string_view(lineage.run)).step());
    if (row) {
      return select.integer(0);
    }
  }
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  const std::string user = base::environment("USER").value_or("");
  const std::string environment =
      lineage.environment.is_null() ? "" : lineage.environment.dump(0, true);
  const auto digest = from_hex(lineage.pipeline_digest);
  HR_TRY(auto insert,
         database->prepare("INSERT INTO run(uid, kind, parent_uid, pipeline_digest, code_version, "
                           "environment, host, user, started_us) VALUES(?,?,?,?,?,?,?,?,?)"));
  insert.bind(std::string_view(lineage.run))
      .bind_text_or_null(lineage.run_kind)
      .bind_text_or_null(lineage.parent_run);
  if (digest.empty()) {
    insert.bind_null();
  } else {
    insert.bind_blob(digest);
  }
  HR_TRY(insert.bind_text_or_null(lineage.code_version)
             .bind_text_or_null(environment)
             .bind(std::string_view(host))
             .bind_text_or_null(user)
             .bind(now_us)
             .run());
  return database->last_id();
}

/// Without user, password and query: tokens are never stored.
std::string stripped_url(const std::string& url) {
  std::string out = url.substr(0, url.find('?'));
  const size_t scheme = out.find("://");
  if (scheme == std::string::npos) {
    return url;
  }
  const size_t end = std::min(out.find('/', scheme + 3), out.size());
  const size_t at = out.rfind('@', end);
  if (at != std::string::npos && at > scheme + 2) {
    out.erase(scheme + 3, at - scheme - 2);
  }
  return out;
}

Result<int64_t> intern_snapshot(Database* database, const TableSnapshot& table) {
  const std::string url = stripped_url(table.url);
  const auto digest = from_hex(table.digest);
  HR_TRY(auto insert, database->prepare("INSERT INTO snapshot(url, format, version, digest, rows) "
                                        "VALUES(?,?,?,?,?) ON CONFLICT DO NOTHING"));
  insert.bind(std::string_view(url))
      .bind(std::string_view(table.format))
      .bind(std::string_view(table.version))
      .bind_blob(digest);
  if (table.rows < 0) {
    insert.bind_null();
  } else {
    insert.bind(table.rows);
  }
  HR_TRY(insert.run());
  HR_TRY(auto select, database->prepare("SELECT id FROM snapshot WHERE url=? AND format=? AND "
                                        "version=? AND digest=?"));
  HR_TRY(const bool row, select.bind(std::string_view(url))
                             .bind(std::string_view(table.format))
                             .bind(std::string_view(table.version))
                             .bind_blob(digest)
                             .step());
  HR_CHECK(row, "a snapshot that was just inserted is there");
  return select.integer(0);
}

/// Checksum of the weights as a model file of their own would have it: files of one item's attempts
/// differ in times, not in these.
std::string data_checksum(const ObjectStore& store, const StoredArtifact& artifact) {
  auto file = ModelFile::open(store.path_of(artifact.hash),
                              {.allow_nonfinite = true, .verify_checksum = false});
  if (file.ok() && artifact.slot) {
    file = file->item_at(*artifact.slot);
  }
  if (!file.ok()) {
    return {};
  }
  auto tensors = file->tensors();
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    const int64_t bits_a = dtype_bits(a.dtype);
    const int64_t bits_b = dtype_bits(b.dtype);
    return bits_a != bits_b ? bits_a > bits_b : a.name < b.name;
  });
  base::Xxh3Stream128 checksum;
  for (const TensorView& tensor : tensors) {
    checksum.update(tensor.data);
  }
  return base::hex(checksum.finish());
}

Result<void> compare_content(const ObjectStore& store, const Version& there,
                             const PreparedVersion& prepared) {
  for (const StoredArtifact& ours : prepared.artifacts) {
    const StoredArtifact* theirs = there.artifact(ours.path);
    if (theirs != nullptr && theirs->hash == ours.hash && theirs->slot == ours.slot) {
      continue;
    }
    if (theirs != nullptr && (ours.kind == "model" || ours.kind == "bundle")) {
      const std::string checksum = data_checksum(store, ours);
      if (!checksum.empty() && checksum == data_checksum(store, *theirs)) {
        continue;
      }
    }
    return Error{Errc::mismatch, "registry: the once key " + json_quote(there.once) +
                                     " belongs to " + there.reference() + ", whose " + ours.path +
                                     " has hash " + (theirs == nullptr ? "(none)" : theirs->hash) +
                                     "; the new content has " + ours.hash +
                                     "; use another key for another model"};
  }
  return {};
}

/// True when the once key is taken; fills `prepared` from the version that has it. A deleted one is
/// restored; one whose files gc took gives the key away.
Result<bool> find_once(Database* database, const ObjectStore& store, PreparedVersion* prepared) {
  HR_TRY(auto select, database->prepare("SELECT id, state FROM version WHERE once=?"));
  HR_TRY(const bool row, select.bind(std::string_view(*prepared->source->once)).step());
  if (!row) {
    return false;
  }
  const int64_t id = select.integer(0);
  const int64_t state = select.integer(1);
  select.reset();
  if (state == 2) {
    HR_TRY(auto free_key, database->prepare("UPDATE version SET once=NULL WHERE id=?"));
    HR_TRY(free_key.bind(id).run());
    return false;
  }
  HR_TRY(const Version there, read_version(database, id));
  HR_TRY(compare_content(store, there, *prepared));
  if (state == 1) {
    HR_TRY(restore_version(database, id));
  }
  prepared->id = id;
  prepared->version = there.version;
  prepared->existed = true;
  return true;
}

Result<void> insert_metrics(Database* database, int64_t id, std::span<const Metric> metrics) {
  HR_TRY(auto insert,
         database->prepare("INSERT INTO metric(version_id, key_id, value, step) VALUES(?,?,?,?)"));
  for (const Metric& metric : metrics) {
    HR_TRY(const int64_t key, database->key_id(metric.name));
    insert.reset();
    insert.bind(id).bind(key).bind(metric.value);
    HR_TRY((metric.step ? insert.bind(*metric.step) : insert.bind_null()).run());
  }
  return {};
}

Result<void> insert_artifacts(Database* database, const ObjectStore& store,
                              PreparedVersion* prepared) {
  HR_TRY(auto insert, database->prepare("INSERT INTO artifact(version_id, path, object_id, slot) "
                                        "VALUES(?,?,?,?)"));
  for (const StoredArtifact& artifact : prepared->artifacts) {
    if (!store.size_of(artifact.hash)) {
      // Where publish could only rename, nothing was left to put back.
      return Error{Errc::busy, "registry: gc took object " + artifact.hash +
                                   " before its row was there; try again, with a longer grace"};
    }
    HR_TRY(const int64_t object, intern_object(database, artifact, prepared->created.count()));
    insert.reset();
    insert.bind(prepared->id).bind(std::string_view(artifact.path)).bind(object);
    HR_TRY((artifact.slot ? insert.bind(*artifact.slot) : insert.bind_null()).run());
  }
  return {};
}

Result<void> insert_row(Database* database, PreparedVersion* prepared) {
  const NewVersion& source = *prepared->source;
  const Lineage& lineage = source.lineage;
  const int64_t now_us = prepared->created.count();
  HR_TRY(const int64_t model, intern_model(database, source.name, now_us));
  HR_TRY(prepared->version, prepared->wanted_version > 0
                                ? wanted_version(database, model, *prepared)
                                : next_version(database, model));
  int64_t run = 0;
  if (!lineage.run.empty()) {
    HR_TRY(run, intern_run(database, lineage, now_us));
  }
  int64_t snapshot = 0;
  if (lineage.table) {
    HR_TRY(snapshot, intern_snapshot(database, *lineage.table));
  }
  int64_t parent = 0;
  if (source.parent) {
    HR_TRY(const Reference reference, parse_reference(*source.parent));
    HR_TRY(parent, find_id(database, reference, true), "the parent of " + source.name);
  }
  const auto uid = from_hex(prepared->uid);
  const auto data_hash = from_hex(lineage.data_hash);
  HR_TRY(auto insert,
         database->prepare("INSERT INTO version(uid, model_id, version, once, run_id, item, "
                           "attempt, snapshot_id, data_hash, parent_id, kind, header, created_us) "
                           "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  const auto optional_id = [&insert](int64_t id) {
    static_cast<void>(id == 0 ? insert.bind_null() : insert.bind(id));
  };
  insert.bind_blob(uid).bind(model).bind(prepared->version);
  insert.bind_text_or_null(source.once ? std::string_view(*source.once) : std::string_view());
  optional_id(run);
  insert.bind_text_or_null(lineage.item);
  optional_id(lineage.attempt);
  optional_id(snapshot);
  static_cast<void>(data_hash.empty() ? insert.bind_null() : insert.bind_blob(data_hash));
  optional_id(parent);
  insert.bind(std::string_view(source.kind)).bind_text_or_null(prepared->header).bind(now_us);
  HR_TRY(insert.run());
  prepared->id = database->last_id();
  return {};
}

}  // namespace

std::vector<std::byte> from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

Result<int64_t> intern_object(Database* database, const StoredArtifact& artifact, int64_t now_us) {
  const auto hash = from_hex(artifact.hash);
  {
    HR_TRY(auto insert,
           database->prepare("INSERT INTO object(hash, bytes, kind, created_us) VALUES(?,?,?,?) "
                             "ON CONFLICT(hash) DO NOTHING"));
    HR_TRY(insert.bind_blob(hash)
               .bind(artifact.bytes)
               .bind(std::string_view(artifact.kind))
               .bind(now_us)
               .run());
  }
  HR_TRY(auto select, database->prepare("SELECT id FROM object WHERE hash=?"));
  HR_TRY(const bool row, select.bind_blob(hash).step());
  HR_CHECK(row, "an object that was just inserted is there");
  return select.integer(0);
}

Result<void> insert_pairs(Database* database, std::string_view sql, int64_t owner,
                          std::span<const Pair> pairs) {
  HR_TRY(auto insert, database->prepare(sql));
  for (const Pair& pair : pairs) {
    HR_TRY(const int64_t key, database->key_id(pair.name));
    insert.reset();
    HR_TRY(insert.bind(owner).bind(key).bind(std::string_view(pair.value)).run());
  }
  return {};
}

Result<void> restore_version(Database* database, int64_t id) {
  HR_TRY(auto update, database->prepare("UPDATE version SET state=0, deleted_us=NULL WHERE id=?"));
  return update.bind(id).run();
}

Result<bool> has_uid(Database* database, const std::string& uid) {
  HR_TRY(auto select, database->prepare("SELECT 1 FROM version WHERE uid=?"));
  const auto raw = from_hex(uid);
  return select.bind_blob(raw).step();
}

Result<void> insert_version(Database* database, const ObjectStore& store,
                            PreparedVersion* prepared) {
  const NewVersion& source = *prepared->source;
  prepared->existed = false;
  if (source.once) {
    HR_TRY(const bool found, find_once(database, store, prepared));
    if (found) {
      return {};
    }
  }
  HR_TRY(insert_row(database, prepared));
  HR_TRY(insert_artifacts(database, store, prepared));
  HR_TRY(insert_metrics(database, prepared->id, source.metrics));
  HR_TRY(insert_pairs(database, "INSERT INTO param(version_id, key_id, value) VALUES(?,?,?)",
                      prepared->id, source.params));
  HR_TRY(insert_pairs(database, "INSERT INTO tag(version_id, key_id, value) VALUES(?,?,?)",
                      prepared->id, source.tags));
  HR_TRY(auto push, database->prepare("INSERT INTO push(version_id, target) VALUES(?,?)"));
  for (const std::string& target : prepared->push_to) {
    push.reset();
    HR_TRY(push.bind(prepared->id).bind(std::string_view(target)).run());
  }
  return {};
}

}  // namespace headrace::registry
