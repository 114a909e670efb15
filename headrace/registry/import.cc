// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/import.h"

#include "headrace/registry/limits.h"
#include "headrace/registry/name.h"
#include "headrace/registry/version_json.h"

namespace headrace::registry {

namespace {

Error bad(const std::string& what) {
  return Error{Errc::corrupt, "registry: imported version: " + what};
}

Result<StoredArtifact> artifact_from_json(const Json& json) {
  StoredArtifact artifact;
  artifact.path = json.get_string("path");
  artifact.hash = json.get_string("hash");
  artifact.kind = json.get_string("kind");
  artifact.bytes = json.get_integer("bytes", -1);
  HR_TRY(check_artifact_path(artifact.path));
  HR_TRY(check_key(artifact.kind, "artifact kind"));
  if (!parse_hash(artifact.hash) || artifact.bytes < 0 || artifact.bytes > kFileBytesMax) {
    return bad("artifact " + json_quote(artifact.path) + " has no valid hash or size");
  }
  if (const Json* slot = json.find("slot"); slot != nullptr && !slot->is_null()) {
    if (!slot->is_integer() || slot->integer() < 0 || slot->integer() >= kTensorsMax) {
      return bad("artifact " + json_quote(artifact.path) + " has an impossible slot");
    }
    artifact.slot = slot->integer();
  }
  return artifact;
}

Result<bool> is_taken(Database* database, const std::string& once) {
  HR_TRY(auto select, database->prepare("SELECT 1 FROM version WHERE once=?"));
  return select.bind(std::string_view(once)).step();
}

/// What points to rows that are not here is left out rather than refused.
Result<NewVersion> without_absent(Database* database, const ForeignVersion& foreign) {
  NewVersion out = foreign.version;
  if (out.once && !foreign.same_origin) {
    HR_TRY(const bool taken, is_taken(database, *out.once));
    if (taken) {
      out.once.reset();
    }
  }
  if (out.parent) {
    HR_TRY(const Reference parent, parse_reference(*out.parent));
    if (!find_id(database, parent, true).ok()) {
      out.parent.reset();
    }
  }
  return out;
}

Result<void> insert_aliases(Database* database, const PreparedVersion& prepared,
                            const ForeignVersion& foreign) {
  HR_TRY(const int64_t model, model_id(database, foreign.version.name));
  for (const std::string& alias : foreign.aliases) {
    HR_TRY(auto insert, database->prepare("INSERT INTO alias(model_id, name, version_id) "
                                          "VALUES(?,?,?) ON CONFLICT DO NOTHING"));
    HR_TRY(insert.bind(model).bind(std::string_view(alias)).bind(prepared.id).run());
    if (database->changes() == 0) {
      continue;  // ours stays
    }
    HR_TRY(auto log, database->prepare("INSERT INTO alias_log(model_id, name, to_version, at_us, "
                                       "reason) VALUES(?,?,?,?,'imported')"));
    HR_TRY(log.bind(model)
               .bind(std::string_view(alias))
               .bind(prepared.version)
               .bind(int64_t{base::system_clock().wall().count()})
               .run());
  }
  return {};
}

/// Whether the version is a new one here, and not what its once key stands for already.
Result<bool> insert_one(Database* database, Registry::State* state, const ForeignVersion& foreign,
                        const TarOptions& options) {
  HR_TRY(const NewVersion version, without_absent(database, foreign));
  PreparedVersion prepared;
  prepared.source = &version;
  prepared.uid = foreign.uid;
  prepared.created = foreign.created;
  prepared.wanted_version = foreign.number;
  prepared.must_keep = options.keep_versions;
  prepared.artifacts = foreign.artifacts;
  prepared.push_to = *state->options.push_to;
  if (!version.header.is_null()) {
    prepared.header = version.header.dump(0, true);
  }
  HR_TRY(insert_version(database, state->store, &prepared));
  HR_TRY(insert_aliases(database, prepared, foreign));
  return !prepared.existed;
}

}  // namespace

Json foreign_json(const ForeignVersion& foreign) {
  Json artifacts = Json::array();
  for (const StoredArtifact& artifact : foreign.artifacts) {
    Json row = Json::object({{"path", artifact.path},
                             {"hash", artifact.hash},
                             {"bytes", artifact.bytes},
                             {"kind", artifact.kind}});
    if (artifact.slot) {
      row.set("slot", *artifact.slot);
    }
    artifacts.push_back(std::move(row));
  }
  Json aliases = Json::array();
  for (const std::string& alias : foreign.aliases) {
    aliases.push_back(alias);
  }
  Json out = new_version_json(foreign.version);
  out.set("uid", foreign.uid);
  out.set("created_us", int64_t{foreign.created.count()});
  out.set("version", foreign.number);
  out.set("artifacts", std::move(artifacts));
  out.set("aliases", std::move(aliases));
  return out;
}

Result<ForeignVersion> foreign_from_json(const Json& json) {
  ForeignVersion foreign;
  HR_TRY(foreign.version, new_version_from_json(json));
  {
    NewVersion checked = foreign.version;
    if (checked.header.is_null()) {
      checked.header = Json::object();  // items of bundles may have none
    }
    HR_TRY(check_version(checked));
    if (static_cast<int64_t>(foreign.version.header.dump().size()) > kHeaderBytesMax) {
      return bad("the header of " + foreign.version.name + " is too large");
    }
  }
  foreign.uid = json.get_string("uid");
  foreign.created = base::Micros(json.get_integer("created_us"));
  foreign.number = json.get_integer("version");
  if (!parse_hash(foreign.uid + foreign.uid) || foreign.number < 0 ||
      foreign.number >= INT64_MAX / 2) {
    return bad(foreign.version.name + " has no valid uid or number");
  }
  const Json* artifacts = json.find("artifacts");
  if (artifacts == nullptr || !artifacts->is_array() ||
      static_cast<int64_t>(artifacts->items().size()) > kArtifactsMax) {
    return bad(foreign.version.name + " has no list of artifacts within the limit");
  }
  std::set<std::string> paths;
  for (const Json& row : artifacts->items()) {
    HR_TRY(auto artifact, artifact_from_json(row));
    if (!paths.insert(artifact.path).second) {
      return bad("artifact " + json_quote(artifact.path) + " stands twice");
    }
    foreign.artifacts.push_back(std::move(artifact));
  }
  if (const Json* aliases = json.find("aliases"); aliases != nullptr && aliases->is_array()) {
    for (const Json& alias : aliases->items()) {
      HR_TRY(check_alias(alias.is_string() ? alias.string() : ""));
      foreign.aliases.push_back(alias.string());
    }
  }
  return foreign;
}

Result<ImportReport> insert_foreign(Registry::State* state,
                                    std::span<const ForeignVersion> versions,
                                    const TarOptions& options, const PutBack& put_back) {
  ImportReport report;
  const auto insert = [&](Database* database) -> Result<void> {
    report = {};
    for (const ForeignVersion& foreign : versions) {
      HR_TRY(const bool known, has_uid(database, foreign.uid));
      if (known) {
        ++report.known;
        continue;
      }
      for (const StoredArtifact& artifact : foreign.artifacts) {
        if (!state->store.size_of(artifact.hash)) {
          HR_TRY(put_back(artifact));
        }
      }
      HR_TRY(const bool is_new, insert_one(database, state, foreign, options));
      ++(is_new ? report.added : report.known);
    }
    return {};
  };
  HR_TRY(state->writer.run(insert));
  return report;
}

}  // namespace headrace::registry
