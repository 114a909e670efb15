// SPDX-License-Identifier: Apache-2.0
// Find, make, check and migrate a registry folder.
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

#include "headrace/base/environment.h"
#include "headrace/base/file_lock.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/registry_internal.h"
#include "headrace/registry/schema.h"

namespace headrace::registry {

namespace {

constexpr std::string_view kFormatLine = "headrace-registry 1\n";

struct NetworkType {
  int64_t magic;
  const char* name;
};
// linux/magic.h, and the kernel sources of file systems that are not in it.
constexpr NetworkType kNetworkTypes[] = {
    {0x6969, "NFS"},      {0xFF534D42, "CIFS"},   {0xFE534D42, "SMB2"}, {0x517B, "SMB"},
    {0x65735546, "FUSE"}, {0x0BD00BD0, "Lustre"}, {0x01021997, "9p"},   {0x00C36400, "Ceph"},
    {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"}, {0x5346414F, "AFS"}};

Result<void> check_filesystem(const Path& folder) {
  struct statfs info = {};
  if (::statfs(folder.c_str(), &info) != 0) {
    return errno_error(errno, "asking for the file system of " + folder.string());
  }
  const int64_t pretended = fault::filesystem_type().load();
  const int64_t type = (pretended != 0 ? pretended : int64_t{info.f_type}) & 0xFFFFFFFF;
  for (const NetworkType& network : kNetworkTypes) {
    if (type == network.magic) {
      return Error{Errc::unsupported,
                   "registry: " + folder.string() + " lies on " + network.name +
                       ", where SQLite's shared memory and locks do not hold between hosts; put "
                       "the registry on a local disk, other hosts stage into its incoming/ folder"};
    }
  }
  return {};
}

/// uuid from FORMAT, "" when there is no such file.
Result<std::string> read_format(const Path& folder) {
  auto text = base::read_file(folder / "FORMAT", 4096);
  if (!text.ok()) {
    if (text.error().code() == Errc::not_found) {
      return std::string();
    }
    return std::move(text).error();
  }
  if (text->substr(0, kFormatLine.size()) != kFormatLine) {
    return Error{Errc::unsupported,
                 "registry: " + (folder / "FORMAT").string() + " says " +
                     json_quote(text->substr(0, text->find('\n'))) +
                     "; this headrace knows headrace-registry 1; update headrace"};
  }
  std::string uuid = text->substr(kFormatLine.size());
  uuid.resize(std::min(uuid.size(), uuid.find('\n')));
  return uuid;
}

/// Refuse to make a registry among somebody's other files.
Result<void> check_only_ours(const Path& folder) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "objects" || name == "tmp" || name == "trash" || name == "backup" ||
                      name == "incoming" || name == "writer.lock" ||
                      name.substr(0, 11) == "registry.db" ||
                      (name.substr(0, 6) == "FORMAT" && name != "FORMAT.part");  // of half a backup
    if (!ours) {
      return Error{Errc::invalid_argument, "registry: " + folder.string() +
                                               " is no registry, but holds other files (" + name +
                                               "); name an empty or new folder"};
    }
  }
  return {};
}

/// "mlflow:", "s3://bucket/r" and the like would otherwise become folders of that name.
Result<void> check_local(std::string_view place) {
  const auto is_letter = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
  const size_t colon = place.find(':');
  const std::string_view scheme = place.substr(0, colon);
  const bool foreign =
      colon != std::string_view::npos && scheme.size() > 1 && is_letter(scheme[0]) &&
      std::ranges::all_of(scheme, [&](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
      });
  if (!foreign) {
    return {};
  }
  const bool mlflow = scheme == "mlflow" || scheme == "models" || scheme == "databricks";
  return Error{
      Errc::unsupported,
      "registry: " + json_quote(place.substr(0, 600)) + " is no folder, and a registry is one; " +
          (mlflow ? "models of MLflow are taken into one by headrace.registry.open().fetch("
                    "\"models:/NAME@ALIAS\") in Python"
                  : "name one on a local disk (as ./" + std::string(scheme) +
                        ":... should it be called so); headrace models import takes versions "
                        "that lie elsewhere")};
}

Result<void> make_folder(const Path& folder, const OpenOptions& options) {
  std::error_code code;  // what stops us from looking stops mkdir too, which says so
  if (std::filesystem::exists(folder, code)) {
    return {};
  }
  if (folder.has_parent_path()) {
    HR_TRY(base::make_folders(folder.parent_path()));
  }
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error(errno, "making folder " + folder.string());
  }
  if (::chmod(folder.c_str(), options.shared_group ? 02770 : 0700) != 0) {
    return errno_error(errno, "setting the mode of " + folder.string());
  }
  return {};
}

/// A registry that was made for a group is that for whoever opens it.
bool is_shared(const Path& folder) {
  struct stat info = {};
  return ::stat(folder.c_str(), &info) == 0 && (info.st_mode & S_ISGID) != 0 &&
         (info.st_mode & S_IWGRP) != 0;
}

/// Under writer.lock. FORMAT comes last: without it the folder is no registry yet.
Result<void> create(const Path& folder, const OpenOptions& options, const ObjectStore& store) {
  const unsigned mode = options.shared_group ? 0660 : 0600;
  // An empty folder that somebody made keeps its mode, but for a group it must be the group's.
  if (options.shared_group && !is_shared(folder) && ::chmod(folder.c_str(), 02770) != 0) {
    return errno_error(errno, "setting the mode of " + folder.string());
  }
  HR_TRY(make_file(folder / "writer.lock", mode));
  HR_TRY(auto lock,
         base::FileLock::acquire(folder / "writer.lock", options.lock_timeout.count() / 1000,
                                 base::holder_description(options.command)));
  HR_TRY(const std::string there, read_format(folder));
  if (!there.empty()) {
    return {};  // another process was first
  }
  HR_TRY(store.make_folders());
  for (const char* name : {"incoming", "backup"}) {
    HR_TRY(make_folder(folder / name, options));
  }
  HR_TRY(auto database,
         Database::open(folder / "registry.db", {.mode = DatabaseMode::create, .file_mode = mode}));
  HR_TRY(database->execute("PRAGMA journal_mode=WAL"));
  HR_TRY(const int64_t application, database->integer("PRAGMA application_id"));
  if (application == 0) {
    fault::point("create.before_schema");
    HR_TRY(auto transaction, Transaction::begin(database.get(), true));
    HR_TRY(create_schema(database.get(), new_uid(), base::system_clock().wall().count()));
    HR_TRY(transaction.commit());
  }
  HR_TRY(const SchemaState schema, read_schema(database.get()));
  fault::point("create.before_format");
  return base::replace_file(folder / "FORMAT", std::string(kFormatLine) + schema.uuid + "\n", mode);
}

}  // namespace

Result<Path> registry_path(std::string_view option) {
  if (!option.empty()) {
    HR_TRY(check_local(option));
    return Path(option);
  }
  if (const auto from_environment = base::environment("HEADRACE_REGISTRY")) {
    HR_TRY(in_context(check_local(*from_environment), "HEADRACE_REGISTRY"));
    return Path(*from_environment);
  }
  if (const auto data = base::environment("XDG_DATA_HOME")) {
    return Path(*data) / "headrace" / "registry";
  }
  if (const auto home = base::environment("HOME")) {
    return Path(*home) / ".local" / "share" / "headrace" / "registry";
  }
  return Error{Errc::invalid_argument,
               "registry: no folder is known: name it with --registry, or set HEADRACE_REGISTRY, "
               "XDG_DATA_HOME or HOME"};
}

std::vector<std::string> push_targets() {
  const bool off = base::environment("HEADRACE_MLFLOW").value_or("") == "off";
  const bool named = base::environment("MLFLOW_TRACKING_URI").has_value();
  return named && !off ? std::vector<std::string>{"mlflow"} : std::vector<std::string>{};
}

Result<Registry> Registry::open(const Path& folder_given, const OpenOptions& given) {
  OpenOptions options = given;
  options.push_to = given.push_to.value_or(push_targets());
  std::error_code code;
  Path folder = std::filesystem::absolute(folder_given, code);  // later chdir must not matter
  if (folder.filename().empty()) {
    folder = folder.parent_path();
  }
  const bool create_it = options.create && !options.read_only;
  if (!std::filesystem::is_directory(folder, code)) {
    if (!create_it) {
      return Error{Errc::not_found, "registry: there is no registry at " + folder.string() +
                                        "; headrace forecast train or headrace models import "
                                        "makes one"};
    }
    const std::string how = " (HEADRACE_REGISTRY, --registry)";
    // Asked once: between two questions another process may have made the folder.
    const auto found = std::filesystem::status(folder, code);
    if (std::filesystem::exists(found) && !std::filesystem::is_directory(found)) {
      return Error{
          Errc::invalid_argument,
          "registry: " + folder.string() + " is a file, not a folder; name another place" + how};
    }
    auto made = make_folder(folder, options);
    if (!made.ok()) {
      const bool refused = made.error().code() == Errc::io;
      return Error{made.error().code(),
                   "registry: " + made.error().message() + (refused ? how : "")};
    }
  }
  HR_TRY(check_filesystem(folder));
  options.shared_group = options.shared_group || is_shared(folder);
  auto state = std::make_shared<State>(folder, options);
  HR_TRY(state->uuid, read_format(folder));
  if (state->uuid.empty()) {
    if (!create_it) {
      return Error{Errc::not_found, "registry: " + folder.string() + " is no headrace registry"};
    }
    HR_TRY(check_only_ours(folder));
    HR_TRY(in_context(create(folder, options, state->store),
                      "making the registry " + folder.string()));
    HR_TRY(state->uuid, read_format(folder));
  }
  SchemaState schema;
  {
    HR_TRY(auto database, state->readers.take());
    HR_TRY(schema, read_schema(database.get()));
    if (!options.read_only) {
      HR_TRY(check_schema_writable(database.get(), schema));
    }
  }
  if (schema.version < kSchemaVersion) {
    if (options.read_only) {
      return Error{Errc::unsupported, "registry: " + folder.string() + " has schema " +
                                          std::to_string(schema.version) +
                                          "; open it once for writing to migrate it"};
    }
    const auto move_on = [&](Database* database) {
      return migrate_with_backup(database, folder, migrations(), kSchemaVersion);
    };
    HR_TRY(state->writer.exclusive(move_on));
  }
  return Registry(std::move(state));
}

}  // namespace headrace::registry
