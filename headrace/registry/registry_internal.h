// SPDX-License-Identifier: Apache-2.0
// What the files of class Registry share.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>

#include "headrace/base/metric_names.h"
#include "headrace/base/thread.h"
#include "headrace/registry/connections.h"
#include "headrace/registry/object_store.h"
#include "headrace/registry/prepare.h"
#include "headrace/registry/registry.h"
#include "headrace/registry/rows.h"
#include "headrace/registry/writer.h"

namespace headrace::registry {

/// Open bundles, most recently used first.
class BundleCache {
 public:
  Result<ModelFile> open(const Path& path, const std::string& hash);

 private:
  base::Mutex mu_;  // leaf
  std::list<std::pair<std::string, ModelFile>> files_ HR_GUARDED_BY(mu_);
};

/// Whether an export may be written to `target`: see Registry::export_file.
Result<void> check_target(const Path& registry, const Path& target, bool overwrite);

struct Registry::State {
  State(Path folder_path, OpenOptions open_options)
      : folder(std::move(folder_path)),
        options(std::move(open_options)),
        store(folder, options.shared_group),
        writer({.database = folder / "registry.db",
                .lock_file = folder / "writer.lock",
                .sync_full = options.durability == Durability::power_loss,
                .lock_timeout = options.lock_timeout,
                .command = options.command,
                .commit_seconds = histogram(base::metric("registry.commit_seconds")),
                .lock_wait_seconds = histogram(base::metric("registry.lock_wait_seconds"))}),
        readers(folder / "registry.db", false),
        select_readers(folder / "registry.db", true),
        versions_added(counter(base::metric("registry.versions"))),
        bytes_added(counter(base::metric("registry.bytes"))) {}

  const Path folder;
  const OpenOptions options;
  std::string uuid;
  const ObjectStore store;
  // Closed last: only a connection that may write moves the log into the database as it goes.
  Writer writer;
  Connections readers;
  Connections select_readers;
  BundleCache bundles;
  base::Counter versions_added;
  base::Counter bytes_added;

  base::Histogram histogram(const base::MetricInfo& info) const {
    return options.board == nullptr ? base::Histogram() : options.board->histogram(info);
  }
  base::Counter counter(const base::MetricInfo& info) const {
    return options.board == nullptr ? base::Counter() : options.board->counter(info);
  }
  Result<void> check_writable() const;
  /// Publish and insert all of `prepared` in one transaction.
  Result<void> add_prepared(std::span<PreparedVersion> prepared);
};

/// For the room's free functions.
struct RegistryAccess {
  static Registry::State* state(Registry* registry) { return registry->state_.get(); }
  static Registry::State& state(const Registry& registry) { return *registry.state_; }
};

/// The stored form of a version that was just added.
Version version_of(const PreparedVersion& prepared);

}  // namespace headrace::registry
