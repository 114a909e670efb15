// SPDX-License-Identifier: Apache-2.0
// Versions made on other hosts: staged as files and one JSON in a shared folder, taken in by the
// host that has the registry; docs/formats/export.md.
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

/// Of a staged version that is not taken in: its JSON under another name, out of the way of others.
Result<void> set_aside(const Path& json, const Error& why, ImportReport* report) {
  const Path aside = Path(json).replace_extension(".mismatch");
  if (std::rename(json.c_str(), aside.c_str()) != 0 && errno != ENOENT) {
    return errno_error(errno, "renaming " + json.string());
  }
  report->conflicts.push_back(why.message() + "; it lies at " + aside.string() + " now");
  return {};
}

Result<ForeignVersion> read_one(const Path& path) {
  HR_TRY(const std::string text, base::read_file(path, 2 * kHeaderBytesMax));
  HR_TRY(const Json json, parse_json(text, path.string(), {.depth_max = 64}));
  if (json.get_string("format") != kStageFormat) {
    return Error{Errc::unsupported, "registry: " + path.string() + " has format " +
                                        json_quote(json.get_string("format")) +
                                        "; this headrace reads " + std::string(kStageFormat)};
  }
  HR_TRY(auto foreign, foreign_from_json(json), path.string());
  foreign.same_origin = true;
  return foreign;
}

Result<std::vector<Staged>> read_staged(const Path& folder, ImportReport* report) {
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
    auto foreign = read_one(path);
    if (foreign.ok()) {
      staged.push_back({path, *std::move(foreign)});
      continue;
    }
    const Errc why = foreign.error().code();
    if (why == Errc::corrupt || why == Errc::invalid_argument) {
      HR_TRY(set_aside(path, foreign.error(), report));
    } else if (why != Errc::not_found) {  // not found: another import was faster
      report->conflicts.push_back(foreign.error().message());
    }
  }
  return staged;
}

/// Into the store with its hash checked; what is there already is fine (an import that was killed).
/// The staged file stays until the row is there.
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
  return store.publish(file.path(), object, folders);
}

Result<ImportReport> take_version(Registry::State* state, const Path& folder, const Staged& one) {
  std::set<Path> folders;
  for (const StoredArtifact& artifact : one.foreign.artifacts) {
    HR_TRY(take_file(folder, artifact, state->store, &folders));
  }
  HR_TRY(sync_all(folders));
  fault::point("incoming.before_rows");
  const auto put_back = [&](const StoredArtifact& artifact) -> Result<void> {
    std::set<Path> changed;
    HR_TRY(take_file(folder, artifact, state->store, &changed));
    return sync_all(changed);
  };
  return insert_foreign(state, std::span(&one.foreign, 1), {}, put_back);
}

/// What says nothing of the other staged versions.
bool is_its_own(Errc code) {
  return code == Errc::mismatch || code == Errc::corrupt || code == Errc::not_found ||
         code == Errc::invalid_argument;
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
  ImportReport total;
  HR_TRY(const auto staged, read_staged(folder, &total));
  std::map<std::string, int> uses;  // of a file, by the versions that are still staged
  for (const Staged& one : staged) {
    for (const StoredArtifact& artifact : one.foreign.artifacts) {
      ++uses[artifact.hash];
    }
  }
  for (const Staged& one : staged) {
    const auto taken = take_version(state_.get(), folder, one);
    std::error_code code;
    if (!taken.ok() && !is_its_own(taken.error().code())) {
      return taken.error();
    }
    if (!taken.ok() && taken.error().code() == Errc::mismatch) {
      HR_TRY(set_aside(one.json, taken.error(), &total));
      continue;
    }
    if (!taken.ok()) {  // staged again it may be whole; without its JSON another import took it
      if (std::filesystem::exists(one.json, code)) {
        total.conflicts.push_back(one.json.string() + ": " + taken.error().message());
      }
      continue;
    }
    fault::point("incoming.after_rows");
    total.added += taken->added;
    total.known += taken->known;
    if (::unlink(one.json.c_str()) != 0 && errno != ENOENT) {
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
