// SPDX-License-Identifier: Apache-2.0
// Models, versions, aliases and their files in one folder: add durably, find in milliseconds, load
// by mapping, survive kill -9 at any instruction with many processes writing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/registry/model_file.h"
#include "headrace/registry/reference.h"
#include "headrace/registry/types.h"

namespace headrace::base {
class Board;
}

namespace headrace::registry {

/// Folder of the registry: `option` when not empty, else HEADRACE_REGISTRY, else
/// $XDG_DATA_HOME/headrace/registry, else ~/.local/share/headrace/registry.
HR_API Result<Path> registry_path(std::string_view option);

/// For OpenOptions::push_to: {"mlflow"} when MLFLOW_TRACKING_URI is set and HEADRACE_MLFLOW is not
/// "off", else nothing.
HR_API std::vector<std::string> push_targets();

enum class Durability {
  power_loss,  ///< what `add` returned survives a power cut
  process,     ///< it survives kill -9; a power cut may lose the last changes, never tear one
};

struct OpenOptions {
  bool create = true;      ///< false: a folder without registry is `not_found`
  bool read_only = false;  ///< never writes, never migrates; every change is `invalid_argument`
  base::Micros lock_timeout = std::chrono::seconds(30);
  Durability durability = Durability::power_loss;
  /// A new registry is its group's: folders 2770 and files 0660 instead of 0700 and 0600. One that
  /// is there is found to be so by its folder's mode.
  bool shared_group = false;
  std::string command = "headrace";  ///< stands in writer.lock for those who wait
  base::Board* board =
      nullptr;  ///< where registry.* is counted, if anywhere; outlives the registry
  /// Targets that get a `push` row with every version; not given: push_targets().
  std::optional<std::vector<std::string>> push_to = {};
};

/// How a run ended, for the versions that it registered.
struct RunEnd {
  std::string run = {};              ///< its uid
  std::string status = {};           ///< "Succeeded", "Failed", "Cancelled"
  std::string pipeline_digest = {};  ///< hex, BLAKE2b-256 of the document; "" = as it stands
  base::Micros started{0};           ///< 0 = as it stands
  base::Micros ended{0};
};

struct TarOptions {
  bool keep_versions = false;  ///< import: a taken number is `mismatch` instead of a new number
};

struct ImportReport {
  int64_t added = 0;
  int64_t known = 0;  ///< the uid was there already, or the once key with the same content
  /// Staged versions that were left out, each with the reason. When its once key belongs to other
  /// content, or its JSON is damaged, that is renamed to .mismatch; others are tried again.
  std::vector<std::string> conflicts = {};
};

/// One registry. Thread-safe; open files and statements are pooled inside. After fork() every call
/// in the child fails: open again there.
///
/// Codes that a caller may act on: `not_found` (no such model, version, alias), `busy` (the lock
/// was not free within lock_timeout; the message names pid, host and since when), `out_of_space`,
/// `mismatch` (once key with other content, compare-and-set), `corrupt`, `unsupported` (newer
/// format, network file system).
class HR_API Registry {
 public:
  struct State;
  static Result<Registry> open(const Path& folder, const OpenOptions& options = {});
  Registry(Registry&&) noexcept;
  Registry& operator=(Registry&&) noexcept;
  ~Registry();

  const Path& folder() const;
  /// The same in every copy of the folder.
  const std::string& uuid() const;

  /// Whether `add` can put files here at all: to be asked before hours of work, not after.
  Result<void> check_writable() const;
  /// Store files, then the row. Durable on return (per OpenOptions::durability). Calls of several
  /// threads share transactions.
  Result<Version> add(const NewVersion& version);
  /// The same for many in one transaction, all or none.
  Result<std::vector<Version>> add_all(std::span<const NewVersion> versions);

  Result<Version> find(const Reference& reference) const;
  Result<Version> find(std::string_view reference) const;
  Result<Page> list(const Query& query) const;
  /// Call `body` for every version that matches, page by page; stops at its first error.
  Result<void> for_each(Query query, const std::function<Result<void>(const Version&)>& body) const;
  Result<int64_t> count(const Query& query) const;
  /// The metrics, parameters and tags in the condition and the order of `query` that no version
  /// has: a listing by them is empty, or in no order.
  Result<std::vector<AskedName>> unknown_names(const Query& query) const;
  /// Names that are there: `table` is "metric", "param" or "tag".
  Result<std::vector<std::string>> known_names(const std::string& table) const;
  Result<std::vector<ModelInfo>> models(std::string_view pattern, int64_t limit) const;

  /// The model file of a version, validated and mapped; for an item of a bundle its record.
  Result<ModelFile> load(const Version& version) const;
  /// Where the bytes of an artifact are. Never write there.
  Result<Path> artifact_path(const Version& version, std::string_view path) const;
  Path object_path(std::string_view hash) const;

  /// Returns from which version to which it went, and when. `mismatch` when it stood elsewhere than
  /// `options.expect`.
  Result<AliasChange> set_alias(const Reference& reference, std::string_view alias,
                                const AliasOptions& options = {});
  Result<std::vector<AliasChange>> history(std::string_view name) const;
  /// Set or (nullopt) remove tags of one version, or of the model when the reference is a bare
  /// name.
  Result<void> set_tags(const Reference& reference, std::span<const Pair> set,
                        std::span<const std::string> removed);
  /// Note the end of a run; nothing happens when no version came of it. A resumed run ends again.
  Result<void> end_run(const RunEnd& end);
  Result<void> set_description(std::string_view name, std::string_view text);

  /// Hide one version; `gc` takes its files later. A bare name is `invalid_argument`. A version
  /// under an alias needs `force` (its aliases go, logged).
  Result<void> remove(const Reference& reference, bool force = false);
  /// Bring one deleted version back. `invalid_argument` for a bare name or what is not deleted,
  /// `not_found` once gc took its files.
  Result<void> restore(const Reference& reference);
  Result<GcReport> gc(const GcOptions& options = {});
  Result<VerifyReport> verify(const VerifyOptions& options = {});
  /// A consistent copy in `target` (made, must be empty or absent); writers are not stopped.
  Result<void> backup(const Path& target) const;

  /// Tar of the versions of `query` (docs/formats/export.md); `import_file` takes such a tar.
  Result<int64_t> export_file(const Query& query, const Path& file) const;
  Result<ImportReport> import_file(const Path& file, const TarOptions& options = {});
  /// model.safetensors, config.json and README.md, as model hubs lay them out.
  Result<void> export_folder(const Version& version, const Path& folder) const;
  /// Copy a version's files into `folder` under their names; an item of a bundle becomes a model
  /// file of its own. Returns the paths written. `already_exists` where `overwrite` is false and
  /// one is there: then nothing is written.
  Result<std::vector<Path>> get(const Version& version, const Path& folder,
                                bool overwrite = true) const;
  /// Take in what other hosts staged (`stage`) in `folder`; what was taken is deleted there. One
  /// that cannot be taken goes to `conflicts` and stops no other.
  Result<ImportReport> import_incoming(const Path& folder);

  /// Hand-overs to `target` ("" = all). A change of an alias asks again for the versions that it
  /// left and reached; that of a deleted version is listed only until its aliases went there.
  Result<std::vector<Push>> pushes(std::string_view target, bool unfinished_only,
                                   int64_t limit) const;
  Result<void> record_push(const Push& push);
  /// Ask for a push of every version of `query` to `target` that has none there, or whose push was
  /// given up; returns how many.
  Result<int64_t> request_pushes(const Query& query, std::string_view target);

  /// Run one SELECT on a read-only connection. Row by row as JSON values. `timeout`, `cancelled`:
  /// as `options` say, between the steps of SQLite's machine; one function over long texts is one.
  Result<void> sql(std::string_view select,
                   const std::function<Result<void>(std::span<const std::string> columns,
                                                    std::span<const Json> values)>& row,
                   const SelectOptions& options = {}) const;

 private:
  friend class BundleWriter;
  friend struct RegistryAccess;
  explicit Registry(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Put a version into a shared folder for a registry on another host: object first, then its JSON,
/// each by write and rename. Returns the uid.
HR_API Result<std::string> stage(const Path& folder, const NewVersion& version);

/// "3.40.1": the SQLite that is linked.
HR_API std::string sqlite_version();

}  // namespace headrace::registry
