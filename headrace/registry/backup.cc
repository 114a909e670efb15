// SPDX-License-Identifier: Apache-2.0
// A consistent copy of a registry while others go on writing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "headrace/registry/fault.h"
#include "headrace/registry/registry_internal.h"
#include "headrace/registry/schema.h"

namespace headrace::registry {

namespace {

/// Hard link where possible: objects never change.
Result<void> take_object(const ObjectStore& from, const ObjectStore& to, const std::string& hash,
                         std::set<Path>* folders) {
  const Path source = from.path_of(hash);
  const Path target = to.path_of(hash);
  if (::mkdir(target.parent_path().c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error(errno, "making folder " + target.parent_path().string());
  }
  folders->insert(target.parent_path());
  if (::link(source.c_str(), target.c_str()) == 0 || errno == EEXIST) {
    return {};
  }
  if (errno == ENOENT) {
    return Error{Errc::not_found, "registry: object " + source.string() + " is not there"};
  }
  HR_TRY(auto file, TempFile::create(to.tmp_folder()));
  HR_TRY(file.copy_from(source));
  HR_TRY(const ObjectFile object, file.finish());
  if (object.hash != hash) {
    return Error{Errc::corrupt, "registry: object " + source.string() + " has content of hash " +
                                    object.hash + "; run headrace models verify --deep --repair"};
  }
  return to.publish(file.path(), object, folders);
}

/// Objects of the copy, with whether a ready version needs each.
Result<std::vector<std::pair<std::string, bool>>> objects_of(Database* database) {
  HR_TRY(auto select,
         database->prepare("SELECT o.hash, max(v.state=0) FROM artifact a JOIN object o ON "
                           "o.id=a.object_id JOIN version v ON v.id=a.version_id GROUP BY o.id"));
  std::vector<std::pair<std::string, bool>> objects;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return objects;
    }
    objects.emplace_back(base::hex(select.blob(0)), select.integer(1) != 0);
  }
}

}  // namespace

Result<void> Registry::backup(const Path& target) const {
  std::error_code code;
  if (std::filesystem::exists(target, code) && !std::filesystem::is_empty(target, code)) {
    return Error{Errc::already_exists,
                 "registry: " + target.string() + " is not empty; name a new folder"};
  }
  HR_TRY(base::make_folders(target));
  if (::chmod(target.c_str(), 0700) != 0) {  // as the registry itself
    return errno_error(errno, "setting the mode of " + target.string());
  }
  const ObjectStore store(target);
  HR_TRY(store.make_folders());
  const Path copy = target / "registry.db";
  {
    HR_TRY(auto database, state_->readers.take());
    HR_TRY(in_context(database->copy_to(copy), "backup"));
  }
  std::set<Path> folders = {target, store.objects_folder()};
  {
    HR_TRY(auto database, Database::open(copy, {.mode = DatabaseMode::read_write}));
    HR_TRY(const auto objects, objects_of(database.get()));
    for (const auto& [hash, ready] : objects) {
      auto taken = take_object(state_->store, store, hash, &folders);
      // A deleted version may lose its files to gc between the copy and here.
      if (!taken.ok() && (ready || taken.error().code() != Errc::not_found)) {
        return taken;
      }
    }
  }
  for (const Path& folder : folders) {
    HR_TRY(base::sync_folder(folder));
  }
  HR_TRY(auto fd, base::open_file(copy, O_RDONLY));
  HR_TRY(base::sync_data(fd.get(), copy));
  return base::replace_file(target / "FORMAT", "headrace-registry 1\n" + state_->uuid + "\n", 0600);
}

}  // namespace headrace::registry
