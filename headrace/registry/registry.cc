// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/registry.h"

#include <algorithm>

#include "headrace/registry/fault.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/listing.h"
#include "headrace/registry/name.h"
#include "headrace/registry/registry_internal.h"

namespace headrace::registry {

Result<ModelFile> BundleCache::open(const Path& path, const std::string& hash) {
  {
    base::MutexLock lock(mu_);
    const auto found = std::find_if(files_.begin(), files_.end(),
                                    [&](const auto& row) { return row.first == hash; });
    if (found != files_.end()) {
      files_.splice(files_.begin(), files_, found);
      return found->second;
    }
  }
  HR_TRY(auto file, ModelFile::open(path));
  if (file.item_count() > 0) {
    base::MutexLock lock(mu_);
    files_.emplace_front(hash, file);
    if (static_cast<int64_t>(files_.size()) > kOpenBundlesMax) {
      files_.pop_back();  // its mapping stays as long as somebody uses it
    }
  }
  return file;
}

Result<void> Registry::State::check_writable() const {
  if (options.read_only) {
    return Error{Errc::invalid_argument,
                 "registry: " + folder.string() + " was opened read-only; open it for writing"};
  }
  return readers.check_process();
}

Result<void> Registry::State::add_prepared(std::span<PreparedVersion> prepared) {
  HR_TRY(check_writable());
  std::vector<std::vector<PendingFile>> files;
  for (PreparedVersion& version : prepared) {
    HR_TRY(auto written, write_files(*version.source, version.header, store.tmp_folder()));
    files.push_back(std::move(written));
  }
  // Start all writes before waiting for one: the file system then commits them together.
  for (auto& of_version : files) {
    for (PendingFile& pending : of_version) {
      pending.file.start_sync();
    }
  }
  std::set<Path> folders;
  for (size_t i = 0; i < prepared.size(); ++i) {
    HR_TRY(publish_files(files[i], store, &prepared[i], &folders));
  }
  HR_TRY(sync_all(folders));
  fault::point("add.before_rows");
  const auto insert = [&](Database* database) -> Result<void> {
    for (size_t i = 0; i < prepared.size(); ++i) {
      HR_TRY(publish_missing(files[i], store));
      HR_TRY(insert_version(database, store, &prepared[i]));
    }
    return {};
  };
  HR_TRY(writer.run(insert));
  for (const PreparedVersion& version : prepared) {
    versions_added.add(version.existed ? 0 : 1);
    for (const StoredArtifact& artifact : version.artifacts) {
      bytes_added.add(version.existed ? 0 : static_cast<uint64_t>(artifact.bytes));
    }
  }
  return {};
}

Version version_of(const PreparedVersion& prepared) {
  const NewVersion& source = *prepared.source;
  Version version;
  version.id = prepared.id;
  version.uid = prepared.uid;
  version.name = source.name;
  version.version = prepared.version;
  version.kind = source.kind;
  version.once = source.once.value_or("");
  version.lineage = source.lineage;
  version.header = prepared.header.empty() ? Json() : parse_json(prepared.header).value_or(Json());
  version.created = prepared.created;
  version.metrics = source.metrics;
  version.params = source.params;
  version.tags = source.tags;
  version.artifacts = prepared.artifacts;
  return version;
}

Registry::Registry(std::shared_ptr<State> state) : state_(std::move(state)) {}
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;
Registry::~Registry() = default;

const Path& Registry::folder() const { return state_->folder; }
const std::string& Registry::uuid() const { return state_->uuid; }
Path Registry::object_path(std::string_view hash) const { return state_->store.path_of(hash); }

Result<void> Registry::check_writable() const {
  HR_TRY(state_->check_writable());
  HR_TRY(TempFile::create(state_->store.tmp_folder()));
  return {};
}

Result<Version> Registry::add(const NewVersion& version) {
  HR_TRY(auto versions, add_all(std::span(&version, 1)));
  return std::move(versions.front());
}

Result<std::vector<Version>> Registry::add_all(std::span<const NewVersion> versions) {
  HR_TRY(state_->check_writable());
  std::vector<PreparedVersion> prepared;
  for (const NewVersion& version : versions) {
    HR_TRY(auto one, prepare_version(version));
    one.push_to = *state_->options.push_to;
    prepared.push_back(std::move(one));
  }
  HR_TRY(state_->add_prepared(prepared));
  std::vector<Version> added;
  for (const PreparedVersion& one : prepared) {
    if (one.existed || one.source->parent) {
      HR_TRY(auto database, state_->readers.take());
      HR_TRY(auto stored, read_version(database.get(), one.id));
      added.push_back(std::move(stored));
    } else {
      added.push_back(version_of(one));
    }
  }
  return added;
}

Result<Version> Registry::find(std::string_view reference) const {
  HR_TRY(const auto parsed, parse_reference(reference));
  return find(parsed);
}

Result<Version> Registry::find(const Reference& reference) const {
  HR_TRY(auto database, state_->readers.take());
  HR_TRY(auto transaction, Transaction::begin(database.get(), false));
  HR_TRY(const int64_t id, find_id(database.get(), reference, false));
  return read_version(database.get(), id);
}

Result<Page> Registry::list(const Query& query) const {
  HR_TRY(auto database, state_->readers.take());
  return list_versions(database.get(), query);
}

Result<void> Registry::for_each(Query query,
                                const std::function<Result<void>(const Version&)>& body) const {
  do {
    HR_TRY(const Page page, list(query));
    for (const Version& version : page.versions) {
      HR_TRY(body(version));
    }
    query.cursor = page.next;
  } while (!query.cursor.empty());
  return {};
}

Result<int64_t> Registry::count(const Query& query) const {
  HR_TRY(auto database, state_->readers.take());
  return count_versions(database.get(), query);
}

Result<std::vector<AskedName>> Registry::unknown_names(const Query& query) const {
  HR_TRY(auto database, state_->readers.take());
  return find_unknown(database.get(), query);
}

Result<std::vector<std::string>> Registry::known_names(const std::string& table) const {
  HR_TRY(auto database, state_->readers.take());
  return list_names(database.get(), table);
}

Result<std::vector<ModelInfo>> Registry::models(std::string_view pattern, int64_t limit) const {
  HR_TRY(auto database, state_->readers.take());
  return list_models(database.get(), pattern, limit);
}

Result<Path> Registry::artifact_path(const Version& version, std::string_view path) const {
  const StoredArtifact* artifact = version.artifact(path);
  if (artifact == nullptr) {
    std::string names;
    for (const StoredArtifact& there : version.artifacts) {
      names += (names.empty() ? "" : ", ") + there.path;
    }
    return Error{Errc::not_found, "registry: " + version.reference() + " has no artifact " +
                                      json_quote(path) + "; it has " +
                                      (names.empty() ? "none" : names)};
  }
  const Path where = state_->store.path_of(artifact->hash);
  const auto bytes = state_->store.size_of(artifact->hash);
  if (bytes != artifact->bytes) {
    return Error{Errc::corrupt,
                 "registry: " + version.reference() + ": " + where.string() +
                     (bytes ? " has " + std::to_string(*bytes) + " bytes instead of " +
                                  std::to_string(artifact->bytes)
                            : std::string(" is not there")) +
                     "; headrace models verify shows what else is damaged"};
  }
  return where;
}

Result<ModelFile> Registry::load(const Version& version) const {
  HR_TRY(state_->readers.check_process());
  const auto found =
      std::find_if(version.artifacts.begin(), version.artifacts.end(),
                   [](const StoredArtifact& a) { return a.kind == "model" || a.kind == "bundle"; });
  if (found == version.artifacts.end()) {
    return Error{Errc::not_found, "registry: " + version.reference() + " (kind " + version.kind +
                                      ") has no model file; headrace models get copies its files"};
  }
  HR_TRY(const Path path, artifact_path(version, found->path));
  HR_TRY(auto file, state_->bundles.open(path, found->hash), version.reference());
  if (found->slot) {
    return file.item_at(*found->slot);
  }
  return file;
}

}  // namespace headrace::registry
