// SPDX-License-Identifier: Apache-2.0
// Versions made on other hosts: staged as files and one JSON in a shared folder, taken in by the
// host that has the registry; docs/formats/incoming.md.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "headrace/registry/fault.h"
#include "headrace/registry/import.h"
#include "headrace/registry/limits.h"

namespace headrace::registry {

namespace {

constexpr std::string_view kStageFormat = "headrace-incoming/1";
constexpr size_t kUidDigits = 32;

struct Staged {
  Path json;
  ForeignVersion foreign;
};

Result<std::vector<Staged>> read_staged(const Path& folder) {
  std::vector<Path> files;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const Path& path = entry.path();
    if (path.extension() == ".json" && path.stem().string().size() == kUidDigits) {
      files.push_back(path);
    }
  }
  if (code) {
    return errno_error(code.value(), "listing " + folder.string());
  }
  std::sort(files.begin(), files.end());
  std::vector<Staged> staged;
  for (const Path& path : files) {
    HR_TRY(const std::string text, base::read_file(path, 2 * kHeaderBytesMax));
    HR_TRY(const Json json, parse_json(text, path.string(), {.depth_max = 64}));
    if (json.get_string("format") != kStageFormat) {
      return Error{Errc::unsupported, "registry: " + path.string() + " has format " +
                                          json_quote(json.get_string("format")) +
                                          "; this headrace reads " + std::string(kStageFormat)};
    }
    HR_TRY(auto foreign, foreign_from_json(json), path.string());
    foreign.same_origin = true;
    staged.push_back({path, std::move(foreign)});
  }
  return staged;
}

/// Into the store with its hash checked; what is there already is fine (an import that was killed).
Result<void> take_file(const Path& folder, const StoredArtifact& artifact, const ObjectStore& store,
                       std::set<Path>* folders) {
  const Path source = folder / artifact.hash;
  std::error_code code;
  if (!std::filesystem::exists(source, code) && store.size_of(artifact.hash) == artifact.bytes) {
    return {};
  }
  HR_TRY(auto file, TempFile::create(store.tmp_folder()));
  HR_TRY(in_context(file.copy_from(source), "taking in " + artifact.path));
  HR_TRY(const ObjectFile object, file.finish());
  if (object.hash != artifact.hash || object.bytes != artifact.bytes) {
    return Error{Errc::corrupt, "registry: " + source.string() + " has content of hash " +
                                    object.hash + "; stage it again"};
  }
  return store.publish(std::move(file), object, folders);
}

}  // namespace

Result<std::string> stage(const Path& folder, const NewVersion& version) {
  HR_TRY(base::make_folders(folder));
  HR_TRY(auto prepared, prepare_version(version));
  HR_TRY(auto files, write_files(version, prepared.header, folder));
  ForeignVersion foreign;
  foreign.version = version;
  HR_TRY(foreign.version.header, parse_json(prepared.header));
  foreign.version.tensors.clear();
  foreign.version.artifacts.clear();
  foreign.uid = prepared.uid;
  foreign.created = prepared.created;
  for (PendingFile& pending : files) {
    HR_TRY(const ObjectFile object, pending.file.finish());
    const Path target = folder / object.hash;
    if (std::rename(pending.file.path().c_str(), target.c_str()) != 0) {
      return errno_error(errno, "renaming to " + target.string());
    }
    pending.file.keep();
    foreign.artifacts.push_back(
        {pending.path, object.hash, object.bytes, pending.kind, std::nullopt});
  }
  HR_TRY(base::sync_folder(folder));
  fault::point("stage.before_json");
  Json json = foreign_json(foreign);
  json.set("format", kStageFormat);
  HR_TRY(base::replace_file(folder / (prepared.uid + ".json"), json.dump(0, true), 0644));
  return prepared.uid;
}

Result<ImportReport> Registry::import_incoming(const Path& folder) {
  HR_TRY(state_->check_writable());
  HR_TRY(const auto staged, read_staged(folder));
  ImportReport total;
  std::map<std::string, int> uses;  // of a file, by the versions that are still staged
  for (const Staged& one : staged) {
    for (const StoredArtifact& artifact : one.foreign.artifacts) {
      ++uses[artifact.hash];
    }
  }
  for (const Staged& one : staged) {
    std::set<Path> folders;
    for (const StoredArtifact& artifact : one.foreign.artifacts) {
      HR_TRY(take_file(folder, artifact, state_->store, &folders));
    }
    for (const Path& changed : folders) {
      HR_TRY(base::sync_folder(changed));
    }
    fault::point("incoming.before_rows");
    HR_TRY(const ImportReport report, insert_foreign(state_.get(), std::span(&one.foreign, 1), {}));
    fault::point("incoming.after_rows");
    total.added += report.added;
    total.known += report.known;
    if (::unlink(one.json.c_str()) != 0) {
      return errno_error(errno, "removing " + one.json.string());
    }
    // At once, so that a later version that cannot be taken leaves nothing of this one behind.
    for (const StoredArtifact& artifact : one.foreign.artifacts) {
      if (--uses[artifact.hash] == 0) {
        ::unlink((folder / artifact.hash).c_str());
      }
    }
  }
  return total;
}

}  // namespace headrace::registry
