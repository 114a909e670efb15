// SPDX-License-Identifier: Apache-2.0
// Take away what no version needs: by reachability, under writer.lock in short holds, through
// trash/. Killed anywhere it leaves nothing that is needed undone.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "headrace/registry/bundle.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/registry_internal.h"

namespace headrace::registry {

namespace {

struct Candidate {
  int64_t id = 0;
  std::string hash;
  int64_t bytes = 0;
};

bool is_older(const Path& path, base::Micros age) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    return errno == ENOENT;  // a row without file may go as well
  }
  const base::Micros modified =
      std::chrono::seconds(info.st_mtim.tv_sec) + base::Micros(info.st_mtim.tv_nsec / 1000);
  return base::system_clock().wall() - modified >= age;
}

/// Deleted versions whose time to be restored is over lose their files.
Result<int64_t> release_versions(Database* database, const GcOptions& options) {
  const int64_t before = (base::system_clock().wall() - options.keep).count();
  if (options.dry_run) {
    HR_TRY(auto count,
           database->prepare("SELECT count(*) FROM version WHERE state=1 AND deleted_us<=?"));
    HR_TRY(const bool row, count.bind(before).step());
    return row ? count.integer(0) : 0;
  }
  HR_TRY(auto transaction, Transaction::begin(database, true));
  HR_TRY(auto erase, database->prepare("DELETE FROM artifact WHERE version_id IN "
                                       "(SELECT id FROM version WHERE state=1 AND deleted_us<=?)"));
  HR_TRY(erase.bind(before).run());
  HR_TRY(auto update, database->prepare("UPDATE version SET state=2 WHERE state=1 AND "
                                        "deleted_us<=?"));
  HR_TRY(update.bind(before).run());
  const int64_t released = database->changes();
  HR_TRY(transaction.commit());
  return released;
}

/// The next objects without a version that needs them.
Result<std::vector<Candidate>> unreachable(Database* database, const GcOptions& options,
                                           int64_t after) {
  const int64_t before = options.dry_run ? (base::system_clock().wall() - options.keep).count()
                                         : -1;  // otherwise their artifact rows are gone by now
  HR_TRY(auto select,
         database->prepare("SELECT o.id, o.hash, o.bytes FROM object o WHERE o.id>? AND NOT EXISTS"
                           "(SELECT 1 FROM artifact a JOIN version v ON v.id=a.version_id WHERE "
                           "a.object_id=o.id AND NOT (v.state=1 AND v.deleted_us<=?)) "
                           "ORDER BY o.id LIMIT ?"));
  select.bind(after).bind(before).bind(kGcObjectsPerHold);
  std::vector<Candidate> candidates;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return candidates;
    }
    candidates.push_back({select.integer(0), base::hex(select.blob(1)), select.integer(2)});
  }
}

Result<void> move_to_trash(const ObjectStore& store, const std::string& hash) {
  if (std::rename(store.path_of(hash).c_str(), (store.trash_folder() / hash).c_str()) != 0 &&
      errno != ENOENT) {
    return errno_error(errno, "moving object " + hash + " to " + store.trash_folder().string());
  }
  fault::point("gc.after_rename");
  return {};
}

/// One hold of the lock: rows first, then files, so that no row is ever without its file.
Result<int64_t> collect_some(Database* database, const ObjectStore& store, const GcOptions& options,
                             int64_t after, GcReport* report) {
  HR_TRY(const auto candidates, unreachable(database, options, after));
  if (candidates.empty()) {
    return 0;
  }
  std::vector<const Candidate*> taken;
  HR_TRY(auto transaction, Transaction::begin(database, !options.dry_run));
  for (const Candidate& candidate : candidates) {
    if (!is_older(store.path_of(candidate.hash), options.grace)) {
      continue;
    }
    taken.push_back(&candidate);
    report->objects += 1;
    report->bytes += candidate.bytes;
    if (!options.dry_run) {
      HR_TRY(auto erase, database->prepare("DELETE FROM object WHERE id=?"));
      HR_TRY(erase.bind(candidate.id).run());
    }
  }
  if (!options.dry_run) {
    fault::point("gc.before_commit");
    HR_TRY(transaction.commit());
    fault::point("gc.after_commit");
    for (const Candidate* candidate : taken) {
      HR_TRY(move_to_trash(store, candidate->hash));
    }
  }
  return candidates.back().id;
}

Result<bool> has_row(Database* database, const std::string& hash) {
  HR_TRY(auto select, database->prepare("SELECT 1 FROM object WHERE hash=?"));
  const auto bytes = from_hex(hash);
  return select.bind_blob(bytes).step();
}

/// Files in objects/ that no row knows: what crashed between rename and commit.
Result<std::vector<std::string>> stray_objects(Connections* readers, const ObjectStore& store,
                                               base::Micros grace) {
  std::vector<std::string> stray;
  HR_TRY(auto database, readers->take());
  const auto look = [&](const std::string& hash, int64_t, base::Micros) -> Result<void> {
    HR_TRY(const bool known, has_row(database.get(), hash));
    if (!known && is_older(store.path_of(hash), grace)) {
      stray.push_back(hash);
    }
    return {};
  };
  HR_TRY(store.for_each(look));
  return stray;
}

Result<void> collect_strays(Database* database, const ObjectStore& store, const GcOptions& options,
                            std::span<const std::string> stray, GcReport* report) {
  for (const std::string& hash : stray) {
    HR_TRY(const bool known, has_row(database, hash));  // again, now under the lock
    if (known || !is_older(store.path_of(hash), options.grace)) {
      continue;
    }
    report->stray += 1;
    report->bytes += store.size_of(hash).value_or(0);
    if (!options.dry_run) {
      HR_TRY(move_to_trash(store, hash));
    }
  }
  return {};
}

}  // namespace

Result<GcReport> Registry::gc(const GcOptions& options) {
  HR_TRY(state_->check_writable());
  const ObjectStore& store = state_->store;
  Writer& writer = state_->writer;
  GcReport report;
  int64_t last = 0;
  const auto release = [&](Database* database) -> Result<void> {
    HR_TRY(report.versions, release_versions(database, options));
    return {};
  };
  const auto collect = [&](Database* database) -> Result<void> {
    HR_TRY(last, collect_some(database, store, options, last, &report));
    return {};
  };
  if (!options.dry_run) {
    HR_TRY(store.empty_trash());
    HR_TRY(auto sealed,
           seal_orphans(this, std::min(options.grace, base::Micros(kStrayTempMicros))));
    report.damaged = std::move(sealed.damaged);
  }
  HR_TRY(writer.exclusive(release));
  do {
    HR_TRY(writer.exclusive(collect));
  } while (last != 0);
  HR_TRY(const auto stray, stray_objects(&state_->readers, store, options.grace));
  for (size_t begin = 0; begin < stray.size(); begin += size_t{kGcObjectsPerHold}) {
    const auto some =
        std::span(stray).subspan(begin, std::min(size_t{kGcObjectsPerHold}, stray.size() - begin));
    const auto collect_stray = [&](Database* database) {
      return collect_strays(database, store, options, some, &report);
    };
    HR_TRY(writer.exclusive(collect_stray));
  }
  HR_TRY(report.temporary,
         store.sweep_tmp(std::min(options.grace, base::Micros(kStrayTempMicros)), options.dry_run));
  if (!options.dry_run) {
    fault::point("gc.before_unlink");
    HR_TRY(store.empty_trash());
  }
  HR_TRY(auto database, state_->readers.take());
  HR_TRY(report.bytes_kept, database->integer("SELECT ifnull(sum(bytes), 0) FROM object"));
  return report;
}

}  // namespace headrace::registry
