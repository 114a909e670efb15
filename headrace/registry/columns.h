// SPDX-License-Identifier: Apache-2.0
// A whole listing as columns, for data frames: one array per attribute, metric and param.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"
#include "headrace/registry/database.h"
#include "headrace/registry/types.h"

namespace headrace::registry {

class Registry;

/// Texts one behind the other, as Arrow lays them: row i is bytes [offsets[i], offsets[i + 1]).
struct TextColumn {
  std::string name = {};
  std::vector<int64_t> offsets = {0};
  std::string bytes = {};
  std::vector<uint8_t> valid = {};  ///< 0 = absent

  void add(std::string_view text, bool is_valid);
};

struct NumberColumn {
  std::string name = {};
  std::vector<double> values = {};
  std::vector<uint8_t> valid = {};  ///< 0 = absent; NaN that was registered is valid
};

struct WholeColumn {
  std::string name = {};
  std::vector<int64_t> values = {};
};

struct ColumnTable {
  int64_t rows = 0;
  std::vector<TextColumn> texts = {};    ///< name, kind, item, run, uid, aliases
  std::vector<WholeColumn> wholes = {};  ///< version, created_us
  std::vector<NumberColumn> metrics = {};
  std::vector<TextColumn> params = {};
};

/// All rows of `query` by name and version (limit, cursor and order are not used).
HR_API Result<ColumnTable> read_columns(const Registry& registry, const Query& query);

}  // namespace headrace::registry
