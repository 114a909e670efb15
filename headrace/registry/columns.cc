// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/columns.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "headrace/base/checksum.h"
#include "headrace/registry/listing.h"
#include "headrace/registry/query.h"
#include "headrace/registry/registry_internal.h"

namespace headrace::registry {

namespace {

constexpr int64_t kNoRow = -1;

/// Row of a version id. Ids are dense, so a vector beats a hash table.
class RowIndex {
 public:
  void add(int64_t id, int64_t row) {
    if (id >= static_cast<int64_t>(rows_.size())) {
      rows_.resize(static_cast<size_t>(id) + static_cast<size_t>(id) / 2 + 1, kNoRow);
    }
    rows_[static_cast<size_t>(id)] = row;
  }
  int64_t find(int64_t id) const {
    return id < static_cast<int64_t>(rows_.size()) ? rows_[static_cast<size_t>(id)] : kNoRow;
  }

 private:
  std::vector<int64_t> rows_;
};

Result<RowIndex> read_rows(Database* database, const Query& query, ColumnTable* table) {
  HR_TRY(const SqlText conditions, version_conditions(query));
  SqlText sql;
  sql.append(
      "SELECT v.id, m.name, v.version, v.kind, v.item, r.uid, v.uid, v.created_us "
      "FROM model m CROSS JOIN version v ON v.model_id=m.id LEFT JOIN run r ON "
      "r.id=v.run_id ");
  sql.append(conditions);
  sql.append(" ORDER BY m.name, v.version");
  HR_TRY(auto select, database->prepare(sql.text));
  bind_values(sql, &select);
  for (const char* name : {"name", "kind", "item", "run", "uid", "aliases"}) {
    table->texts.emplace_back().name = name;
  }
  for (const char* name : {"version", "created_us"}) {
    table->wholes.emplace_back().name = name;
  }
  RowIndex index;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return index;
    }
    index.add(select.integer(0), table->rows++);
    table->texts[0].add(select.text(1), true);
    table->texts[1].add(select.text(3), true);
    table->texts[2].add(select.text(4), !select.is_null(4));
    table->texts[3].add(select.text(5), !select.is_null(5));
    table->texts[4].add(base::hex(select.blob(6)), true);
    table->wholes[0].values.push_back(select.integer(2));
    table->wholes[1].values.push_back(select.integer(7));
  }
}

Result<std::unordered_map<int64_t, std::string>> key_names(Database* database) {
  HR_TRY(auto select, database->prepare("SELECT id, name FROM key"));
  std::unordered_map<int64_t, std::string> names;
  for (;;) {
    HR_TRY(const bool row, select.step());
    if (!row) {
      return names;
    }
    names.emplace(select.integer(0), select.text(1));
  }
}

Result<void> read_metrics(Database* database, const RowIndex& index,
                          const std::unordered_map<int64_t, std::string>& names,
                          ColumnTable* table) {
  HR_TRY(auto select, database->prepare("SELECT version_id, key_id, value FROM metric"));
  std::unordered_map<int64_t, size_t> columns;
  const auto rows = static_cast<size_t>(table->rows);
  for (;;) {
    HR_TRY(const bool more, select.step());
    if (!more) {
      break;
    }
    const int64_t row = index.find(select.integer(0));
    if (row == kNoRow) {
      continue;
    }
    const auto [at, added] = columns.emplace(select.integer(1), table->metrics.size());
    if (added) {
      table->metrics.push_back({names.at(select.integer(1)),
                                std::vector<double>(rows, std::numeric_limits<double>::quiet_NaN()),
                                std::vector<uint8_t>(rows, 0)});
    }
    NumberColumn& column = table->metrics[at->second];
    column.valid[static_cast<size_t>(row)] = 1;
    if (!select.is_null(2)) {
      column.values[static_cast<size_t>(row)] = select.real(2);
    }
  }
  return {};
}

/// Texts per row, then laid out: rows do not come in order.
Result<void> read_params(Database* database, const RowIndex& index,
                         const std::unordered_map<int64_t, std::string>& names,
                         ColumnTable* table) {
  HR_TRY(auto select, database->prepare("SELECT version_id, key_id, value FROM param"));
  std::unordered_map<int64_t, std::vector<std::pair<int64_t, std::string>>> values;
  for (;;) {
    HR_TRY(const bool more, select.step());
    if (!more) {
      break;
    }
    const int64_t row = index.find(select.integer(0));
    if (row != kNoRow) {
      values[select.integer(1)].emplace_back(row, select.text(2));
    }
  }
  for (auto& [key, pairs] : values) {
    std::sort(pairs.begin(), pairs.end());
    TextColumn column;
    column.name = names.at(key);
    auto next = pairs.begin();
    for (int64_t row = 0; row < table->rows; ++row) {
      const bool there = next != pairs.end() && next->first == row;
      column.add(there ? std::string_view(next->second) : std::string_view(), there);
      next += there ? 1 : 0;
    }
    table->params.push_back(std::move(column));
  }
  return {};
}

Result<void> read_aliases(Database* database, const RowIndex& index, ColumnTable* table) {
  HR_TRY(auto select, database->prepare("SELECT version_id, name FROM alias ORDER BY name"));
  std::unordered_map<int64_t, std::string> joined;
  for (;;) {
    HR_TRY(const bool more, select.step());
    if (!more) {
      break;
    }
    const int64_t row = index.find(select.integer(0));
    if (row != kNoRow) {
      std::string& text = joined[row];
      text += (text.empty() ? "" : ",") + std::string(select.text(1));
    }
  }
  for (int64_t row = 0; row < table->rows; ++row) {
    const auto found = joined.find(row);
    const bool there = found != joined.end();
    table->texts[5].add(there ? std::string_view(found->second) : std::string_view(), there);
  }
  return {};
}

}  // namespace

void TextColumn::add(std::string_view text, bool is_valid) {
  bytes += text;
  offsets.push_back(static_cast<int64_t>(bytes.size()));
  valid.push_back(is_valid ? 1 : 0);
}

Result<ColumnTable> read_columns(const Registry& registry, const Query& query) {
  HR_TRY(auto database, RegistryAccess::state(registry).readers.take());
  HR_TRY(auto transaction, Transaction::begin(database.get(), false));
  ColumnTable table;
  HR_TRY(const RowIndex index, read_rows(database.get(), query, &table));
  HR_TRY(const auto names, key_names(database.get()));
  HR_TRY(read_metrics(database.get(), index, names, &table));
  HR_TRY(read_params(database.get(), index, names, &table));
  HR_TRY(read_aliases(database.get(), index, &table));
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(table.metrics.begin(), table.metrics.end(), by_name);
  std::sort(table.params.begin(), table.params.end(), by_name);
  return table;
}

}  // namespace headrace::registry
