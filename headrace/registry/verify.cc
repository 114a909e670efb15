// SPDX-License-Identifier: Apache-2.0
// Compare what the database says with what lies in the folder.
#include <algorithm>
#include <map>
#include <set>

#include "headrace/registry/fault.h"
#include "headrace/registry/mapping.h"
#include "headrace/registry/registry_internal.h"

namespace headrace::registry {

namespace {

struct ObjectRow {
  std::string hash;
  int64_t bytes = 0;
  std::string kind;
  bool ready = true;  ///< a version that is not deleted needs it
};

class Verifier {
 public:
  Verifier(Database* database, const ObjectStore& store, const VerifyOptions& options)
      : database_(database), store_(store), options_(options) {}

  Result<void> run(const std::string& uuid) {
    HR_TRY(check_database());
    HR_TRY(check_uuid(uuid));
    HR_TRY(check_objects());
    HR_TRY(check_slots());
    HR_TRY(check_aliases());
    HR_TRY(check_strays());
    HR_TRY(report_.versions, database_->integer("SELECT count(*) FROM version WHERE state=0"));
    return {};
  }

  VerifyReport take_report() { return std::move(report_); }
  const std::map<std::string, std::string>& damaged() const { return damaged_; }

 private:
  void find(std::string what, std::string text, bool harmless = false) {
    report_.findings.push_back({std::move(what), std::move(text), harmless});
  }

  Result<void> check_database() {
    {
      HR_TRY(auto check, database_->prepare("PRAGMA integrity_check(20)"));
      for (;;) {
        HR_TRY(const bool row, check.step());
        if (!row) {
          break;
        }
        if (check.text(0) != "ok") {
          find("database_damaged", std::string(check.text(0)));
        }
      }
    }
    HR_TRY(auto keys, database_->prepare("PRAGMA foreign_key_check"));
    for (;;) {
      HR_TRY(const bool row, keys.step());
      if (!row) {
        return {};
      }
      find("row_points_nowhere", "table " + std::string(keys.text(0)) + ", row " +
                                     std::string(keys.text(1)) + " points to no row of " +
                                     std::string(keys.text(2)));
    }
  }

  Result<void> check_uuid(const std::string& uuid) {
    HR_TRY(auto select, database_->prepare("SELECT value FROM meta WHERE key='uuid'"));
    HR_TRY(const bool row, select.step());
    if (!row || select.text(0) != uuid) {
      find("format_differs", "FORMAT says " + uuid + ", the database says " +
                                 (row ? std::string(select.text(0)) : "nothing") +
                                 ": two registries were mixed");
    }
    return {};
  }

  Result<std::vector<ObjectRow>> needed_objects() {
    HR_TRY(auto select,
           database_->prepare("SELECT o.hash, o.bytes, o.kind, max(v.state=0) FROM object o JOIN "
                              "artifact a ON a.object_id=o.id JOIN version v ON "
                              "v.id=a.version_id GROUP BY o.id"));
    std::vector<ObjectRow> rows;
    for (;;) {
      HR_TRY(const bool row, select.step());
      if (!row) {
        return rows;
      }
      rows.push_back({base::hex(select.blob(0)), select.integer(1), std::string(select.text(2)),
                      select.integer(3) != 0});
    }
  }

  Result<bool> still_needed(const std::string& hash) {
    HR_TRY(auto select,
           database_->prepare("SELECT 1 FROM object o JOIN artifact a ON a.object_id=o.id WHERE "
                              "o.hash=?"));
    const auto raw = from_hex(hash);
    return select.bind_blob(raw).step();
  }

  void damage(const ObjectRow& object, const std::string& what, const std::string& why) {
    damaged_.emplace(object.hash, what);
    find(what,
         "object " + object.hash + ": " + why +
             (object.ready ? "" : "; only deleted versions need it"),
         !object.ready);
  }

  Result<void> check_objects() {
    HR_TRY(const auto objects, needed_objects());
    report_.objects = static_cast<int64_t>(objects.size());
    for (const ObjectRow& object : objects) {
      const auto bytes = store_.size_of(object.hash);
      if (!bytes) {
        HR_TRY(const bool needed, still_needed(object.hash));
        if (needed) {  // gc may have taken it since the rows were read
          damage(object, "object_missing", "the file is not there");
        }
      } else if (*bytes != object.bytes) {
        damage(object, "object_damaged",
               "it has " + std::to_string(*bytes) + " bytes instead of " +
                   std::to_string(object.bytes));
      } else if (options_.deep) {
        HR_TRY(check_content(object));
      }
    }
    return {};
  }

  Result<void> check_content(const ObjectRow& object) {
    const Path path = store_.path_of(object.hash);
    const auto hash = store_.hash_file(path);
    report_.bytes_read += object.bytes;
    if (!hash.ok() || *hash != object.hash) {
      damage(object, "object_damaged",
             hash.ok() ? "its content has the hash " + *hash : hash.error().message());
      return {};
    }
    if (object.kind == "model" || object.kind == "bundle") {
      auto file = ModelFile::open(path, {.allow_nonfinite = true});
      if (!file.ok()) {
        damage(object, "object_invalid", file.error().message());
        return {};
      }
      if (auto items = file->verify_items(); !items.ok()) {
        damage(object, "object_invalid", items.error().message());
      }
      return {};
    }
    return check_pickle(object, path);
  }

  /// Files of users are stored, never executed; say so when one could be.
  Result<void> check_pickle(const ObjectRow& object, const Path& path) {
    HR_TRY(const auto mapping, Mapping::open(path, false));
    const auto bytes = mapping->bytes();
    const bool pickle = bytes.size() > 2 && bytes[0] == std::byte{0x80} &&
                        bytes[1] >= std::byte{2} && bytes[1] <= std::byte{5};
    if (pickle) {
      find("pickle", "object " + object.hash + " is a Python pickle, which runs code when loaded",
           true);
    }
    return {};
  }

  Result<void> check_slots() {
    HR_TRY(auto select,
           database_->prepare("SELECT o.hash, max(a.slot) FROM artifact a JOIN object o ON "
                              "o.id=a.object_id WHERE a.slot IS NOT NULL GROUP BY o.id"));
    for (;;) {
      HR_TRY(const bool row, select.step());
      if (!row) {
        return {};
      }
      const std::string hash = base::hex(select.blob(0));
      if (damaged_.contains(hash)) {
        continue;
      }
      const auto file = ModelFile::open(store_.path_of(hash), {.allow_nonfinite = true});
      if (!file.ok()) {
        damage({hash, 0, ""}, "object_invalid", file.error().message());
      } else if (select.integer(1) >= file->item_count()) {
        damage({hash, 0, ""}, "slot_beyond_end",
               "a version names record " + std::to_string(select.integer(1)) + " of " +
                   std::to_string(file->item_count()));
      }
    }
  }

  Result<void> check_aliases() {
    HR_TRY(auto select,
           database_->prepare("SELECT m.name, a.name FROM alias a JOIN model m ON m.id=a.model_id "
                              "JOIN version v ON v.id=a.version_id WHERE v.state<>0 OR "
                              "v.model_id<>a.model_id"));
    for (;;) {
      HR_TRY(const bool row, select.step());
      if (!row) {
        return {};
      }
      find("alias_dangles", std::string(select.text(0)) + "@" + std::string(select.text(1)) +
                                " points to no ready version");
    }
  }

  Result<void> check_strays() {
    HR_TRY(auto select, database_->prepare("SELECT 1 FROM object WHERE hash=?"));
    HR_TRY(
        store_.for_each([&](const std::string& hash, int64_t bytes, base::Micros) -> Result<void> {
          select.reset();
          const auto raw = from_hex(hash);
          HR_TRY(const bool known, select.bind_blob(raw).step());
          if (!known) {
            find("stray_object",
                 "object " + hash + " (" + std::to_string(bytes) +
                     " bytes) belongs to no version; gc takes it away",
                 true);
          }
          return {};
        }));
    HR_TRY(const int64_t temporary, store_.sweep_tmp(base::Micros(0), true));
    if (temporary > 0) {
      find("temporary_files",
           std::to_string(temporary) + " files in tmp/ have no owner; gc takes them away", true);
    }
    return {};
  }

  Database* database_;
  const ObjectStore& store_;
  const VerifyOptions& options_;
  VerifyReport report_;
  std::map<std::string, std::string> damaged_;
};

Result<int64_t> mark_damaged(Database* database, const std::string& hash, const std::string& what) {
  HR_TRY(auto select,
         database->prepare("SELECT DISTINCT v.id FROM version v JOIN artifact a ON "
                           "a.version_id=v.id JOIN object o ON o.id=a.object_id WHERE o.hash=? AND "
                           "v.state=0"));
  const auto raw = from_hex(hash);
  select.bind_blob(raw);
  std::vector<int64_t> ids;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      break;
    }
    ids.push_back(select.integer(0));
  }
  const std::vector<Pair> tags = {{"headrace.damaged", what}};
  for (const int64_t id : ids) {
    HR_TRY(auto update, database->prepare("UPDATE version SET state=1, deleted_us=? WHERE id=?"));
    HR_TRY(update.bind(int64_t{base::system_clock().wall().count()}).bind(id).run());
    HR_TRY(auto aliases, database->prepare("DELETE FROM alias WHERE version_id=?"));
    HR_TRY(aliases.bind(id).run());
    HR_TRY(insert_pairs(database,
                        "INSERT INTO tag(version_id, key_id, value) VALUES(?,?,?) ON CONFLICT DO "
                        "UPDATE SET value=excluded.value",
                        id, tags));
  }
  return static_cast<int64_t>(ids.size());
}

}  // namespace

Result<VerifyReport> Registry::verify(const VerifyOptions& options) {
  if (options.repair) {
    HR_TRY(state_->check_writable());
  }
  VerifyReport report;
  std::map<std::string, std::string> damaged;
  {
    HR_TRY(auto database, state_->readers.take());
    Verifier verifier(database.get(), state_->store, options);
    HR_TRY(verifier.run(state_->uuid));
    report = verifier.take_report();
    damaged = verifier.damaged();
  }
  if (options.repair && !damaged.empty()) {
    const auto mark = [&](Database* database) -> Result<void> {
      report.repaired = 0;
      for (const auto& [hash, what] : damaged) {
        HR_TRY(const int64_t marked, mark_damaged(database, hash, what));
        report.repaired += marked;
      }
      return {};
    };
    HR_TRY(state_->writer.run(mark));
  }
  return report;
}

}  // namespace headrace::registry
