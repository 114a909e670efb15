// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/listing.h"

#include <algorithm>
#include <cmath>

#include "headrace/registry/limits.h"
#include "headrace/registry/name.h"
#include "headrace/registry/query.h"
#include "headrace/registry/reference.h"
#include "headrace/registry/rows.h"

namespace headrace::registry {

namespace {

/// Order by a metric has three parts: values, NaN, versions without the metric.
enum class Part : int64_t { values, nan, absent, end };

struct Cursor {
  bool set = false;
  Part part = Part::values;
  std::string name;
  double value = 0.0;
  int64_t number = 0;  // version or created_us
  int64_t id = 0;
};

Json cursor_json(const Cursor& cursor) {
  Json out = Json::array();
  out.push_back(static_cast<int64_t>(cursor.part));
  out.push_back(cursor.name);
  out.push_back(cursor.value);
  out.push_back(cursor.number);
  out.push_back(cursor.id);
  return out;
}

Result<Cursor> parse_cursor(const std::string& text) {
  Cursor cursor;
  if (text.empty()) {
    return cursor;
  }
  const auto json = parse_json(text, "cursor");
  const bool good = json.ok() && json->is_array() && json->items().size() == 5 &&
                    json->items()[0].is_integer() && json->items()[1].is_string() &&
                    json->items()[3].is_integer() && json->items()[4].is_integer();
  if (!good) {
    return Error{Errc::invalid_argument,
                 "registry: the cursor must be the `next` of an earlier page of the same listing"};
  }
  const Json& value = json->items()[2];
  cursor.set = true;
  cursor.part = static_cast<Part>(json->items()[0].integer());
  cursor.name = json->items()[1].string();
  cursor.value = value.is_number()                                   ? value.number()
                 : value.is_string() && value.string() == "Infinity" ? HUGE_VAL
                                                                     : -HUGE_VAL;
  cursor.number = json->items()[3].integer();
  cursor.id = json->items()[4].integer();
  return cursor;
}

void append_pattern(const Pattern& pattern, SqlText* sql) {
  if (pattern.kind == Pattern::Kind::all) {
    return;
  }
  // '0' follows '/' in ASCII: one range of the index holds the model and all below it.
  sql->append(" AND m.name>=?", pattern.prefix);
  sql->append(" AND m.name<?", pattern.prefix + "0");
  if (pattern.kind == Pattern::Kind::tree) {
    sql->append(" AND (m.name=?", pattern.prefix);
    sql->append(" OR m.name>=?)", pattern.prefix + "/");
  } else {
    sql->append(" AND m.name>=?", pattern.prefix + "/");
  }
  if (pattern.kind == Pattern::Kind::children) {
    sql->append(" AND instr(substr(CAST(m.name AS BLOB),?), x'2F')=0",
                static_cast<int64_t>(pattern.prefix.size() + 2));
  }
}

/// Which rows come after the cursor, and in which order.
SqlText after_cursor(const Query& query, const Cursor& cursor) {
  const bool down = query.descending;
  const std::string more = down ? "<" : ">";
  const std::string way = down ? " DESC" : "";
  SqlText sql;
  if (query.order_by == "name") {
    if (cursor.set) {
      sql.append(" AND m.name" + more + "=?", cursor.name);
      sql.append(" AND (m.name" + more + "?", cursor.name);
      sql.append(" OR v.version" + more + "?)", cursor.number);
    }
    sql.append(" ORDER BY m.name" + way + ", v.version" + way);
  } else {
    const std::string column = query.order_by == "version" ? "v.version" : "v.created_us";
    if (cursor.set) {
      sql.append(" AND (" + column + ", v.id)" + more + "(?", cursor.number);
      sql.append(",?)", cursor.id);
    }
    sql.append(" ORDER BY " + column + way + ", v.id" + way);
  }
  return sql;
}

SqlText metric_part(const Query& query, const Cursor& cursor, Part part) {
  const std::string key = "(SELECT id FROM key WHERE name=?)";
  const bool resume = cursor.set && cursor.part == part;
  SqlText sql;
  if (part == Part::absent) {
    sql.append(
        " AND NOT EXISTS(SELECT 1 FROM metric q WHERE q.version_id=v.id AND q.key_id=" + key + ")",
        query.order_by);
    if (resume) {
      sql.append(" AND v.id>?", cursor.id);
    }
    sql.append(" ORDER BY v.id");
    return sql;
  }
  sql.append(" AND q.key_id=" + key, query.order_by);
  if (part == Part::nan) {
    sql.append(" AND q.value IS NULL");
    if (resume) {
      sql.append(" AND q.version_id>?", cursor.id);
    }
    sql.append(" ORDER BY q.version_id");
    return sql;
  }
  const std::string more = query.descending ? "<" : ">";
  const std::string way = query.descending ? " DESC" : "";
  sql.append(" AND q.value IS NOT NULL");
  if (resume) {
    sql.append(" AND (q.value, q.version_id)" + more + "(?", cursor.value);
    sql.append(",?)", cursor.id);
  }
  sql.append(" ORDER BY q.value" + way + ", q.version_id" + way);
  return sql;
}

bool by_metric(const Query& query) {
  return query.order_by != "name" && query.order_by != "version" && query.order_by != "created";
}

/// SELECT and FROM with the table first that the order comes from. CROSS JOIN is SQLite's way to
/// say "in this order": without statistics its planner may begin at the wrong end.
std::string source(const Query& query, Part part) {
  std::string select = version_select(query.with_header);
  const size_t from = select.find(" FROM ");
  const std::string columns = select.substr(0, from);
  const std::string joins = select.substr(select.find(" LEFT JOIN run"));
  const bool narrow = !query.run.empty() || !query.item.empty() || !query.alias.empty();
  if (by_metric(query) && part != Part::absent) {
    return columns +
           ", q.value FROM metric q CROSS JOIN version v ON v.id=q.version_id "
           "CROSS JOIN model m ON m.id=v.model_id" +
           joins;
  }
  const std::string join = narrow ? " JOIN " : " CROSS JOIN ";
  if (query.order_by == "name") {
    return columns + " FROM model m" + join + "version v ON v.model_id=m.id" + joins;
  }
  return columns + " FROM version v" + join + "model m ON m.id=v.model_id" + joins;
}

struct Row {
  Version version;
  Cursor cursor;
};

Result<void> read_part(Database* database, const Query& query, const SqlText& where,
                       const Cursor& cursor, Part part, int64_t limit, std::vector<Row>* rows) {
  SqlText sql;
  sql.append(source(query, part));
  sql.append(" ");
  sql.append(where);
  sql.append(by_metric(query) ? metric_part(query, cursor, part) : after_cursor(query, cursor));
  sql.append(" LIMIT ?", limit);
  HR_TRY(auto select, database->prepare(sql.text));
  bind_values(sql, &select);
  for (;;) {
    HR_TRY(const bool more, select.step());
    if (!more) {
      return {};
    }
    Row row{read_row(select, query.with_header), {}};
    row.cursor.set = true;
    row.cursor.part = part;
    row.cursor.name = row.version.name;
    row.cursor.number =
        query.order_by == "created" ? row.version.created.count() : row.version.version;
    row.cursor.id = row.version.id;
    if (by_metric(query) && part == Part::values) {
      row.cursor.value = select.real(select.columns() - 1);
    }
    rows->push_back(std::move(row));
  }
}

Result<void> check_query(const Query& query) {
  if (query.limit < 1 || query.limit > kPageRowsMax) {
    return Error{Errc::invalid_argument, "registry: a page has 1 to " +
                                             std::to_string(kPageRowsMax) + " rows, not " +
                                             std::to_string(query.limit)};
  }
  return check_key(query.order_by, "order");
}

}  // namespace

Result<SqlText> version_conditions(const Query& query) {
  SqlText sql;
  sql.append(query.include_deleted ? "WHERE v.state<=2" : "WHERE v.state=0");
  HR_TRY(const Pattern pattern, parse_pattern(query.pattern));
  append_pattern(pattern, &sql);
  if (!query.item.empty()) {
    sql.append(" AND v.item=?", query.item);
  }
  if (!query.run.empty()) {
    sql.append(" AND v.run_id=(SELECT id FROM run WHERE uid=?)", query.run);
  }
  if (!query.kind.empty()) {
    sql.append(" AND v.kind=?", query.kind);
  }
  if (!query.alias.empty()) {
    sql.append(" AND v.id IN (SELECT version_id FROM alias WHERE name=?)", query.alias);
  }
  if (!query.uid.empty()) {
    sql.append(" AND lower(hex(v.uid))=?", query.uid);
  }
  for (const Pair& tag : query.tags) {
    sql.append(
        " AND EXISTS(SELECT 1 FROM tag t WHERE t.version_id=v.id AND t.key_id="
        "(SELECT id FROM key WHERE name=?)",
        tag.name);
    sql.append(" AND t.value=?)", tag.value);
  }
  if (query.created_from) {
    sql.append(" AND v.created_us>=?", int64_t{query.created_from->count()});
  }
  if (query.created_to) {
    sql.append(" AND v.created_us<?", int64_t{query.created_to->count()});
  }
  if (query.latest_only) {
    sql.append(
        " AND v.version=(SELECT max(w.version) FROM version w WHERE w.model_id=v.model_id "
        "AND w.state=0)");
  }
  if (!query.where.empty()) {
    HR_TRY(const SqlText where, compile_where(query.where));
    sql.append(" AND (");
    sql.append(where);
    sql.append(")");
  }
  return sql;
}

Result<Page> list_versions(Database* database, const Query& query) {
  HR_TRY(check_query(query));
  HR_TRY(const SqlText where, version_conditions(query));
  HR_TRY(const Cursor cursor, parse_cursor(query.cursor));
  HR_TRY(auto transaction, Transaction::begin(database, false));
  std::vector<Row> rows;
  Part part = by_metric(query) && cursor.set ? cursor.part : Part::values;
  const Part stop = by_metric(query) ? Part::end : Part::nan;
  while (part < stop && static_cast<int64_t>(rows.size()) <= query.limit) {
    // One more than asked for tells whether there is a next page.
    const int64_t wanted = query.limit + 1 - static_cast<int64_t>(rows.size());
    HR_TRY(read_part(database, query, where, cursor, part, wanted, &rows));
    part = static_cast<Part>(static_cast<int64_t>(part) + 1);
  }
  Page page;
  if (static_cast<int64_t>(rows.size()) > query.limit) {
    rows.pop_back();
    page.next = cursor_json(rows.back().cursor).dump();
  }
  for (Row& row : rows) {
    page.versions.push_back(std::move(row.version));
  }
  if (query.with_details) {
    HR_TRY(read_details(database, page.versions));
  }
  return page;
}

Result<int64_t> count_versions(Database* database, const Query& query) {
  HR_TRY(const SqlText where, version_conditions(query));
  SqlText sql;
  sql.append(
      "SELECT count(*) FROM model m JOIN version v ON v.model_id=m.id LEFT JOIN run r ON "
      "r.id=v.run_id ");
  sql.append(where);
  HR_TRY(auto select, database->prepare(sql.text));
  bind_values(sql, &select);
  HR_TRY(const bool row, select.step());
  return row ? select.integer(0) : 0;
}

Result<std::vector<ModelInfo>> list_models(Database* database, std::string_view pattern_text,
                                           int64_t limit) {
  HR_TRY(const Pattern pattern, parse_pattern(pattern_text));
  SqlText sql;
  sql.append(
      "SELECT m.name, m.description, m.created_us, (SELECT count(*) FROM version v WHERE "
      "v.model_id=m.id AND v.state=0) FROM model m WHERE 1");
  append_pattern(pattern, &sql);
  sql.append(" ORDER BY m.name LIMIT ?", limit);
  HR_TRY(auto select, database->prepare(sql.text));
  bind_values(sql, &select);
  std::vector<ModelInfo> models;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return models;
    }
    models.push_back({std::string(select.text(0)), std::string(select.text(1)), select.integer(3),
                      base::Micros(select.integer(2))});
  }
}

Result<std::vector<AskedName>> find_unknown(Database* database, const Query& query) {
  std::vector<AskedName> asked;
  if (!query.where.empty()) {
    HR_TRY(compile_where(query.where, &asked));
  }
  if (query.order_by != "name" && query.order_by != "version" && query.order_by != "created") {
    asked.push_back({"metric", query.order_by});
  }
  std::vector<AskedName> unknown;
  for (const AskedName& one : asked) {
    HR_TRY(auto select, database->prepare("SELECT EXISTS(SELECT 1 FROM " + one.table +
                                          " WHERE key_id=(SELECT id FROM key WHERE name=?))"));
    HR_TRY([[maybe_unused]] const bool row, select.bind(one.name).step());
    if (select.integer(0) == 0 && std::ranges::find(unknown, one) == unknown.end()) {
      unknown.push_back(one);
    }
  }
  return unknown;
}

Result<std::vector<std::string>> list_names(Database* database, const std::string& table) {
  if (table != "metric" && table != "param" && table != "tag") {
    return Error{Errc::invalid_argument,
                 "registry: names are of metric, param or tag, not of \"" + table + "\""};
  }
  HR_TRY(auto select,
         database->prepare("SELECT name FROM key WHERE id IN (SELECT DISTINCT key_id FROM " +
                           table + ") ORDER BY name"));
  std::vector<std::string> names;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return names;
    }
    names.emplace_back(select.text(0));
  }
}

}  // namespace headrace::registry
