// SPDX-License-Identifier: Apache-2.0
// A consistent copy of a registry while others go on writing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "headrace/base/file_lock.h"
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

/// Locked while a backup is under way; stays where one was killed, which may then begin again.
constexpr const char* kUnderWay = "FORMAT.part";

Error not_empty(const Path& target) {
  return Error{Errc::already_exists,
               "registry: " + target.string() + " is not empty; name a new folder"};
}

/// The target, empty but for a locked kUnderWay. What a killed backup left there goes.
Result<base::FileLock> begin_folder(const Path& target) {
  std::error_code code;
  const bool begun = std::filesystem::exists(target / kUnderWay, code);
  if (!begun && std::filesystem::exists(target, code) && !std::filesystem::is_empty(target, code)) {
    return not_empty(target);
  }
  HR_TRY(base::make_folders(target));
  if (::chmod(target.c_str(), 0700) != 0) {  // as the registry itself
    return errno_error(errno, "setting the mode of " + target.string());
  }
  HR_TRY(auto lock, base::FileLock::acquire(target / kUnderWay, 0,
                                            base::holder_description("headrace models backup")));
  if (std::filesystem::exists(target / "FORMAT", code)) {  // it was finished
    return not_empty(target);
  }
  for (const char* name : {"registry.db", "registry.db-journal", "registry.db-wal",
                           "registry.db-shm", "objects", "tmp", "trash"}) {
    std::filesystem::remove_all(target / name, code);
    if (code) {
      return errno_error(code.value(), "removing the half backup " + (target / name).string());
    }
  }
  return lock;
}

}  // namespace

Result<void> Registry::backup(const Path& target) const {
  HR_TRY(const base::FileLock lock, begin_folder(target));
  fault::point("backup.begun");
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
      fault::point("backup.object");
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
  fault::point("backup.before_format");
  HR_TRY(
      base::replace_file(target / "FORMAT", "headrace-registry 1\n" + state_->uuid + "\n", 0600));
  fault::point("backup.after_format");
  if (::unlink((target / kUnderWay).c_str()) != 0) {
    return errno_error(errno, "removing " + (target / kUnderWay).string());
  }
  return {};
}

}  // namespace headrace::registry
