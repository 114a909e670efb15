// SPDX-License-Identifier: Apache-2.0
// What happens to a version after it was added: aliases with their log, tags, deletion, hand-over.
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "headrace/base/clock.h"
#include "headrace/base/environment.h"
#include "headrace/registry/limits.h"
#include "headrace/registry/listing.h"
#include "headrace/registry/name.h"
#include "headrace/registry/registry_internal.h"

namespace headrace::registry {

namespace {

struct Target {
  int64_t id = 0;
  int64_t model = 0;
  int64_t version = 0;
  int64_t state = 0;
};

Result<Target> find_target(Database* database, const Reference& reference, bool include_deleted) {
  Target target;
  HR_TRY(target.id, find_id(database, reference, include_deleted));
  HR_TRY(auto select, database->prepare("SELECT model_id, version, state FROM version WHERE id=?"));
  HR_TRY(const bool row, select.bind(target.id).step());
  HR_CHECK(row, "a version that was just found is there");
  target.model = select.integer(0);
  target.version = select.integer(1);
  target.state = select.integer(2);
  return target;
}

int64_t now_us() { return base::system_clock().wall().count(); }

/// Version number that the alias points to, 0 when it is not set.
Result<int64_t> alias_now(Database* database, int64_t model, std::string_view alias) {
  HR_TRY(auto select,
         database->prepare("SELECT v.version FROM alias a JOIN version v ON v.id=a.version_id "
                           "WHERE a.model_id=? AND a.name=?"));
  HR_TRY(const bool row, select.bind(model).bind(alias).step());
  return row ? select.integer(0) : 0;
}

struct LogLine {
  int64_t model = 0;
  std::string_view alias;
  int64_t from = 0;
  int64_t to = 0;
  base::Micros at{0};
  std::string_view by;
  std::string_view reason;
};

Result<void> log_alias(Database* database, const LogLine& line) {
  HR_TRY(auto insert,
         database->prepare("INSERT INTO alias_log(model_id, name, from_version, to_version, at_us, "
                           "\"by\", reason) VALUES(?,?,?,?,?,?,?)"));
  const auto optional = [&insert](int64_t number) {
    static_cast<void>(number == 0 ? insert.bind_null() : insert.bind(number));
  };
  insert.bind(line.model).bind(line.alias);
  optional(line.from);
  optional(line.to);
  return insert.bind(line.at.count())
      .bind_text_or_null(line.by)
      .bind_text_or_null(line.reason)
      .run();
}

/// What other registries have of a version is no longer so: hand it over again. `next_us` grows, so
/// that a push under way sees it. What was given up stays that.
Result<void> ask_again(Database* database, int64_t version_id) {
  HR_TRY(auto update,
         database->prepare("UPDATE push SET tries=CASE state WHEN 0 THEN tries ELSE 0 END, "
                           "state=0, next_us=max(next_us+1, ?) WHERE version_id=? AND state<>2"));
  return update.bind(now_us()).bind(version_id).run();
}

/// A version that gets an alias belongs to where the others of its model are.
Result<void> join_pushes(Database* database, const Target& target) {
  HR_TRY(auto insert,
         database->prepare("INSERT INTO push(version_id, target) SELECT DISTINCT ?1, p.target FROM "
                           "version v JOIN push p ON p.version_id=v.id WHERE v.model_id=?2 "
                           "ON CONFLICT DO NOTHING"));
  HR_TRY(insert.bind(target.id).bind(target.model).run());
  return ask_again(database, target.id);
}

/// The version that the alias points to now.
Result<void> ask_again_where(Database* database, int64_t model, std::string_view alias) {
  int64_t id = 0;
  {
    HR_TRY(auto select,
           database->prepare("SELECT version_id FROM alias WHERE model_id=? AND name=?"));
    HR_TRY(const bool row, select.bind(model).bind(alias).step());
    if (!row) {
      return {};
    }
    id = select.integer(0);
  }
  return ask_again(database, id);
}

Result<void> drop_aliases(Database* database, const Target& target, std::string_view by) {
  std::vector<std::string> names;
  {
    HR_TRY(auto select, database->prepare("SELECT name FROM alias WHERE version_id=?"));
    select.bind(target.id);
    for (;;) {
      HR_TRY(const bool row, select.step());
      if (!row) {
        break;
      }
      names.emplace_back(select.text(0));
    }
  }
  for (const std::string& name : names) {
    HR_TRY(log_alias(database, {.model = target.model,
                                .alias = name,
                                .from = target.version,
                                .at = base::Micros(now_us()),
                                .by = by,
                                .reason = "version deleted"}));
  }
  if (!names.empty()) {
    HR_TRY(ask_again(database, target.id));
  }
  HR_TRY(auto erase, database->prepare("DELETE FROM alias WHERE version_id=?"));
  return erase.bind(target.id).run();
}

std::string who() {
  return base::environment("USER").value_or("uid " + std::to_string(::getuid()));
}

constexpr std::string_view kPushStates[] = {"waiting", "done", "failed"};

int64_t push_state(std::string_view name) {
  for (size_t i = 0; i < std::size(kPushStates); ++i) {
    if (kPushStates[i] == name) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

Push read_push(const Statement& row) {
  Push push;
  push.version_id = row.integer(0);
  push.uid = base::hex(row.blob(1));
  push.reference = std::string(row.text(2)) + ":" + std::to_string(row.integer(3));
  push.target = row.text(4);
  push.state = kPushStates[static_cast<size_t>(std::clamp<int64_t>(row.integer(5), 0, 2))];
  push.tries = row.integer(6);
  push.next = base::Micros(row.integer(7));
  if (!row.is_null(8)) {
    push.remote = parse_json(row.text(8)).value_or(Json());
  }
  push.error = row.text(9);
  push.deleted = row.integer(10) != 0;
  return push;
}

}  // namespace

Result<AliasChange> Registry::set_alias(const Reference& reference, std::string_view alias,
                                        const AliasOptions& options) {
  HR_TRY(state_->check_writable());
  HR_TRY(check_alias(alias));
  HR_TRY(check_text(options.reason, "reason", kTextBytesMax));
  const std::string by = options.by.empty() ? who() : options.by;
  AliasChange change;
  change.alias = alias;
  change.by = by;
  change.reason = options.reason;
  const auto done = state_->writer.run([&](Database* database) -> Result<void> {
    Target target;
    if (options.remove && !reference.name.empty()) {
      HR_TRY(target.model, model_id(database, reference.name));
    } else {
      HR_TRY(target, find_target(database, reference, false));
    }
    HR_TRY(const int64_t now, alias_now(database, target.model, alias));
    if (options.expect && *options.expect != now) {
      return Error{Errc::mismatch, "registry: alias " + std::string(alias) + " of " +
                                       reference_text(reference) + " points to " +
                                       (now == 0 ? "nothing" : "version " + std::to_string(now)) +
                                       ", not to the expected " + std::to_string(*options.expect) +
                                       "; look at headrace models history and decide again"};
    }
    const int64_t wanted = options.remove ? 0 : target.version;
    change.from_version = now;
    change.to_version = wanted;
    change.at = base::Micros(now_us());
    if (wanted == now || options.dry_run) {
      return {};
    }
    HR_TRY(ask_again_where(database, target.model, alias));
    if (options.remove) {
      HR_TRY(auto erase, database->prepare("DELETE FROM alias WHERE model_id=? AND name=?"));
      HR_TRY(erase.bind(target.model).bind(alias).run());
    } else {
      HR_TRY(auto upsert,
             database->prepare("INSERT INTO alias(model_id, name, version_id) VALUES(?,?,?) ON "
                               "CONFLICT(model_id, name) DO UPDATE SET "
                               "version_id=excluded.version_id"));
      HR_TRY(upsert.bind(target.model).bind(alias).bind(target.id).run());
      HR_TRY(join_pushes(database, target));
    }
    return log_alias(database, {.model = target.model,
                                .alias = alias,
                                .from = now,
                                .to = wanted,
                                .at = change.at,
                                .by = by,
                                .reason = options.reason});
  });
  HR_TRY(done);
  return change;
}

Result<std::vector<AliasChange>> Registry::history(std::string_view name) const {
  HR_TRY(auto database, state_->readers.take());
  HR_TRY(const int64_t model, model_id(database.get(), name));
  HR_TRY(auto select, database->prepare("SELECT name, from_version, to_version, at_us, \"by\", "
                                        "reason FROM alias_log WHERE model_id=? ORDER BY id"));
  select.bind(model);
  std::vector<AliasChange> changes;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return changes;
    }
    changes.push_back({std::string(select.text(0)), select.integer(1), select.integer(2),
                       base::Micros(select.integer(3)), std::string(select.text(4)),
                       std::string(select.text(5))});
  }
}

Result<void> Registry::set_tags(const Reference& reference, std::span<const Pair> set,
                                std::span<const std::string> removed) {
  HR_TRY(state_->check_writable());
  for (const Pair& tag : set) {
    HR_TRY(check_key(tag.name, "tag"));
    HR_TRY(check_text(tag.value, "value of tag " + tag.name, kTagValueBytesMax));
  }
  return state_->writer.run([&](Database* database) -> Result<void> {
    const std::string table = reference.has_version ? "tag" : "model_tag";
    const std::string owner = reference.has_version ? "version_id" : "model_id";
    int64_t id = 0;
    if (reference.has_version) {
      HR_TRY(id, find_id(database, reference, false));
    } else {
      HR_TRY(id, model_id(database, reference.name));
    }
    for (const std::string& name : removed) {
      HR_TRY(auto erase, database->prepare("DELETE FROM " + table + " WHERE " + owner +
                                           "=? AND key_id=(SELECT id FROM key WHERE name=?)"));
      HR_TRY(erase.bind(id).bind(std::string_view(name)).run());
    }
    HR_TRY(insert_pairs(database,
                        "INSERT INTO " + table + "(" + owner +
                            ", key_id, value) VALUES(?,?,?) ON CONFLICT DO UPDATE SET "
                            "value=excluded.value",
                        id, set));
    if (reference.has_version) {
      HR_TRY(auto count, database->prepare("SELECT count(*) FROM tag WHERE version_id=?"));
      HR_TRY(const bool row, count.bind(id).step());
      if (row && count.integer(0) > kTagsMax) {
        return Error{Errc::invalid_argument, "registry: " + reference_text(reference) +
                                                 " would have more than " +
                                                 std::to_string(kTagsMax) + " tags"};
      }
    }
    return {};
  });
}

Result<void> Registry::end_run(const RunEnd& end) {
  HR_TRY(state_->check_writable());
  HR_TRY(check_text(end.status, "status of a run", kKeyBytesMax));
  const auto digest = from_hex(end.pipeline_digest);
  return state_->writer.run([&](Database* database) -> Result<void> {
    HR_TRY(auto update,
           database->prepare("UPDATE run SET status=?, ended_us=?, started_us=coalesce(?, "
                             "started_us), pipeline_digest=coalesce(?, pipeline_digest) WHERE "
                             "uid=?"));
    update.bind(std::string_view(end.status)).bind(int64_t{end.ended.count()});
    static_cast<void>(end.started.count() == 0 ? update.bind_null()
                                               : update.bind(int64_t{end.started.count()}));
    static_cast<void>(digest.empty() ? update.bind_null() : update.bind_blob(digest));
    return update.bind(std::string_view(end.run)).run();
  });
}

Result<void> Registry::set_description(std::string_view name, std::string_view text) {
  HR_TRY(state_->check_writable());
  HR_TRY(check_text(text, "description", kDescriptionBytesMax));
  return state_->writer.run([&](Database* database) -> Result<void> {
    HR_TRY(const int64_t model, model_id(database, name));
    HR_TRY(auto update, database->prepare("UPDATE model SET description=? WHERE id=?"));
    return update.bind_text_or_null(text).bind(model).run();
  });
}

Result<void> Registry::remove(const Reference& reference, bool force) {
  HR_TRY(state_->check_writable());
  if (!reference.has_version) {
    return Error{Errc::invalid_argument,
                 "registry: " + reference.name +
                     " names a model, not a version; delete NAME:VERSION or NAME@alias"};
  }
  return state_->writer.run([&](Database* database) -> Result<void> {
    HR_TRY(const Target target, find_target(database, reference, false));
    HR_TRY(auto aliases, database->prepare("SELECT name FROM alias WHERE version_id=?"));
    HR_TRY(const bool aliased, aliases.bind(target.id).step());
    if (aliased && !force) {
      return Error{Errc::invalid_argument,
                   "registry: " + reference_text(reference) + " (version " +
                       std::to_string(target.version) + ") is under the alias " +
                       std::string(aliases.text(0)) + "; move the alias or use --force"};
    }
    HR_TRY(drop_aliases(database, target, who()));
    HR_TRY(auto update, database->prepare("UPDATE version SET state=1, deleted_us=? WHERE id=?"));
    return update.bind(now_us()).bind(target.id).run();
  });
}

Result<void> Registry::restore(const Reference& reference) {
  HR_TRY(state_->check_writable());
  if (!reference.has_version) {
    return Error{Errc::invalid_argument,
                 "registry: " + reference.name +
                     " names a model, not a version; restore NAME:VERSION (headrace models list "
                     "--deleted shows which there are)"};
  }
  return state_->writer.run([&](Database* database) -> Result<void> {
    HR_TRY(const Target target, find_target(database, reference, true));
    if (target.state == 2) {
      return Error{Errc::not_found, "registry: the files of " + reference_text(reference) +
                                        " were collected; what is left of it is its row"};
    }
    if (target.state != 1) {
      return Error{Errc::invalid_argument,
                   "registry: " + reference_text(reference) + " is not deleted"};
    }
    return restore_version(database, target.id);
  });
}

Result<std::vector<Push>> Registry::pushes(std::string_view target, bool unfinished_only,
                                           int64_t limit) const {
  HR_TRY(auto database, state_->readers.take());
  HR_TRY(auto select,
         database->prepare("SELECT p.version_id, v.uid, m.name, v.version, p.target, p.state, "
                           "p.tries, p.next_us, p.remote, p.error, v.state FROM push p JOIN "
                           "version v ON v.id=p.version_id JOIN model m ON m.id=v.model_id WHERE "
                           "(v.state=0 OR (p.state=0 AND p.remote IS NOT NULL)) AND "
                           "(?1='' OR p.target=?1) AND (?2=0 OR p.state<>1) "
                           "ORDER BY p.version_id LIMIT ?3"));
  select.bind(target).bind(int64_t{unfinished_only ? 1 : 0}).bind(limit);
  std::vector<Push> pushes;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return pushes;
    }
    pushes.push_back(read_push(select));
  }
}

Result<void> Registry::record_push(const Push& push) {
  HR_TRY(state_->check_writable());
  const int64_t state = push_state(push.state);
  if (state < 0) {
    return Error{Errc::invalid_argument,
                 "registry: a push is waiting, done or failed, not " + json_quote(push.state)};
  }
  const std::string remote = push.remote.is_null() ? "" : push.remote.dump(0, true);
  return state_->writer.run([&](Database* database) -> Result<void> {
    HR_TRY(auto update,
           database->prepare("INSERT INTO push(version_id, target, state, tries, next_us, remote, "
                             "error) VALUES(?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
                             "state=excluded.state, tries=excluded.tries, "
                             "next_us=excluded.next_us, remote=excluded.remote, "
                             "error=excluded.error WHERE ?8 IS NULL OR push.next_us=?8"));
    update.bind(push.version_id)
        .bind(std::string_view(push.target))
        .bind(state)
        .bind(push.tries)
        .bind(int64_t{push.next.count()})
        .bind_text_or_null(remote)
        .bind_text_or_null(push.error);
    return (push.seen ? update.bind(int64_t{push.seen->count()}) : update.bind_null()).run();
  });
}

Result<int64_t> Registry::request_pushes(const Query& query, std::string_view target) {
  HR_TRY(state_->check_writable());
  HR_TRY(check_key(target, "push target"));
  int64_t added = 0;
  Query page_query = query;
  page_query.with_details = false;
  do {
    HR_TRY(const Page page, list(page_query));
    const auto insert_rows = [&](Database* database) -> Result<void> {
      HR_TRY(auto insert,
             database->prepare("INSERT INTO push(version_id, target) VALUES(?,?) ON CONFLICT DO "
                               "UPDATE SET state=0, tries=0, next_us=0 WHERE state=2"));
      for (const Version& version : page.versions) {
        insert.reset();
        HR_TRY(insert.bind(version.id).bind(target).run());
        added += database->changes();
      }
      return {};
    };
    HR_TRY(state_->writer.run(insert_rows));
    page_query.cursor = page.next;
  } while (!page_query.cursor.empty());
  return added;
}

Error select_timeout(double seconds) {
  return Error{Errc::timeout,
               "registry: the SELECT ran for " + number_text(seconds) +
                   " s and was stopped; give it more time (--timeout), or join fewer rows"};
}

Result<void> Registry::sql(
    std::string_view select,
    const std::function<Result<void>(std::span<const std::string>, std::span<const Json>)>& row,
    const SelectOptions& options) const {
  HR_TRY(auto database, state_->select_readers.take());
  const base::Micros begin = base::system_clock().monotonic();
  const auto is_late = [&] {
    return options.timeout.count() > 0 &&
           base::system_clock().monotonic() - begin > options.timeout;
  };
  const auto is_stopped = [&] { return options.stop && options.stop(); };
  const Database::Guard guard(database.get(), [&] { return is_late() || is_stopped(); });
  HR_TRY(auto statement, database->prepare_user(select));
  std::vector<std::string> columns;
  for (int i = 0; i < statement.columns(); ++i) {
    columns.push_back(statement.column_name(i));
  }
  std::vector<Json> values(columns.size());
  for (;;) {
    const auto more = statement.step();
    if (!more.ok() && is_stopped()) {
      return Error{Errc::cancelled, "registry: the SELECT was stopped"};
    }
    if (!more.ok() && is_late()) {
      return select_timeout(std::chrono::duration<double>(options.timeout).count());
    }
    HR_TRY(const bool is_row, more);
    if (!is_row) {
      return {};
    }
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = statement.json(static_cast<int>(i));
    }
    HR_TRY(row(columns, values));
  }
}

}  // namespace headrace::registry
